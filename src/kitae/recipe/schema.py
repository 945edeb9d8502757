"""The whole recipe."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kitae.recipe.sources import DataConfig, ModelConfig
from kitae.recipe.training import StageTrainingConfig


class Recipe(StageTrainingConfig):
    """One job: a model, text, and how the one is trained on the other."""

    kitae: Literal[1]
    """Version of the recipe format."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Name of the run: its folder is `<runs>/<name>`."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Every random draw of the run is keyed by it."""
    runs: str = "runs"
    """Folder of the runs, relative to where kitae is started."""
    model: ModelConfig
    data: DataConfig
