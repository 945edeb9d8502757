"""How the machines of a training are watched, and who is told when something is wrong."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, model_validator

from kitae.recipe.base import FieldError, NonEmpty, Section

Share = Annotated[float, Field(gt=0, lt=1)]
_ADDRESS = re.compile(r"https?://[^\s/]+\S*|\$[A-Za-z_][A-Za-z0-9_]*")


class AlarmConfig(Section):
    """Alarms stand in the log, `kitae top`, run.json and alarms.json; here, when, and who else is told."""

    command: NonEmpty | None = None
    """Shell command that is run when alarms begin or end; it gets them as JSON on its standard input and as
    KITAE_ALARM_EVENT, _NAMES, _LEVEL and _TEXT. It may take 30 s."""
    webhook: NonEmpty | None = None
    """Address that gets the same JSON by POST, such as an incoming webhook of Slack; `$NAME`: the one in that
    variable, so that no secret lies in the recipe."""
    again_minutes: Annotated[float, Field(ge=0)] = 60.0
    """Minutes within which the same alarm, if it ends and begins again, is not told again."""
    idle_minutes: Annotated[float, Field(gt=0)] = 10.0
    """Minutes for which all cores of a node may do nothing: idle-while-paid."""
    idle_below: Share = 0.02
    """What counts as nothing, 0 to 1, for each core."""
    loss_rise: Annotated[float, Field(gt=0)] = 0.2
    """How far the mean loss of 50 updates may lie above the lowest such mean, as its share: rising-loss."""
    disk_free: Share = 0.05
    """Share of the run's disk that has to be free, though never more than 20 GiB or one and a half
    checkpoints, whichever is more: disk-nearly-full."""
    budget_usd: Annotated[float, Field(gt=0)] | None = None
    """US dollars that the run may cost, of which 80 % raise budget-at-80-percent; it stops nothing. Needs
    target.price_per_node_hour. null: no limit."""

    @model_validator(mode="after")
    def _check(self) -> AlarmConfig:
        if self.webhook is not None and _ADDRESS.fullmatch(self.webhook) is None:
            raise FieldError(
                "webhook",
                f"{self.webhook!r} is no address; write https://..., or $NAME for one in a variable",
            )
        return self


class WatchConfig(Section):
    """A small process on each node takes samples of it while it trains; what is learned does not change."""

    record: bool = True
    """Whether samples are taken, and alarms raised."""
    period_s: Annotated[float, Field(ge=0.2, le=3600)] = 5.0
    """Seconds from sample to sample. Of a long run they are put together, so that 2,000 lines are enough."""
    alarms: AlarmConfig = AlarmConfig()
    """When something is wrong, and who is told."""
