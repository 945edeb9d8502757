"""Every metric that is exported: its name, kind, labels and meaning.

Names follow Prometheus' conventions (https://prometheus.io/docs/practices/naming/): base units in the name,
shares from 0 to 1 as `_ratio`, times as seconds since 1970, `_total` behind what only counts up. The page
docs/verbs/metrics.md shows the same table; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "info"]


@dataclass(frozen=True)
class Family:
    """One metric."""

    name: str
    """As it is queried: of a counter with `_total`, of an info with `_info`."""
    kind: Kind
    labels: tuple[str, ...]
    """Besides `run`, which all but the exporter's own have."""
    help: str
    of_run: bool = True


_NODE, _CORE, _DEVICE = ("node",), ("node", "core"), ("node", "device")
_PROCESS = ("node", "pid", "tag")
_INFO = ("path", "model", "objective", "precision", "backend", "kitae", "host")

FAMILIES: tuple[Family, ...] = (
    # The run.
    Family("kitae_run_info", "info", _INFO, "What the run is; always 1."),
    Family("kitae_run_readable", "gauge", (), "0 where the run's folder is damaged and tells nothing else."),
    Family("kitae_run_state", "gauge", ("state",), "1 for the state that the run is in, 0 for the others."),
    Family("kitae_run_attempts_total", "counter", (), "How often it was started."),
    Family("kitae_run_nodes", "gauge", (), "Machines of the newest attempt, or that its job waits for."),
    Family("kitae_run_started_timestamp_seconds", "gauge", (), "When its newest attempt began."),
    Family("kitae_run_last_sign_timestamp_seconds", "gauge", (), "When a process wrote to its folder last."),
    Family("kitae_run_remaining_seconds", "gauge", (), "For the updates that are left; while it runs."),
    Family("kitae_run_cost_usd", "gauge", (), "US dollars of all attempts so far, where a price is known."),
    Family("kitae_run_cost_usd_per_hour", "gauge", (), "US dollars an hour of all nodes; while it runs."),
    Family("kitae_run_cost_end_usd", "gauge", (), "US dollars at its end, if it goes on as now."),
    Family("kitae_run_budget_usd", "gauge", (), "US dollars that its recipe allows."),
    # The training.
    Family("kitae_training_step", "gauge", (), "Updates done; falls when it goes on from a checkpoint."),
    Family("kitae_training_steps", "gauge", (), "Updates of the whole training."),
    Family("kitae_training_loss", "gauge", (), "Of the newest update, nats per target token."),
    Family("kitae_training_heldout_loss", "gauge", ("phase",), "Of the newest evaluation, nats per token."),
    Family("kitae_training_learning_rate", "gauge", (), "Of the newest update."),
    Family("kitae_training_gradient_norm", "gauge", (), "Of the newest update, before it is clipped."),
    Family("kitae_training_tokens_total", "counter", ("kind",), "Tokens trained on: padded or real."),
    Family(
        "kitae_training_tokens_per_second",
        "gauge",
        ("kind",),
        "Of all devices together; while it runs.",
    ),
    Family("kitae_training_device_tokens_per_second", "gauge", (), "Padded, of each device; while it runs."),
    Family("kitae_training_step_seconds", "gauge", (), "Mean of the last 100 updates; while it runs."),
    Family("kitae_training_utilisation_ratio", "gauge", (), "Model FLOP/s by the peak; while it runs."),
    Family("kitae_training_peak_memory_bytes", "gauge", (), "Most that a rank has held."),
    Family("kitae_training_rank_compute_seconds", "gauge", ("rank", "node"), "Of a step, without waiting."),
    Family("kitae_training_rank_slow", "gauge", ("rank", "node"), "1 for a rank that the others wait for."),
    # Checkpoints and alarms.
    Family("kitae_checkpoints", "gauge", (), "Checkpoints that are there."),
    Family("kitae_checkpoint_step", "gauge", (), "Updates in the newest one."),
    Family("kitae_checkpoint_timestamp_seconds", "gauge", (), "When the newest one was saved."),
    Family("kitae_alarm_active", "gauge", ("alarm",), "Alarms of a rule that are active now."),
    Family(
        "kitae_alarm_since_timestamp_seconds",
        "gauge",
        ("alarm", "level", "node"),
        "When it began; while it is active.",
    ),
    # Machines, by samples of the last minute.
    Family(
        "kitae_node_sample_timestamp_seconds", "gauge", ("node", "source"), "When its newest sample ended."
    ),
    Family("kitae_core_utilisation_ratio", "gauge", _CORE, "Of a NeuronCore, GPU, or core of the CPU."),
    Family("kitae_core_memory_used_bytes", "gauge", _CORE, "Memory of the device that the core uses."),
    Family("kitae_core_memory_size_bytes", "gauge", _CORE, "Memory of the device that the core has."),
    Family("kitae_core_flops_per_second", "gauge", _CORE, "Floating-point operations, as the device counts."),
    Family("kitae_device_ecc_errors_total", "counter", (*_DEVICE, "kind"), "Corrected or uncorrected ones."),
    Family("kitae_device_temperature_celsius", "gauge", _DEVICE, "Of a chip or card."),
    Family("kitae_device_power_watts", "gauge", _DEVICE, "Of a chip or card."),
    Family("kitae_runtime_errors_total", "counter", ("node", "kind"), "Errors of runtimes, by kind."),
    Family("kitae_host_cpu_utilisation_ratio", "gauge", _NODE, "Of all cores of the CPU."),
    Family("kitae_host_memory_used_bytes", "gauge", _NODE, "Of the host."),
    Family("kitae_host_memory_size_bytes", "gauge", _NODE, "Of the host."),
    Family("kitae_host_swap_used_bytes", "gauge", _NODE, "Of the host."),
    Family("kitae_host_disk_free_bytes", "gauge", _NODE, "Of the disk that the run lies on."),
    Family("kitae_host_disk_size_bytes", "gauge", _NODE, "Of the disk that the run lies on."),
    Family("kitae_process_cpu_cores", "gauge", _PROCESS, "Cores of the CPU that a process keeps busy."),
    Family("kitae_process_memory_used_bytes", "gauge", _PROCESS, "On its devices, else of the host."),
    # The exporter.
    Family("kitae_exporter_runs", "gauge", (), "Runs that are exported.", of_run=False),
    Family("kitae_exporter_scrape_seconds", "gauge", (), "What reading them took.", of_run=False),
)
BY_NAME = {family.name: family for family in FAMILIES}
