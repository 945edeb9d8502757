"""A calibration of a machine that nobody has."""

from __future__ import annotations

from kitae.plan.calibration import Calibration, ProductSpeed, Speeds
from kitae.plan.history import Entry
from kitae.plan.identity import Identity

MACHINE = Identity("a processor", 4, 4, 16, "2.13.0")
FOUND = Calibration(
    machine=MACHINE,
    made="2026-11-30T22:00:00+00:00",
    took_s=40.0,
    speeds=(
        Speeds("fp32", 4, 1, {"product.flop": 1e-12, "product.call": 1e-5}, 0.05, 0.02),
        Speeds("fp32", 2, 2, {"product.flop": 2e-12, "product.call": 2e-5}, 0.05, 0.02),
        Speeds("bf16", 4, 1, {"product.flop": 5e-13}, 0.05, 0.02),
    ),
    products=(
        ProductSpeed("fp32", 4, 512, 256, 256, 4e11, 0.02),
        ProductSpeed("fp32", 4, 64, 64, 64, 1e11, 0.02),
        ProductSpeed("bf16", 4, 512, 256, 256, 8e11, 0.02),
    ),
    memory_bytes_per_s=3e10,
    pass_bytes_per_s=1e11,
    collective_floor_s=2e-4,
    collective_bytes_per_s=3e9,
    disk_write_bytes_per_s=3e8,
    disk_sync_s=5e-3,
    disk_read_bytes_per_s=1e10,
    hash_bytes_per_s=1.8e9,
)

ENTRY = Entry(
    time="2026-11-30T22:30:00+00:00",
    run="/runs/one",
    attempt=1,
    phase=None,
    machine=MACHINE.key,
    family="decoder",
    precision="fp32",
    ranks=1,
    cut=1,
    threads=4,
    steps=20,
    counts={"product.flop": 1e12, "product.call": 1e4},
    predicted={"step_s": 1.0, "memory_bytes": 1e9},
    actual={"step_s": 1.32, "memory_bytes": 1.1e9},
    load=1.0,
)
"""A training whose updates are 1 s of products and 0.1 s of calls, and took 1.2 times as long."""
