"""What the dashboard draws: rows of panels, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_OF = '{run=~"$run"}'
"""Of the runs that are chosen."""
_THERE = '{run=~"$run",node=~"$node"}'


@dataclass(frozen=True)
class Panel:
    """One drawing; its queries with their legends."""

    title: str
    unit: str
    """Grafana's name of it."""
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    most: float | None = None
    """Upper end of the axis."""


def _one(title: str, unit: str, query: str, legend: str = "{{run}}", **options: Any) -> Panel:
    return Panel(title, unit, ((query, legend),), **options)


def _stat(title: str, unit: str, query: str, legend: str = "{{run}}") -> Panel:
    return _one(title, unit, query, legend, kind="stat", width=4, height=4)


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Runs",
        (
            _stat("State", "none", f"kitae_run_state{_OF} == 1", "{{run}}: {{state}}"),
            _stat("Done", "percentunit", f"kitae_training_step{_OF} / kitae_training_steps{_OF}"),
            _stat("Time left", "s", f"kitae_run_remaining_seconds{_OF}"),
            _stat("Cost so far", "currencyUSD", f"kitae_run_cost_usd{_OF}"),
            _stat("Cost at its end", "currencyUSD", f"kitae_run_cost_end_usd{_OF}"),
            _stat(
                "Active alarms",
                "none",
                f"sum by (run, alarm) (kitae_alarm_active{_OF}) > 0",
                "{{run}}: {{alarm}}",
            ),
        ),
    ),
    (
        "Training",
        (
            Panel(
                "Loss",
                "none",
                (
                    (f"kitae_training_loss{_OF}", "{{run}}"),
                    (f"kitae_training_heldout_loss{_OF}", "{{run}} held out {{phase}}"),
                ),
            ),
            Panel(
                "Tokens a second",
                "short",
                (
                    (f"kitae_training_tokens_per_second{_OF}", "{{run}} {{kind}}"),
                    (f"rate(kitae_training_tokens_total{_OF}[15m])", "{{run}} {{kind}}, all pauses counted"),
                ),
            ),
            _one("Use of the peak", "percentunit", f"kitae_training_utilisation_ratio{_OF}", most=1.0),
            _one("Learning rate", "sci", f"kitae_training_learning_rate{_OF}"),
            _one("Gradient norm", "none", f"kitae_training_gradient_norm{_OF}"),
            Panel(
                "Seconds of a step",
                "s",
                (
                    (f"kitae_training_step_seconds{_OF}", "{{run}}"),
                    (
                        f"max by (run) (kitae_training_rank_compute_seconds{_OF})",
                        "{{run}} slowest rank",
                    ),
                ),
            ),
            _one("Age of the newest checkpoint", "s", f"time() - kitae_checkpoint_timestamp_seconds{_OF}"),
            _one(
                "Age of the last sign",
                "s",
                f"time() - kitae_run_last_sign_timestamp_seconds{_OF}",
            ),
            _one("US dollars an hour", "currencyUSD", f"kitae_run_cost_usd_per_hour{_OF}"),
        ),
    ),
    (
        "Machines",
        (
            _one(
                "Cores, mean of each node",
                "percentunit",
                f"avg by (run, node) (kitae_core_utilisation_ratio{_THERE})",
                "{{run}} {{node}}",
                width=12,
                most=1.0,
            ),
            _one(
                "Cores, each",
                "percentunit",
                f"kitae_core_utilisation_ratio{_THERE}",
                "{{node}} {{core}}",
                width=12,
                most=1.0,
            ),
            _one(
                "Memory of devices",
                "bytes",
                f"sum by (run, node) (kitae_core_memory_used_bytes{_THERE})",
                "{{run}} {{node}}",
            ),
            _one(
                "Memory of the host",
                "percentunit",
                f"kitae_host_memory_used_bytes{_THERE} / kitae_host_memory_size_bytes{_THERE}",
                "{{run}} {{node}}",
                most=1.0,
            ),
            _one("Free disk", "bytes", f"kitae_host_disk_free_bytes{_THERE}", "{{run}} {{node}}"),
            _one(
                "Errors in device memory, an hour",
                "short",
                f"sum by (run, node, kind) (increase(kitae_device_ecc_errors_total{_THERE}[1h]))",
                "{{run}} {{node}} {{kind}}",
            ),
            _one(
                "Errors of runtimes, an hour",
                "short",
                f"sum by (run, node, kind) (increase(kitae_runtime_errors_total{_THERE}[1h]))",
                "{{run}} {{node}} {{kind}}",
            ),
            _one(
                "CPU of the host",
                "percentunit",
                f"kitae_host_cpu_utilisation_ratio{_THERE}",
                "{{run}} {{node}}",
                most=1.0,
            ),
        ),
    ),
)
