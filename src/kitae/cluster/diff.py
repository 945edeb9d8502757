"""What differs between two cluster files, key by key; queues are told apart by their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kitae.cluster.queue import QueueConfig
from kitae.cluster.schema import ClusterFile
from kitae.recipe.base import Section
from kitae.recipe.yaml_positions import KeyPath

_QUEUES = "queues"


@dataclass(frozen=True)
class Change:
    """One key that has another value."""

    where: KeyPath
    old: Any
    new: Any

    @property
    def key(self) -> str:
        """As the cluster file writes it, queues by name: `queues.train.max`."""
        return ".".join(str(one) for one in self.where)

    def line(self) -> str:
        """As it is printed."""
        return f"{self.key}: {_shown(self.old)} -> {_shown(self.new)}"


def changes(old: ClusterFile, new: ClusterFile) -> list[Change]:
    """What is to become of `old`, in the order of the file's keys."""
    return list(_sections(old, new, ()))


def with_change(file: ClusterFile, change: Change) -> ClusterFile:
    """The file with this change alone; nothing is checked."""
    found: ClusterFile = _put(file, change.where, change.new)
    return found


def _sections(old: Section, new: Section, above: KeyPath) -> Iterator[Change]:
    for name in type(new).model_fields:
        one, other, where = getattr(old, name), getattr(new, name), (*above, name)
        if where == (_QUEUES,):
            yield from _queues(one, other)
        elif isinstance(one, Section) and isinstance(other, Section):
            yield from _sections(one, other, where)
        elif one != other:
            yield Change(where, one, other)


def _queues(old: list[QueueConfig], new: list[QueueConfig]) -> Iterator[Change]:
    before, after = ({queue.name: queue for queue in some} for some in (old, new))
    for name in dict.fromkeys([*before, *after]):
        where, one, other = (_QUEUES, name), before.get(name), after.get(name)
        if one is None or other is None:
            yield Change(where, one, other)
        else:
            yield from _sections(one, other, where)


def _put(section: Any, where: KeyPath, value: Any) -> Any:
    name, rest = str(where[0]), where[1:]
    if name == _QUEUES:
        found: Any = _put_queue(section.queues, str(rest[0]), rest[1:], value)
    else:
        found = _put(getattr(section, name), rest, value) if rest else value
    return section.model_copy(update={name: found})


def _put_queue(queues: list[QueueConfig], name: str, rest: KeyPath, value: Any) -> list[QueueConfig]:
    if rest:
        return [_put(queue, rest, value) if queue.name == name else queue for queue in queues]
    others = [queue for queue in queues if queue.name != name]
    return others if value is None else [*others, value]


def _shown(value: Any) -> str:
    if isinstance(value, Section):
        given = value.model_dump(exclude_defaults=True)
        return "{" + ", ".join(f"{key}: {one}" for key, one in given.items()) + "}"
    return "none" if value is None or value == [] else str(value)
