"""What a chip test found, judged, and the page that it becomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kitae.doctor.chip.judge import (
    Result,
    judge_attention,
    judge_collectives,
    judge_losses,
    judge_precompile,
    judge_resume,
    judge_rounding,
    kind_of,
)
from kitae.doctor.chip.page import markdown, write_page
from kitae.doctor.chip.recorded import difference, tolerance


def times(**changes: object) -> dict[str, object]:
    row = {"collective": "all_reduce", "bytes": 1 << 20, "seconds": 0.002, "bus_gb_per_s": 0.5, **changes}
    return {"ranks": 32, "wrong": [], "times": [row]}


def test_collectives():
    found = judge_collectives(times())
    assert (found.verdict, found.rows) == ("passed", (("all_reduce", "1,048,576", "2,000", "0.50"),))
    assert "over 32 ranks; all_reduce reaches 0.50 GB/s" in found.text
    bad = judge_collectives({**times(), "wrong": ["all_gather"]})
    assert (bad.verdict, bad.text) == ("failed", "wrong values over 32 ranks: all_gather")


def test_differences_and_what_is_allowed():
    assert difference([2.0, 4.0], [2.0, 4.0]) == 0.0
    assert difference([2.0, 4.4], [2.0, 4.0]) == pytest.approx(0.1)
    assert difference([2.0], [2.0, 4.0]) == float("inf")
    assert tolerance("cpu", "fp32") < tolerance("xla-cpu", "fp32") < tolerance("trn1-xla", "fp32")
    assert tolerance("cpu", "bf16") == tolerance("trn1-xla", "bf16") == 1e-2


def test_losses():
    expected = {"decoder": [5.0, 4.0], "encoder with dropout": [6.0, 5.0]}
    good = {"decoder fp32": {"losses": [5.0, 4.00001]}, "encoder with dropout fp32": {"losses": [6.0, 5.0]}}
    assert judge_losses(good, expected, "cpu").text == "2 trainings have the losses of a CPU"
    bad = {**good, "decoder bf16": {"losses": [5.0, float("nan")]}}
    found = judge_losses(bad, expected, "cpu")
    assert (found.verdict, found.text) == ("failed", "not as on a CPU: decoder bf16")
    broken = {
        "decoder fp32": {"trouble": "RuntimeError: no"},
        "encoder with dropout fp32": good["decoder fp32"],
    }
    found = judge_losses(broken, expected, "trn1-xla")
    assert found.text == "not as on a CPU: decoder fp32, encoder with dropout fp32"
    assert found.rows[0] == ("decoder fp32", "RuntimeError: no", "", "")


@pytest.mark.parametrize(
    ("part", "mean", "variance", "kind"),
    [
        (0.25, 0.0, 0.0, "to the nearest"),
        (0.75, 1.0, 0.0, "to the nearest"),
        (0.5, 0.0, 0.0, "to the nearest"),
        (0.25, 0.2512, 0.1881, "by chance"),
        (0.25, 0.30, 0.21, "in another way"),
        (0.75, 0.0, 0.0, "in another way"),
        (0.25, 0.25, 0.0, "in another way"),
    ],
)
def test_how_values_were_rounded(part: float, mean: float, variance: float, kind: str):
    assert kind_of(part, mean, variance, 1 << 16) == kind


def rounded(device: tuple[float, float], keyed: tuple[float, float] = (0.25, 0.1875)) -> dict[str, object]:
    ways = {"device": device, "keyed": keyed}
    rows = [{"way": way, "part": 0.25, "mean": mean, "variance": wide} for way, (mean, wide) in ways.items()]
    return {"count": 1 << 16, "rows": rows}


def test_rounding():
    """A chip that was told to must round by chance; elsewhere kitae's own rounding has to."""
    nearest, chance = (0.0, 0.0), (0.25, 0.1875)
    assert judge_rounding(rounded(nearest), chip=False).verdict == "passed"
    assert judge_rounding(rounded(nearest), chip=True).verdict == "failed"
    assert judge_rounding(rounded(chance), chip=True).verdict == "passed"
    assert judge_rounding(rounded(nearest, keyed=nearest), chip=False).verdict == "failed"
    trouble = {"count": 4, "rows": [{"way": "device", "part": 0.25, "trouble": "no cast"}]}
    found = judge_rounding(trouble, chip=True)
    assert (found.verdict, found.rows[0][2]) == ("failed", "no cast")


def test_the_attention_kernel():
    near = {"length": 2048, "differences": {"output": 4e-3, "gradient of keys": 1e-2}}
    found = judge_attention(near)
    assert (found.verdict, found.rows[0]) == ("passed", ("output", "4.0e-03", "2e-02"))
    for far in (0.3, float("nan")):
        bad = judge_attention({**near, "differences": {"output": 4e-3, "gradient of keys": far}})
        assert (bad.verdict, bad.text) == ("failed", "not as the plain form: gradient of keys")
    assert judge_attention({"missing": "it is not there"}).verdict == "left out"


def test_resume_and_precompile():
    good = {"resumed_from": 6, "files": 3, "same_files": True, "same_losses": True}
    assert judge_resume(good).verdict == "passed"
    for change in ({"same_files": False}, {"same_losses": False}, {"resumed_from": None}):
        assert judge_resume({**good, **change}).verdict == "failed"
    assert judge_precompile(0, "a\n\nprecompile: complete\n").text == "precompile: complete"
    assert judge_precompile(9, "missing: x\n").text == "exit code 9: missing: x"
    assert judge_precompile(1, "").text == "exit code 1: it said nothing"


def test_the_page(tmp_path: Path):
    results = {
        "rounding": Result("passed", "by chance", ("a", "b"), (("1", "x|y"),), {"count": 2}, 3.4),
        "losses": Result("not reached", "the test was stopped before"),
    }
    page = write_page(tmp_path, {"machine": "trn1.2xlarge"}, results)
    text = page.read_text()
    assert text == markdown({"machine": "trn1.2xlarge"}, results)
    assert "| rounding | passed | by chance | 3 s |" in text
    assert "| 1 | x\\|y |" in text
    assert "| losses | not reached | the test was stopped before | 0 s |" in text
    found = json.loads((tmp_path / "chip-test.json").read_text())
    assert found["parts"]["rounding"]["found"] == {"count": 2}
    assert found["machine"] == {"machine": "trn1.2xlarge"}
