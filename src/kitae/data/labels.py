"""Labels: what is read as one, which class it stands for, and which texts are left out for want of one."""

from __future__ import annotations

import math
import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from kitae.data.documents import Field
from kitae.errors import DataError
from kitae.recipe.labels import LabelsConfig, plain_label
from kitae.recipe.sources import DataConfig

MOST_CLASSES = 1000
"""A field with more values than this is no label."""
SHOWN_VALUES = 20
NO_LABEL = "(none)"
"""How the card counts texts whose label is null or empty."""

_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def label_text(raw: object) -> str | None:
    """A label as text: 1, 1.0 and "1" alike; None for one that is null, empty or not a number.

    Raises `ValueError` for what is no label.
    """
    if raw is None or (isinstance(raw, float) and math.isnan(raw)):
        return None
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, bytes):
        raise ValueError("is not valid UTF-8")
    if not isinstance(raw, str | int | float):
        raise ValueError(f"holds a {type(raw).__name__}, which is no label")
    return plain_label(str(raw).strip()) or None


def second_text(raw: object) -> str:
    """The second text of a pair; raises `ValueError`."""
    if not isinstance(raw, str):
        raise ValueError("is null where a text is needed" if raw is None else "is not a text")
    return raw


def record_fields(config: DataConfig) -> tuple[Field, ...]:
    """What is read of each record beside its text: the label, and the second text where there is one."""
    labels = config.labels
    if labels is None:
        return ()
    label = Field(labels.field, "data.labels.field", label_text)
    if labels.text_pair_field is None:
        return (label,)
    return label, Field(labels.text_pair_field, "data.labels.text_pair_field", second_text)


class LabelRule:
    """Turns labels into classes as the recipe says, and counts those that are none."""

    def __init__(self, config: LabelsConfig) -> None:
        self._config = config
        self._classes = config.classes
        self._found: dict[str, int] = {}
        self.dropped: Counter[str] = Counter()
        """Texts left out, by their label."""

    def keeps(self, label: str | None) -> bool:
        """Whether texts with this label are taken."""
        return label is not None and (self._classes is None or label in self._classes)

    def number(self, label: str) -> int:
        """Number of a label that is kept, as `settle` knows it; raises `DataError` for one too many."""
        known = self._found if self._classes is None else self._classes
        if label not in known:
            if len(known) == MOST_CLASSES:
                raise DataError(
                    f"data.labels.field: {self._config.field!r} has more than {MOST_CLASSES} different "
                    f"values, such as {_shown(list(known)[:3])}; name the field of the label"
                )
            known[label] = len(known)
        return known[label]

    def settle(self) -> tuple[list[str], NDArray[np.int32]]:
        """Names of the classes, and the class of each number; raises `DataError` for fewer than two."""
        names = self._config.class_names
        if self._classes is not None and names is not None:
            return names, np.arange(len(names), dtype=np.int32)
        ordered = sorted_labels(list(self._found))
        if len(ordered) < 2:
            found = f"only {ordered[0]!r}" if ordered else "nothing"
            raise DataError(
                f"data.labels.field: {self._config.field!r} holds {found}; two classes are needed"
            )
        if names is not None and len(names) != len(ordered):
            raise DataError(
                f"data.labels.names: {len(names)} names for {len(ordered)} values ({_shown(ordered)}); name "
                "each of them, or say with data.labels.values which ones count"
            )
        numbers = [ordered.index(label) for label in self._found]
        return names or ordered, np.array(numbers, np.int32)

    def check_any(self, taken: int) -> None:
        """Raise `DataError` when no text at all had a label that counts."""
        if taken or not self.dropped:
            return
        common = ", ".join(f"{value!r} ({count})" for value, count in self.dropped.most_common(SHOWN_VALUES))
        wanted = f"one of {_shown(list(self._classes))}" if self._classes is not None else "a label"
        raise DataError(f"data.labels: no text has {wanted}; the field {self._config.field!r} holds {common}")


def sorted_labels(labels: list[str]) -> list[str]:
    """By value when all are numbers, else by text."""
    if all(_NUMBER.fullmatch(label) for label in labels):
        return sorted(labels, key=float)
    return sorted(labels)


def _shown(labels: list[str]) -> str:
    more = ", .." if len(labels) > SHOWN_VALUES else ""
    return ", ".join(repr(label) for label in labels[:SHOWN_VALUES]) + more
