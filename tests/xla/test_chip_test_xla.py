"""The chip test on torch-xla, with the CPU as its device: what a Trn1 would be asked, as far as it goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kitae.backend.table import select
from kitae.doctor.chip import work
from kitae.doctor.chip.cases import CASES, job_of
from kitae.doctor.chip.judge import judge_rounding
from kitae.doctor.chip.recorded import difference, losses_of, recorded, tolerance
from kitae.parallel.mesh import Mesh
from kitae.train.loop import train

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla


def test_a_decoder_has_the_recorded_losses_of_a_cpu(tmp_path: Path):
    train(job_of(CASES["decoder"], tmp_path, select("xla"), "fp32"))
    assert difference(losses_of(tmp_path), recorded()["decoder"]) <= tolerance("cpu", "fp32")


def test_how_it_rounds(tmp_path: Path):
    work.rounding(Mesh(), "xla", str(tmp_path))
    found = judge_rounding(json.loads((tmp_path / "rounding.json").read_text()), chip=False)
    assert found.text == "the device rounds to the nearest; kitae's keyed rounding by chance"
