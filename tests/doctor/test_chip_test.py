"""The chip test on a CPU: its trainings, its parts, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch.nn import functional as F

from kitae.backend.cpu import CpuBackend
from kitae.backend.table import select
from kitae.cli.main import main
from kitae.doctor.chip import run, work
from kitae.doctor.chip.cases import CASES, STEPS, job_of
from kitae.doctor.chip.exchange import bus_gb_per_s
from kitae.doctor.chip.judge import Result, judge_attention, judge_resume, judge_rounding
from kitae.doctor.chip.recipe import write_recipe
from kitae.doctor.chip.recorded import difference, losses_of, recorded, tolerance
from kitae.doctor.chip.run import Bench, chip_test
from kitae.errors import StoppedError, TrainingError
from kitae.model.attention import OwnKernel
from kitae.model.neuron_attention import _with_own_layout
from kitae.parallel.mesh import Mesh
from kitae.recipe.load import load_recipe
from kitae.train.loop import train


@pytest.mark.parametrize("name", CASES)
def test_a_cpu_has_the_recorded_losses(name: str, tmp_path: Path):
    train(job_of(CASES[name], tmp_path, select("cpu"), "fp32"))
    found = losses_of(tmp_path)
    assert len(found) == STEPS + 2
    assert difference(found, recorded()[name]) <= tolerance("cpu", "fp32")
    assert found[-1] < found[0]


def test_rounding_and_resume_on_a_cpu(tmp_path: Path):
    work.rounding(Mesh(), "cpu", str(tmp_path))
    found = judge_rounding(json.loads((tmp_path / "rounding.json").read_text()), chip=False)
    assert found.text == "the device rounds to the nearest; kitae's keyed rounding by chance"
    work.resume(Mesh(), "cpu", str(tmp_path))
    resumed = json.loads((tmp_path / "resume.json").read_text())
    assert judge_resume(resumed).verdict == "passed"
    assert (resumed["resumed_from"], resumed["files"]) == (STEPS // 2, 3)


@pytest.mark.parametrize("scale", [None, 0.125, 1.0])
def test_a_kernel_beside_the_plain_form(scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The SDK's is played by torch's own; with another scale of the scores it is found out."""
    monkeypatch.setattr(work, "stack_here", lambda backend: "trn1-xla")
    monkeypatch.setattr(work, "LENGTH_MULTIPLE", 64)

    def kernel(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)

    monkeypatch.setattr(work, "SOURCES", {"trn1-xla": lambda: OwnKernel(_with_own_layout(kernel))})
    work.attention(Mesh(), "cpu", str(tmp_path))
    found = judge_attention(json.loads((tmp_path / "attention.json").read_text()))
    assert found.verdict == ("failed" if scale == 1.0 else "passed"), found


def test_a_kernel_that_is_not_there_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(work, "stack_here", lambda backend: "trn1-xla")
    work.attention(Mesh(), "cpu", str(tmp_path))
    found = judge_attention(json.loads((tmp_path / "attention.json").read_text()))
    assert (found.verdict, "is not there" in found.text) == ("left out", True)
    assert run._attention(Bench("cpu", "cpu", 2, tmp_path)).verdict == "left out"


def test_two_ranks_exchange_data(tmp_path: Path):
    found = run._collectives(Bench("cpu", "cpu", 2, tmp_path))
    assert found.verdict == "passed"
    assert {row[0] for row in found.rows} == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    assert all(one["seconds"] > 0 and one["bus_gb_per_s"] > 0 for one in found.found["times"])


def test_one_process_has_nobody_to_talk_to(tmp_path: Path):
    assert run._collectives(Bench("xla", "xla-cpu", 1, tmp_path)).verdict == "left out"


def test_bus_bandwidth():
    """Of all-reduce each byte goes out and comes back, but for a rank's own part."""
    assert bus_gb_per_s("all_reduce", 10**9, 1.0, 4) == 1.5
    assert bus_gb_per_s("all_gather", 10**9, 0.5, 4) == 1.5


def broken(bench: Bench) -> Result:
    raise TrainingError("rank 0 died")


def stopped(bench: Bench) -> Result:
    raise StoppedError("asked to")


def fit(bench: Bench) -> Result:
    return Result("passed", "fit")


def page(folder: Path) -> dict[str, str]:
    parts = json.loads((folder / "chip-test.json").read_text())["parts"]
    return {name: one["verdict"] for name, one in parts.items()}


def test_what_fails_is_told_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run, "PARTS", {"one": broken, "two": fit})
    told: list[str] = []
    chip_test(CpuBackend, tmp_path, told.append)
    assert page(tmp_path) == {"one": "failed", "two": "passed"}
    assert "one: failed: TrainingError: rank 0 died" in told


@pytest.mark.parametrize("how", [stopped, "interrupt"])
def test_a_stop_leaves_the_page_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how):
    def interrupted(bench: Bench) -> Result:
        raise KeyboardInterrupt

    test = interrupted if how == "interrupt" else how
    monkeypatch.setattr(run, "PARTS", {"one": fit, "two": test, "three": fit})
    with pytest.raises((StoppedError, KeyboardInterrupt)):
        chip_test(CpuBackend, tmp_path, lambda line: None)
    assert page(tmp_path) == {"one": "passed", "two": "not reached", "three": "not reached"}


def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(run, "PARTS", {"one": fit})
    assert main(["doctor", "--chip-test", "--backend", "cpu", "--out", str(tmp_path / "a"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"]["one"]["verdict"] == "passed"
    monkeypatch.setattr(run, "PARTS", {"one": broken})
    assert main(["doctor", "--chip-test", "--backend", "cpu", "--out", str(tmp_path / "b")]) == 1
    assert "one: failed" in capsys.readouterr().out
    assert main(["doctor", "--chip-test", "--backend", "tpu", "--out", str(tmp_path / "c")]) == 2
    assert main(["doctor", "--chip-test", "--target", "cpu"]) == 2
    assert main(["doctor", "--out", str(tmp_path / "c")]) == 2
    assert "give --chip-test, too" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").touch()
    assert main(["doctor", "--chip-test", "--backend", "cpu", "--out", str(tmp_path / "file")]) == 7
    assert f"error: cannot save to {tmp_path / 'file'}: Not a directory" in capsys.readouterr().err


def test_what_lies_beside_the_page_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run, "PARTS", {"one": fit})
    (tmp_path / "work").mkdir()
    (tmp_path / "work/thesis").write_text("mine")
    chip_test(CpuBackend, tmp_path, lambda line: None)
    assert (tmp_path / "work/thesis").read_text() == "mine"


def test_its_recipe_is_one(tmp_path: Path):
    recipe = load_recipe(write_recipe(tmp_path, "cpu")).recipe
    assert (recipe.model.preset, recipe.target.backend) == ("llama-tiny", "cpu")
