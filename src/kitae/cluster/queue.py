"""A queue of the cluster: machines of one type, and how they are paid for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from kitae.recipe.base import FieldError, NonEmpty, Positive, Section

Count = int


class CapacityConfig(Section):
    """How its machines are paid for."""

    kind: Literal["on-demand", "spot", "reservation", "capacity-block"] = "on-demand"
    """on-demand; spot: cheaper, and taken away at any time; reservation: machines that you reserved;
    capacity-block: machines reserved and paid for a stretch of time."""
    id: Annotated[str, Field(pattern=r"^cr-[0-9a-f]{8,17}$")] | None = None
    """Of the reservation or capacity block, `cr-...`."""
    ends: NonEmpty | None = None
    """End of the capacity block: a time such as `2026-12-24T11:30Z`."""


class QueueConfig(Section):
    """Machines of one type."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    """Name of the queue: small letters, digits and dashes, a letter first."""
    instance: NonEmpty
    """Type of its machines, such as trn1.32xlarge (`kitae catalog list`)."""
    min: Annotated[int, Field(ge=0)] = 0
    """Machines that are always on; 0: none while no job waits."""
    max: Positive
    """Machines at most."""
    efa: bool | Literal["auto"] = "auto"
    """The network interface of collectives between machines; auto: where the type has it and max > 1."""
    placement_group: bool | Literal["auto"] = "auto"
    """Machines close to each other; auto: with EFA."""
    disk_gb: Annotated[int, Field(ge=40, le=16384)] = 200
    """Root disk of each machine (gp3), GB."""
    capacity: CapacityConfig = CapacityConfig()
    """How they are paid for."""

    @model_validator(mode="after")
    def _check(self) -> QueueConfig:
        if self.min > self.max:
            raise FieldError("min", f"{self.min} is more than max ({self.max}); lower it")
        return self
