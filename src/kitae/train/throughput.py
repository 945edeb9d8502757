"""Speed of training as pure functions, so that every printed number can be checked by hand."""

from __future__ import annotations

from dataclasses import dataclass

UTILISATION_FORMULA = (
    "flops_per_token * padded tokens per second and device / peak_flops; "
    "peak_flops is that of a measured matrix product"
)


@dataclass(frozen=True)
class Throughput:
    """Tokens per second of one step: of all devices together, and of one."""

    tokens_per_s: float
    """Padding counted: what the machine computes."""
    real_tokens_per_s: float
    """Padding left out: what the model learns from."""
    tokens_per_s_per_device: float
    real_tokens_per_s_per_device: float
    utilisation: float
    """Share of the peak that model arithmetic makes use of; see `UTILISATION_FORMULA`."""


def throughput(
    *,
    padded_tokens: int,
    real_tokens: int,
    seconds: float,
    devices: int,
    flops_per_token: int,
    peak_flops: float,
) -> Throughput:
    """Speed of a step that took `seconds` for tokens counted over all micro-batches and devices."""
    padded, real = padded_tokens / seconds, real_tokens / seconds
    return Throughput(
        tokens_per_s=padded,
        real_tokens_per_s=real,
        tokens_per_s_per_device=padded / devices,
        real_tokens_per_s_per_device=real / devices,
        utilisation=flops_per_token * padded / devices / peak_flops,
    )


def seconds_left(step_seconds: float, steps_left: int) -> float:
    """Time that `steps_left` steps take at `step_seconds` each."""
    return step_seconds * steps_left
