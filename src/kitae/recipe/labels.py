"""What the label of a text is."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, model_validator

from kitae.recipe.base import FieldError, NonEmpty, Positive, Section

_WHOLE = re.compile(r"(-?\d+)\.0+")


def plain_label(text: str) -> str:
    """A label as text without what only its storage adds: `1.0` is `1`."""
    match = _WHOLE.fullmatch(text)
    return match[1] if match else text


class LabelsConfig(Section):
    """What the label of a text is, and which texts are taken."""

    field: NonEmpty = "label"
    """Field or column that holds the label. Its values are compared as text: 1, "1" and 1.0 are the same."""
    values: dict[str, int | str] | None = None
    """Value of the field -> its class, a number from 0 or a name, such as {1: 0, 2: 0, 4: 1, 5: 1}; rows with
    other values are dropped and counted. null: every value is a class, in sorted order."""
    names: Annotated[list[NonEmpty], Field(min_length=2)] | None = None
    """Names of the classes in the order of their numbers, for the export and `kitae classify`; null: those of
    the values, sorted, or LABEL_0, LABEL_1, .. for classes that are numbers."""
    text_pair_field: NonEmpty | None = None
    """Field or column of a second text, which follows the first behind a separator."""
    sample: Positive | None = None
    """Training texts to take, drawn by the seed; null takes all."""
    sample_heldout: Positive | None = None
    """Held-out texts to take, drawn likewise."""

    @model_validator(mode="after")
    def _check(self) -> LabelsConfig:
        if self.names is not None and len(set(self.names)) != len(self.names):
            raise FieldError("names", "a name is given twice; give each class a name of its own")
        if self.values is not None:
            self._check_values(self.values)
        return self

    def _check_values(self, values: dict[str, int | str]) -> None:
        plain = [plain_label(value) for value in values]
        if len(set(plain)) != len(plain):
            twice = next(value for value in plain if plain.count(value) > 1)
            raise FieldError("values", f"{twice} is given twice, once with and once without .0; keep one")
        kinds = {type(target) for target in values.values()}
        if len(kinds) > 1:
            raise FieldError("values", "some classes are numbers and some are names; write them all alike")
        if kinds == {int}:
            self._check_numbers({int(target) for target in values.values()})
        elif self.names is not None:
            unknown = sorted({str(target) for target in values.values()} - set(self.names))
            if unknown:
                raise FieldError("values", f"{unknown[0]} is none of names ({', '.join(self.names)})")
        if len(self.class_names or ()) < 2:
            raise FieldError("values", "there is only one class; a classifier needs two or more")

    def _check_numbers(self, numbers: set[int]) -> None:
        count = max(numbers) + 1 if self.names is None else len(self.names)
        if numbers != set(range(count)):
            what = f"0 to {count - 1}" + ("" if self.names is None else f", one for each of {count} names,")
            raise FieldError("values", f"the classes are {_listed(numbers)} where {what} are needed")

    @property
    def classes(self) -> dict[str, int] | None:
        """Label as text -> number of its class; None where the data say it."""
        names = self.class_names
        if self.values is None or names is None:
            return None
        return {
            plain_label(value): target if isinstance(target, int) else names.index(target)
            for value, target in self.values.items()
        }

    @property
    def class_names(self) -> list[str] | None:
        """Names of the classes by number; None where the data say them."""
        if self.names is not None or self.values is None:
            return self.names
        targets = set(self.values.values())
        if all(isinstance(target, int) for target in targets):
            return [f"LABEL_{number}" for number in range(len(targets))]
        return sorted(str(target) for target in targets)  # a mapping's order is nobody's promise


def _listed(numbers: set[int]) -> str:
    return ", ".join(str(number) for number in sorted(numbers))
