"""What a report says of runs in every state, and of damaged ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reported_runs import (
    HELDOUT,
    PROOF,
    attempt,
    evaluation,
    finished,
    metrics,
    recipe_values,
    results,
    start,
    update,
    write_card,
    write_reported,
)

from kitae.watch.report.blocks import Block, Chart, Fold, Listing, Report, Table, Words
from kitae.watch.report.contents import SECTIONS, report_of
from kitae.watch.report.run_view import RunView
from kitae.watch.report.verdict import is_proven

STAGES = finished()["run.json"]["stages"]


def told(run: Path) -> Report:
    return report_of([run], {})


def blocks(report: Report, key: str) -> list[Block]:
    found = [one for section in report.sections if section.key == key for one in section.blocks]
    return [inside for one in found for inside in (one.blocks if isinstance(one, Fold) else (one,))]


def words(report: Report, key: str) -> str:
    return "\n".join(one.text for one in blocks(report, key) if isinstance(one, Words))


def table(report: Report, key: str, caption: str) -> list[tuple[str, ...]]:
    return next(
        list(one.rows) for one in blocks(report, key) if isinstance(one, Table) and caption in one.caption
    )


def test_a_finished_run_in_one_sentence(tmp_path: Path):
    report = told(write_reported(tmp_path / "wee"))
    assert report.verdict == (
        "smollm2-135m (134.5 M parameters) was trained for 8 steps on 1,600 tokens in 4 min 36 s "
        "with all stages; its held-out loss fell from 3.2500 to 2.5000 (-0.7500 ± 0.0312 nats/token, "
        "23 of 24 rows better); "
        "its export is proven against transformers (logits within 5.5e-05); it cost $1.65."
    )
    assert report.tone == "good"
    tiles = {one.name: one.value for one in report.tiles}
    assert tiles["held-out loss"] == "3.2500 → 2.5000"
    assert (tiles["state"], tiles["steps"], tiles["tokens/s"]) == ("done", "8 of 8", "328.5")
    assert (tiles["time, all stages"], tiles["cost"], tiles["proof"]) == ("4 min 36 s", "$1.65", "passed")


@pytest.mark.parametrize(
    ("changes", "said", "tone"),
    [
        ({"mean_drop": 0.05, "loss_after": 3.2}, "did not clearly change, from 3.2500 to 3.2000", "warn"),
        ({"mean_drop": -0.5, "loss_after": 3.75}, "rose from 3.2500 to 3.7500 (+0.5000", "warn"),
        (
            {"accuracy_before": 0.25, "accuracy_after": 0.94},
            "its accuracy went from 25.0 % to 94.0 %",
            "good",
        ),
    ],
)
def test_whether_it_helped(tmp_path: Path, changes: dict[str, Any], said: str, tone: str):
    report = told(write_reported(tmp_path / "wee", results__json=results(heldout={**HELDOUT, **changes})))
    assert said in report.verdict
    assert report.tone == tone


@pytest.mark.parametrize(
    ("proof", "stages", "expected"),
    [
        (PROOF, STAGES, True),
        (None, STAGES, False),
        (PROOF, {"export": STAGES["export"]}, False),
        (PROOF, {**STAGES, "export": {"finished": "2026-11-30T19:30:00+00:00"}}, False),  # made anew since
        ({**PROOF, "differences": [2e-4, 0.0], "rounding": [0.0, 1e-4]}, STAGES, False),
        ({**PROOF, "differences": [2.9e-4, 0.0], "rounding": [1e-4, 0.0]}, STAGES, True),
    ],
)
def test_a_run_is_proven_by_the_proof_of_its_newest_export(tmp_path: Path, proof, stages, expected):
    run = write_reported(tmp_path, proof__json=proof, run__json={"attempts": [attempt()], "stages": stages})
    assert is_proven(RunView(run, jobs={})) is expected


def test_a_run_at_work(tmp_path: Path):
    lines = [
        start(steps=100),
        evaluation(0, 3.0),
        *(update(step) for step in range(1, 13)),
        evaluation(12, 2.0),
    ]
    run = write_reported(
        tmp_path / "wee",
        metrics__jsonl=lines,
        results__json=None,
        proof__json=None,
        run__json={"attempts": [attempt("running", host="elsewhere", job=7, nodes=["a", "b"])]},
    )
    report = told(run)
    assert "is in training at step 12 of 100" in report.verdict or "died at step 12 of 100" in report.verdict
    assert "its held-out loss fell from 3.0000 to 2.0000 by step 12 (-1.0000 nats/token)" in report.verdict
    assert "proven" not in report.verdict
    assert table(report, "result", "by step 12") == [("loss", "3.0000", "2.0000")]


def test_a_run_that_failed(tmp_path: Path):
    why = "the loss is not finite in step 5\n  rows 3 to 7"
    run = write_reported(
        tmp_path / "wee",
        results__json=None,
        metrics__jsonl=[start(), *(update(step) for step in range(1, 5))],
        run__json={"attempts": [attempt("stopped", why="a"), attempt("failed", why=why, steps_lost=4)]},
    )
    report = told(run)
    assert report.tone == "bad"
    assert "failed at step 4 of 8: the loss is not finite in step 5; its training loss went" in report.verdict
    assert report.sections[0].title == "What failed first"
    assert words(report, "failure") == f"attempt 2: {why}"
    rows = table(report, "attempts", "attempts")
    assert [(row[0], row[6], row[7], row[8]) for row in rows] == [
        ("1", "stopped", "–", "a"),
        ("2", "failed", "4", "the loss is not finite in step 5"),
    ]


def test_a_run_that_has_only_begun(tmp_path: Path):
    (tmp_path / "run.json").write_text('{"attempts": []}')
    report = told(tmp_path)
    assert report.verdict == ("a model has not been trained yet; there is no held-out loss to judge it by.")
    assert [one.key for one in report.sections] == []


def test_what_each_attempt_cost(tmp_path: Path):
    attempts = [
        attempt("stopped", price_per_node_hour=21.5, nodes=["n1", "n2", "n3", "n4", "n5"], job=9),
        attempt(cost_usd=3.25),
        attempt(),
    ]
    report = told(write_reported(tmp_path, run__json={"attempts": attempts, "stages": STAGES}))
    rows = table(report, "attempts", "attempts")
    assert [row[5] for row in rows] == ["$8.24", "$3.25", "–"]
    assert rows[0][3] == "job 9: n1, n2, n3, n4 and 1 more"
    assert words(report, "attempts").startswith("Together: 3 attempts, 13 min 48 s; $11.49 for nodes")


def test_plan_against_what_came(tmp_path: Path):
    rows = table(told(write_reported(tmp_path)), "plan", "attempt 1")
    assert rows[0] == ("time of an update", "500 ms", "400 ms to 800 ms", "625 ms", "-20.0 %", "yes")
    assert rows[1] == ("memory", "600 MB", "", "500 MB", "+20.0 %", "")
    assert rows[2] == ("waiting for a save", "–", "", "20 ms", "–", "")


def test_classes_by_their_names(tmp_path: Path):
    heldout = {
        **HELDOUT,
        "f1_before": [0.5, 0.0],
        "f1_after": [0.9315, 0.9462],
        "f1_macro_before": 0.25,
        "f1_macro_after": 0.9389,
        "confusion_matrix_after": [[34, 5], [0, 44]],
    }
    report = told(
        write_reported(
            tmp_path,
            results__json=results(heldout=heldout, objective="classification"),
            recipe__yaml=recipe_values(
                objective="classification", data={"labels": {"names": ["bad", "good"]}}
            ),
        )
    )
    assert table(report, "result", "F1") == [("bad", "0.5000", "0.9315"), ("good", "0.0000", "0.9462")]
    assert table(report, "result", "labels (rows)") == [("bad", "34", "5"), ("good", "0", "44")]
    assert "nats/text" in report.verdict


def test_phases_have_their_own_results_and_places(tmp_path: Path):
    lines = [
        start(),
        evaluation(0, 3.0, phase="short"),
        *(update(step, phase="short") for step in (1, 2, 3, 4)),
        evaluation(4, 2.5, phase="short"),
        evaluation(4, 2.75, phase="long"),
        *(update(step, phase="long") for step in (5, 6, 7, 8)),
        evaluation(8, 2.25, phase="long"),
    ]
    phases = [
        {"name": name, "heldout": {**HELDOUT, "loss_after": after}}
        for name, after in (("short", 2.5), ("long", 2.25))
    ]
    report = told(write_reported(tmp_path, metrics__jsonl=lines, results__json=results(phases=phases)))
    assert table(report, "result", "phase short")[0] == ("loss", "3.2500", "2.5000")
    assert table(report, "result", "phase long")[0] == ("loss", "3.2500", "2.2500")
    chart = next(one for one in blocks(report, "training") if isinstance(one, Chart))
    assert chart.marks == ((0.0, "short"), (4.0, "long"))
    assert [one.name for one in chart.traces] == ["training", "held out of short", "held out of long"]
    assert (list(chart.traces[2].xs), list(chart.traces[2].ys)) == ([4, 8], [2.75, 2.25])


def test_attempts_that_went_on_are_marked(tmp_path: Path):
    lines = [start(), update(1), update(2), start(2, attempt=2), update(3, first_step=True), update(4)]
    report = told(write_reported(tmp_path, metrics__jsonl=lines))
    charts = {one.key: one for one in blocks(report, "training") if isinstance(one, Chart)}
    assert charts["loss"].marks == ((2.0, "attempt 2"),)
    assert list(charts["throughput"].traces[0].xs) == [2, 4]  # without the updates that warm up


def test_ranks_by_their_time(tmp_path: Path):
    ranks = {"kind": "ranks", "step": 8, "compute_seconds": [0.5, 0.75], "nodes": ["a", "b"]}
    lines = [*metrics(), {**ranks, "slow": [{"rank": 1, "ratio": 1.5}]}]
    rows = table(told(write_reported(tmp_path, metrics__jsonl=lines)), "training", "ranks")
    assert rows == [("rank 1", "b", "750 ms", "slow: 1.50 x"), ("rank 0", "a", "500 ms", "")]


def test_the_data_card(tmp_path: Path):
    card = write_card(tmp_path / "data")
    state = {"attempts": [attempt()], "stages": {**STAGES, "prepare": {"folder": str(card)}}}
    report = told(write_reported(tmp_path / "wee", run__json=state))
    assert table(report, "data", "what the model gets")[0] == ("documents", "80", "12")
    assert table(report, "data", "where the text was when it was prepared") == [
        ("/data/text", "train", "1", "8.79 kB", "80", "3", "1")
    ]
    said = words(report, "data")
    assert "Warning: 1 bad lines were left out." in said
    assert "Training documents that are held out, too: 2." in said


def test_a_card_that_is_elsewhere_is_said_to_be(tmp_path: Path):
    state = {"attempts": [attempt()], "stages": {"prepare": {"folder": "/no/where"}}}
    said = words(told(write_reported(tmp_path, run__json=state)), "data")
    assert said == "the data card is not on this machine: it was /no/where/card.json."


def test_scaling_that_was_measured(tmp_path: Path):
    run = write_reported(tmp_path)
    series = {"name": "measured", "x": [1, 2], "y": [1.0, 0.9], "low": [1.0, 0.85], "high": [1.0, 0.95]}
    spread = {"median": 0.9, "low": 0.85, "high": 0.95}
    scale = {
        "kitae_scale": 1,
        "unit": "workers",
        "verdict": "up to 2 workers above 80 %",
        "widths": [
            {"width": 2, "efficiency": spread, "step_s": {"median": 0.5}, "communication": {"mean": 0.1}}
        ],
        "plot": {"title": "strong scaling", "x_label": "workers", "series": [series]},
    }
    (run / "scale/strong").mkdir(parents=True)
    (run / "scale/strong/scale.json").write_text(json.dumps(scale))
    report = told(run)
    assert words(report, "scaling") == "up to 2 workers above 80 %"
    row = table(report, "scaling", "strong")[0]
    assert row == ("2", "90.0 %", "85.0 % to 95.0 %", "500 ms", "10.0 %", "–", "–", "")
    chart = next(one for one in blocks(report, "scaling") if isinstance(one, Chart))
    assert (chart.doubling, chart.traces[0].low) == (True, [1.0, 0.85])


@pytest.mark.parametrize("name", [*(name for name in finished() if name.endswith(".json")), "recipe.yaml"])
@pytest.mark.parametrize(
    "content", ["{broken", "[1]", '{"attempts": 3, "heldout": 3, "estimate": []}', "", "\x00\xff"]
)
def test_a_damaged_file_leaves_a_gap(tmp_path: Path, name: str, content: str):
    report = told(write_reported(tmp_path, **{name: content}))
    assert report.verdict
    assert any(isinstance(one, Chart) for one in blocks(report, "training"))
    if content == "{broken" and name != "recipe.yaml":
        assert f"{name} is damaged and left out" in words(report, "gaps").replace(name.capitalize(), name)


def test_damaged_lines_are_counted(tmp_path: Path):
    text = "".join(json.dumps(line) + "\n" for line in metrics())
    run = write_reported(tmp_path, metrics__jsonl=f"nonsense\n{text}{{\x00\n{text[:20]}")
    report = told(run)
    assert words(report, "gaps") == "Metrics.jsonl: 2 lines are damaged and left out."
    chart = next(one for one in blocks(report, "training") if isinstance(one, Chart))
    assert list(chart.traces[0].xs) == list(range(1, 9))


def test_samples_and_environment(tmp_path: Path):
    report = told(write_reported(tmp_path))
    texts = [one.text for one in blocks(report, "samples") if isinstance(one, Listing)]
    assert texts == ["Debian はくらくら", "Debian は自由"]
    rows = dict(table(report, "environment", "where it ran"))
    assert (rows["torch"], rows["transformers"], rows["machines"]) == ("2.13.0+cpu", "5.24.0", "node-1")


def test_every_section_has_its_own_key():
    keys = [key for key, _, _ in SECTIONS]
    assert len(keys) == len(set(keys))
