"""What every section of a recipe is made of: a strict frozen model, durations, and texts that name files."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from kitae.errors import RecipeError

Unit = Literal["steps", "tokens", "epochs"]

_PATTERN = r"^\s*(\d{1,18}(?:\.\d{1,18})?)\s*([KMBkmb]?)\s*(steps?|tokens?|epochs?)\s*$"
_MULTIPLIER = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
DURATION_EXAMPLES = ("200 steps", "1.5M tokens", "3 epochs")


class Section(BaseModel):
    """A section of the recipe: unknown keys are errors, the docstring under a field is its help."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        protected_namespaces=(),
        allow_inf_nan=False,
    )


class FieldError(RecipeError):
    """A rule between fields is broken; `field` is the path, from the section that checks, to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


@dataclass(frozen=True)
class Duration:
    """A length of training, such as `200 steps`, `1.5M tokens` or `3 epochs`."""

    value: float
    unit: Unit

    @classmethod
    def parse(cls, text: object) -> Duration:
        """Read `N steps`, `N tokens` or `N epochs`; N may end in K, M or B. Raises `ValueError`."""
        match = re.match(_PATTERN, text) if isinstance(text, str) else None
        if match is None:
            first, second, third = DURATION_EXAMPLES
            shown = "nothing" if text is None else repr(text)
            raise ValueError(f"{shown} is not a duration; write it as '{first}', '{second}' or '{third}'")
        value = Decimal(match[1]) * _MULTIPLIER[match[2].lower()]
        unit = match[3].rstrip("s") + "s"
        if unit != "epochs" and value != int(value):
            raise ValueError(f"{text!r} is not a whole number of {unit}")
        return cls(float(value), unit)  # type: ignore[arg-type]

    def steps(self, *, tokens_per_step: int, samples: int, global_batch_size: int) -> int:
        """Optimizer updates this lasts; a partial last window counts as one, as it is trained on."""
        if self.unit == "steps":
            return int(self.value)
        if self.unit == "tokens":
            return math.ceil(self.value / tokens_per_step)
        return math.ceil(round(self.value * samples, 6) / global_batch_size)

    def __str__(self) -> str:
        # Never in exponent form, which `parse` does not read.
        return f"{Decimal(repr(self.value)).normalize():f} {self.unit}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls.parse(value),
            serialization=core_schema.plain_serializer_function_ser_schema(str, when_used="always"),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "pattern": _PATTERN, "examples": list(DURATION_EXAMPLES)}


def _above_zero(duration: Duration) -> Duration:
    if duration.value <= 0:
        raise ValueError(
            f"'{duration}' is no time at all; write a duration above 0, such as '{DURATION_EXAMPLES[0]}'"
        )
    return duration


def _expand_home(text: str) -> str:
    return str(Path(text).expanduser()) if text == "~" or text.startswith("~/") else text


Positive = Annotated[int, Field(gt=0)]
NonEmpty = Annotated[str, Field(min_length=1)]
IS_LOCAL_PATH = object()
LocalPath = Annotated[str, Field(min_length=1), AfterValidator(_expand_home), IS_LOCAL_PATH]
"""A path of this machine; a relative one starts at the recipe's folder. `~` is the home folder."""
PositiveDuration = Annotated[Duration, AfterValidator(_above_zero)]
