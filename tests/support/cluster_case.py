"""A cluster file that is right, for tests that break it in one place."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from kitae.cluster.load import LoadedCluster, load_cluster

NOW = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
GOOD = """\
kitae_cluster: 1
name: llama
region: us-west-2
zone: usw2-az4
head:
  ssh_key: my-key
  allow_ssh_from: [203.0.113.7/32]
queues:
  - name: train
    instance: trn1.32xlarge
    max: 4
fsx:
  size_gb: 1200
limits:
  until: 12 hours
  max_cost_usd: 1100
"""


def write_cluster(folder: Path, text: str = GOOD) -> Path:
    """`cluster.yaml` in a folder."""
    path = folder / "cluster.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, *changes: str, text: str = GOOD) -> LoadedCluster:
    """The file, with `--set` flags over it."""
    return load_cluster(write_cluster(folder, text), changes)
