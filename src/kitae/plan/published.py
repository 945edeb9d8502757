"""Throughputs that a vendor published, as works that a plan can be made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from kitae.catalog import instance, preset
from kitae.catalog.reading import read_table
from kitae.model.config import DecoderConfig
from kitae.model.tables import parse_config
from kitae.plan.efficiency import Efficiency
from kitae.plan.machine import Machine, rented
from kitae.plan.step_time import step_time
from kitae.plan.work import FP32, Work

MACHINE = "trn1.32xlarge"
_CLASSES = {"architectures": ["BertForSequenceClassification"]}


@dataclass(frozen=True)
class Row:
    """One published throughput."""

    name: str
    work: Work
    machine: Machine
    rows_per_s: float
    release: str
    """Of the vendor's software."""

    def predicted(self, efficiency: Efficiency | None = None) -> float:
        """Sequences a second."""
        return self.work.global_rows / step_time(self.work, self.machine, efficiency).seconds


@cache
def published_rows() -> tuple[Row, ...]:
    """All of them."""
    table = read_table("published")
    return tuple(_row(entry, table["shapes"]) for entry in table["rows"])


def _row(entry: Mapping[str, Any], shapes: Mapping[str, Any]) -> Row:
    machine = rented(instance(entry.get("machine", MACHINE)), entry["nodes"])
    shape = shapes.get(entry["shape"], {"preset": entry["shape"], "config": {}})
    classes = _CLASSES if "classes" in entry else {}
    config = parse_config({**preset(shape["preset"]).config, **shape["config"], **classes})
    decoder = isinstance(config, DecoderConfig)
    cores = entry.get("processes", machine.nodes * machine.devices)
    tp, pp, length = entry.get("tp", 1), entry.get("pp", 1), entry["length"]
    work = Work(
        config=config,
        tied=config.tie_word_embeddings,
        objective="causal-lm" if decoder else "classification" if classes else "masked-lm",
        optimizer=entry.get("optimizer", "adamw"),
        precision=entry.get("precision", "bf16"),
        recompute=entry.get("recompute", "selective" if decoder else "none"),
        rows=entry.get("micro", 1),
        length=length,
        global_rows=entry["batch"],
        predictions=length if decoder else {128: 20, 512: 80}[length],
        chunk_tokens=512,
        hidden_dropout=entry.get("dropout", not decoder),
        attention_dropout=entry.get("dropout", not decoder),
        document_mask=False,
        tensor_parallel=tp,
        data_parallel=cores // (tp * pp),
        sequence_parallel=tp > 1,
        zero1=decoder,
        wire_bytes=FP32 if decoder or entry["precision"] != "bf16-sr" else 2,
        bucket_bytes=entry.get("bucket_bytes", 130_000_000),
        backend="xla",
        pipeline=pp,
        scores=entry.get("scores", "fused"),
        sum_bytes=entry.get("sum_bytes", FP32),
    )
    return Row(entry["name"], work, machine, entry["rows_per_s"], entry["release"])
