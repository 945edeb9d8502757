"""A training that is watched: it learns the same to the bit, and alarms go into its log and its run.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from job_case import kitae

from kitae.stages.job import open_job
from kitae.stages.watching import KEPT, AlarmLog, sampler_of
from kitae.watch.alarms import read_alarms
from kitae.watch.samples import read_samples


def told(run: Path) -> list[tuple[Any, ...]]:
    """What was learned, exactly."""
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    names = ("kind", "step", "loss", "grad_norm", "learning_rate")
    return [tuple(one.get(name) for name in names) for one in records if one["kind"] != "start"]


def test_watching_changes_nothing_of_what_is_learned(case: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    fast = ("--set", "watch.period_s=0.2", "--set", "watch.alarms.idle_minutes=0.001")
    assert kitae("train", "recipe.yaml", *fast) == 0
    assert kitae("train", "recipe.yaml", "--set", "name=alone", "--set", "watch.record=false") == 0
    watched, alone = case / "runs/tiny", case / "runs/alone"
    assert told(watched) == told(alone)
    assert len(told(watched)) > 6
    names = [path.name for path in (watched / "checkpoints/step-00000006").glob("weights-*")]
    assert names
    for name in names:
        path = f"checkpoints/step-00000006/{name}"
        assert (watched / path).read_bytes() == (alone / path).read_bytes()
    (samples,) = read_samples(watched).values()
    assert samples[-1].processes[0].tag == "training"
    assert not (alone / "devices").exists()


def test_a_loss_that_is_not_finite_is_an_alarm(case: Path, capsys: pytest.CaptureFixture):
    wild = ("--set", "optimizer.learning_rate=1e30", "--set", "optimizer.max_grad_norm=null")
    assert kitae("train", "recipe.yaml", *wild) == 5
    run = case / "runs/tiny"
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["kind"] == "not-finite"
    (kept,) = [
        one for one in json.loads((run / "run.json").read_text())["alarms"] if one["level"] == "critical"
    ]
    assert (kept["name"], kept["attempt"], kept["what"], kept["ended"]) == (
        "non-finite-loss",
        1,
        last["what"],
        None,
    )
    line = f"alarm: non-finite-loss (critical): {last['what']}"
    assert line in capsys.readouterr().out
    assert line in (run / "logs/rank-0.log").read_text()
    assert [one.name for one in read_alarms(run)] == ["non-finite-loss"], "until the next attempt begins"


def alarm(**values: Any) -> dict[str, Any]:
    one = {"name": "slow-rank", "level": "warning", "what": "rank 3", "since": 1_796_065_200.0}
    return {**one, "node": "n2", "until": None, **values}


def hear(log: AlarmLog, event: str, aloud: bool = True, **values: Any) -> None:
    log.hear(json.dumps({"event": event, "aloud": aloud, "alarm": alarm(**values)}))


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def log(case: Path, lines: list[str]) -> AlarmLog:
    job = open_job(case / "recipe.yaml", report=lines.append)
    job.run.path.mkdir(parents=True)
    return AlarmLog(job)


def recorded(case: Path) -> list[dict[str, Any]]:
    return json.loads((case / "runs/tiny/run.json").read_text())["alarms"]


def test_an_alarm_stands_in_run_json_once_with_its_end(case: Path, log: AlarmLog, lines: list[str]):
    hear(log, "began")
    hear(log, "worse", level="critical")
    hear(log, "ended", level="critical", until=1_796_065_260.0)
    assert recorded(case) == [
        {
            "attempt": 0,
            "name": "slow-rank",
            "level": "critical",
            "node": "n2",
            "what": "rank 3",
            "began": "2026-11-30T19:00:00+00:00",
            "ended": "2026-11-30T19:01:00+00:00",
        }
    ]
    assert lines == [
        "alarm: slow-rank (warning) on n2: rank 3",
        "alarm: slow-rank (critical) on n2: rank 3",
        "alarm over: slow-rank (critical) on n2: rank 3",
    ]


def test_one_that_is_not_told_aloud_is_only_kept(case: Path, log: AlarmLog, lines: list[str]):
    hear(log, "began", aloud=False, node=None)
    assert (len(recorded(case)), lines) == (1, [])


def test_no_more_are_kept_than_is_said(case: Path, log: AlarmLog):
    for number in range(KEPT + 5):
        hear(log, "began", since=1_796_065_200.0 + number)
    assert len(recorded(case)) == KEPT
    assert recorded(case)[0]["began"] == "2026-11-30T19:00:05+00:00"


def test_a_note_goes_into_the_log(log: AlarmLog, lines: list[str]):
    log.hear(json.dumps({"note": "watch.alarms.webhook could not be told"}))
    assert lines == ["watch: watch.alarms.webhook could not be told"]


def test_the_nodes_of_a_job_are_told_nothing_that_is_secret(case: Path):
    """It stands in the attempt's folder; where alarms are told, only the leading process knows."""
    job = open_job(case / "recipe.yaml", ["watch.alarms.webhook=https://hooks.example/secret"])
    helper = sampler_of(job)
    assert helper is not None
    assert helper.settings == {"run": str(job.run.path), "backend": "cpu", "period_s": 5.0}


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        (
            ["watch.record=false", "watch.alarms.idle_minutes=3"],
            "watch.alarms: has no effect with watch.record",
        ),
        (["watch.alarms.budget_usd=5"], "watch.alarms.budget_usd: has no effect without target.price_per"),
        (["watch.alarms.budget_usd=5", "target.price_per_node_hour=2"], None),
    ],
)
def test_what_has_no_effect_is_said(case: Path, changes: list[str], warning: str | None):
    found = [
        one for one in open_job(case / "recipe.yaml", changes).warnings if one.startswith(("watch", "target"))
    ]
    assert [one[: len(warning or "")] for one in found] == ([warning] if warning else [])


@pytest.mark.parametrize("address", ["hooks.example", "$", "ftp://there/x", "$1A"])
def test_what_is_no_address_is_refused(case: Path, address: str, capsys: pytest.CaptureFixture):
    assert kitae("train", "recipe.yaml", "--set", f"watch.alarms.webhook={address}") == 2
    assert "is no address; write https://" in capsys.readouterr().err
