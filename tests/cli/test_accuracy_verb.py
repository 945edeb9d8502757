"""`kitae plan --accuracy`: the record of earlier plans, for people and for machines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from calibrated import ENTRY, FOUND

from kitae.cli.main import main
from kitae.plan import calibration, history
from kitae.plan.identity import identity


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KITAE_STATE", str(tmp_path))
    return tmp_path


def kept() -> None:
    calibration.save(replace(FOUND, machine=identity()))
    here = replace(ENTRY, machine=identity().key, load=0.0)
    predicted = {"step_s": 1.1, "step_s_low": 1.0, "step_s_high": 1.5, "memory_bytes": 1e9}
    history.append([here, replace(here, run="/runs/two", attempt=2, predicted=predicted)])


def test_the_record_is_shown(capsys: pytest.CaptureFixture):
    kept()
    assert main(["plan", "--accuracy"]) == 0
    out = capsys.readouterr().out
    for text in ("one", "two (2)", "decoder, fp32, 1", "-16.7%", "1.1 GB", "-9.1%", "1 of 1", "from 2"):
        assert text in out


def test_of_one_run_and_as_json(capsys: pytest.CaptureFixture):
    kept()
    assert main(["plan", "/runs/two", "--accuracy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (training,) = found["trainings"]
    assert training["inside"] is True
    assert training["errors"]["step_s"] == pytest.approx(1.1 / 1.32 - 1)
    (family,) = found["families"]
    assert family["key"]["family"] == "decoder"
    assert family["learned"]["runs"] == 2


def test_nothing_to_show_is_said(capsys: pytest.CaptureFixture):
    assert main(["plan", "--accuracy"]) == 2
    assert "holds nothing of any training" in capsys.readouterr().err
    kept()
    assert main(["plan", "runs/three", "--accuracy"]) == 2
    assert "holds nothing of runs/three" in capsys.readouterr().err


def test_a_recipe_is_asked_for_where_there_is_none(capsys: pytest.CaptureFixture):
    assert main(["plan"]) == 2
    assert "kitae plan RECIPE, or kitae plan --accuracy" in capsys.readouterr().err
