"""What one source tells of a machine over one period."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from kitae.watch.samples import CoreSample, DeviceSample, HostSample, ProcessSample


@dataclass(frozen=True)
class Told:
    """Empty and None for what the source knows nothing of."""

    cores: tuple[CoreSample, ...] = ()
    devices: tuple[DeviceSample, ...] = ()
    processes: tuple[ProcessSample, ...] = ()
    host: HostSample = field(default_factory=HostSample)
    errors: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    period_s: float | None = None
    """As measured."""

    def with_errors(self, errors: Mapping[str, int]) -> Told:
        """With these counts; kinds that never came are left out."""
        return replace(self, errors={kind: count for kind, count in errors.items() if count})


class Teller(Protocol):
    """A source that is read once a period."""

    name: str
    """What `Sample.source` calls it."""

    def read(self) -> Told:
        """What it tells of the time since it was read last."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...
