"""What every section of a recipe is made of: a strict frozen model, and durations."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

Unit = Literal["steps", "tokens", "epochs"]

_PATTERN = r"^\s*(\d[\d_]*(?:\.\d+)?)\s*([KMBkmb]?)\s*(steps?|tokens?|epochs?)\s*$"
_MULTIPLIER = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


class Section(BaseModel):
    """A section of the recipe: unknown keys are errors, the docstring under a field is its help."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=(), allow_inf_nan=False
    )


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
            raise ValueError(f"{text!r} is not a duration; write it as '200 steps', '1.5M tokens' or '3 epochs'")
        value = float(match[1].replace("_", "")) * _MULTIPLIER[match[2].lower()]
        unit = match[3].rstrip("s") + "s"
        if unit != "epochs" and value != int(value):
            raise ValueError(f"{text!r}: {unit} must be a whole number")
        return cls(value, unit)  # type: ignore[arg-type]

    def steps(self, *, tokens_per_step: int, samples: int, global_batch_size: int) -> int:
        """Optimizer updates this lasts; a partial last window counts as one, as it is trained on."""
        if self.unit == "steps":
            return int(self.value)
        if self.unit == "tokens":
            return math.ceil(self.value / tokens_per_step)
        return math.ceil(round(self.value * samples, 6) / global_batch_size)

    def __str__(self) -> str:
        value = int(self.value) if self.value == int(self.value) else self.value
        return f"{value} {self.unit}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls.parse(value),
            serialization=core_schema.plain_serializer_function_ser_schema(str, when_used="always"),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": _PATTERN, "examples": ["200 steps", "1.5M tokens", "3 epochs"]}
