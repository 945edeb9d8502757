"""What masked-language training hides of a text, and how texts become pairs."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from kitae.recipe.base import FieldError, Positive, Section

Share = Annotated[float, Field(ge=0, le=1)]
PREDICTIONS_MULTIPLE = 5


class MaskingConfig(Section):
    """What is hidden of a text and must be predicted, and how texts become pairs (masked-lm)."""

    probability: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of a row's text that is predicted."""
    replace: Share = 0.8
    """Share of the predicted tokens that the mask token replaces."""
    random: Share = 0.1
    """Share of the predicted tokens that a random token replaces; the rest stays as it is."""
    whole_word: bool = True
    """Predict all tokens of a word or none of them."""
    max_predictions: Positive | Literal["auto"] = "auto"
    """Most predictions in a row; auto: the share, up to a multiple of 5 (20 of 128, 80 of 512)."""
    dynamic: bool = True
    """Draw other masks in each epoch; held-out text always keeps its own."""
    next_sentence: bool = True
    """Rows are pairs, half of them with a second part from another document, which is to be told."""
    short_sequence_probability: Share = 0.1
    """Share of the rows that are cut short at a random length."""
    sentences: Literal["punctuation", "line"] = "punctuation"
    """Where a sentence ends: behind Japanese or English punctuation and at blank lines; or with its line."""

    @model_validator(mode="after")
    def _check(self) -> MaskingConfig:
        if self.replace + self.random > 1 + 1e-9:
            raise FieldError(
                "replace",
                f"with random it makes {self.replace + self.random:g}, more than all predicted tokens; "
                "lower one of them",
            )
        return self

    def predictions(self, sequence_length: int) -> int:
        """Most predictions in a row of this length."""
        if self.max_predictions != "auto":
            return min(self.max_predictions, sequence_length)
        share = math.ceil(self.probability * sequence_length - 1e-9)
        return min(-(-share // PREDICTIONS_MULTIPLE) * PREDICTIONS_MULTIPLE, sequence_length)
