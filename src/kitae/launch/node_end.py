"""How the ranks of a machine ended, and what a launch over several machines ends with."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kitae.errors import StoppedError
from kitae.launch.failure import AGAIN, End, NodeLostError, error_of, result_of
from kitae.launch.order import Launch
from kitae.launch.outcome import Outcome
from kitae.storage.files import replace_file


@dataclass(frozen=True)
class NodeEnd:
    """What a machine has to say of its ranks."""

    name: str
    ends: tuple[End, ...]
    verdict: Outcome | None = None
    """What the launch ends with, whatever the ranks say: that some were stuck, that none could be started."""

    def write(self, path: Path) -> None:
        """Leave it for the others, as a whole."""
        replace_file(path, json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, path: Path) -> NodeEnd | None:
        """What lies in a file; None when the machine left nothing."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        verdict = values["verdict"]
        return cls(
            values["name"],
            tuple(_end(one) for one in values["ends"]),
            None if verdict is None else Outcome(**verdict),
        )


def _end(values: dict[str, object]) -> End:
    outcome = values.pop("outcome")
    assert outcome is None or isinstance(outcome, dict)
    return End(**values, outcome=None if outcome is None else Outcome(**outcome))  # type: ignore[arg-type]


def result_of_nodes(
    nodes: Sequence[NodeEnd | None],
    launch: Launch,
    asked: signal.Signals | None = None,
) -> BaseException | None:
    """What the launch ends with: the first failure of all machines, a stop, or None for success.

    `asked` is the stop signal that was passed on. A machine that left nothing is lost, which is the cause of
    what befell the others, unless one of them knows a cause of its own.
    """
    found = [node for node in nodes if node is not None]
    verdicts = sorted((node.verdict for node in found if node.verdict is not None), key=lambda one: one.at_ns)
    if verdicts:
        return error_of(verdicts[0])
    ends = sorted((end for node in found for end in node.ends), key=lambda end: end.rank)
    lost = [launch.names[number] for number, node in enumerate(nodes) if node is None]
    if lost and not any(end.failed and end.order[0] == 0 for end in ends):
        return NodeLostError(f"node {lost[0]} is gone: it left no word of its ranks; {AGAIN}", lost[0])
    result = result_of(ends, launch)
    if result is None and asked is not None:
        return StoppedError(
            f"stopped by {asked.name} after the last step; run the same command again to go on"
        )
    return result
