"""Each rule: what it finds, and what it does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from neuron_stream import BEGUN_S, GIB, idle, report, sample_of, training

from kitae.train.pace import EVERY, WINDOW, slow_ranks
from kitae.watch.alarm_rules import RULES, Finding, Limits, Sight
from kitae.watch.reading import Readings
from kitae.watch.samples import CoreSample, ProcessSample, Sample
from kitae.watch.trends import Idle, LossTrend, idle_after

NODE = "queue1-st-trn1-1"


def write(run: Path, *records: dict[str, object]) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in records)


def update(step: int, loss: float, **more: object) -> dict[str, object]:
    return {"kind": "train", "step": step, "loss": loss, "step_seconds": 1.0, **more}


def sight(run: Path, **values: object) -> Sight:
    readings = Readings(run)
    readings.refresh()
    limits = values.pop("limits", Limits())
    return Sight(BEGUN_S, limits, readings, LossTrend().take(readings), **values)  # type: ignore[arg-type]


def found(name: str, seen: Sight) -> list[Finding]:
    return list(RULES[name](seen))


def idle_for(minutes: float, busy=idle, below: float = 0.02) -> Idle | None:
    stretch, told = None, report(busy=busy)
    for number in range(round(minutes * 12)):
        stretch = idle_after(stretch, sample_of(told, NODE, BEGUN_S + 5 * (number + 1)), below)
    return stretch


def test_every_rule_has_its_alarm():
    assert list(RULES) == [
        "idle-while-paid",
        "non-finite-loss",
        "rising-loss",
        "slow-rank",
        "disk-nearly-full",
        "budget-at-80-percent",
    ]


def test_a_run_of_which_nothing_is_known_is_well(tmp_path: Path):
    assert [one for rule in RULES.values() for one in rule(sight(tmp_path))] == []


def test_32_idle_cores_for_10_minutes_are_paid_for_nothing(tmp_path: Path):
    """T59: 32 cores, all at 0.0 for 10 minutes while the job runs; 9 minutes and 55 seconds are too few."""
    stretch = idle_for(10)
    assert stretch == Idle(BEGUN_S, BEGUN_S + 600, 32)
    (alarm,) = found(
        "idle-while-paid", sight(tmp_path, idle={NODE: stretch}, price_per_hour=2 * 21.5, nodes=2)
    )
    assert (alarm.level, alarm.node, alarm.since) == ("critical", NODE, BEGUN_S)
    assert "none of the 32 cores has done anything for 10 minutes, which cost $3.58:" in alarm.what
    assert found("idle-while-paid", sight(tmp_path, idle={NODE: idle_for(10 - 1 / 12)})) == []


def test_without_a_price_idle_cores_are_told_of_all_the_same(tmp_path: Path):
    (alarm,) = found("idle-while-paid", sight(tmp_path, idle={NODE: idle_for(10)}))
    assert "cost" not in alarm.what


def test_one_core_that_works_is_enough():
    assert idle_for(1, training) is None
    assert idle_for(1, lambda number, core: 80.0 if core == 31 else 0.0) is None


def test_a_sample_with_work_ends_the_stretch():
    stretch = idle_for(5)
    assert idle_after(stretch, sample_of(report(), NODE, BEGUN_S + 305), 0.02) is None


def test_the_same_sample_again_changes_nothing():
    stretch = idle_for(5)
    assert idle_after(stretch, sample_of(report(busy=idle), NODE, BEGUN_S + 300), 0.02) == stretch


def test_of_a_gap_nobody_knows():
    late = sample_of(report(busy=idle), NODE, BEGUN_S + 600)
    assert idle_after(idle_for(5), late, 0.02) == Idle(BEGUN_S + 595, BEGUN_S + 600, 32)


def test_cores_that_tell_nothing_are_not_idle():
    assert idle_after(None, Sample(5.0, 5.0, "nvml", "one", cores=(CoreSample(0),)), 0.02) is None
    assert idle_after(None, Sample(5.0, 5.0, "neuron-monitor", "one"), 0.02) is None


@pytest.mark.parametrize(("own", "others", "rests"), [(0.0, 0.9, True), (0.5, 0.0, False)])
def test_on_a_cpu_the_processes_of_the_training_count(own: float, others: float, rests: bool):
    processes = (ProcessSample(1, "launcher", 0.0), ProcessSample(2, "rank 0", own))
    sample = Sample(5.0, 5.0, "host", "one", cores=(CoreSample(0, others),), processes=processes)
    assert (idle_after(None, sample, 0.02) is not None) == rests


def test_the_last_words_of_a_training_that_is_not_finite(tmp_path: Path):
    line = {"kind": "not-finite", "step": 6, "what": "step 7: the loss is not finite"}
    (alarm,) = found("non-finite-loss", sight(tmp_path, last_line=line))
    assert (alarm.level, alarm.what) == ("critical", "step 7: the loss is not finite")
    assert found("non-finite-loss", sight(tmp_path, last_line=update(8, 2.0))) == []


def losses(run: Path, *values: float, phase: str | None = None, first: int = 1) -> None:
    more = {} if phase is None else {"phase": phase}
    write(run, *(update(first + index, loss, **more) for index, loss in enumerate(values)))


def test_a_loss_that_rises_by_more_than_a_fifth(tmp_path: Path):
    losses(tmp_path, *[2.0] * 50, *[2.5] * 50)
    (alarm,) = found("rising-loss", sight(tmp_path))
    assert alarm.level == "warning"
    assert alarm.what.startswith(
        "the loss, 2.5000 over the last updates, is 25 % above the lowest, 2.0000: lower"
    )
    assert found("rising-loss", sight(tmp_path, limits=Limits(loss_rise=0.3))) == []


def test_a_loss_that_doubles_is_critical(tmp_path: Path):
    losses(tmp_path, *[2.0] * 50, *[4.1] * 50)
    assert [one.level for one in found("rising-loss", sight(tmp_path))] == ["critical"]


def test_a_loss_that_falls_or_jumps_about_is_well(tmp_path: Path):
    losses(tmp_path, *[8 * 0.99**step for step in range(200)], *[1.0, 1.6] * 100)
    assert found("rising-loss", sight(tmp_path)) == []


def test_another_phase_is_another_course(tmp_path: Path):
    losses(tmp_path, *[2.0] * 60, phase="short")
    losses(tmp_path, *[3.0] * 60, phase="long", first=61)
    assert found("rising-loss", sight(tmp_path)) == []
    losses(tmp_path, *[4.0] * 60, phase="long", first=121)
    assert len(found("rising-loss", sight(tmp_path))) == 1


def test_the_course_is_the_same_read_at_once_or_as_it_grows(tmp_path: Path):
    readings, trend = Readings(tmp_path), LossTrend()
    for part in range(8):
        losses(tmp_path, *(2.0 + 0.01 * part + 0.001 * step for step in range(40)), first=1 + 40 * part)
        readings.refresh()
        trend.take(readings)
    whole = LossTrend().take(readings)
    assert (trend.lowest, trend.mean, trend.rise()) == (whole.lowest, whole.mean, whole.rise())
    assert trend.mean == pytest.approx(2.085 - 0.002, abs=0.02)


def test_a_resumed_run_forgets_what_did_not_happen(tmp_path: Path):
    readings, trend = Readings(tmp_path), LossTrend()
    losses(tmp_path, *[2.0] * 50, *[9.0] * 50)
    readings.refresh()
    assert trend.take(readings).rise() == 3.5
    (tmp_path / "new").mkdir()
    losses(tmp_path / "new", *[2.0] * 60)
    (tmp_path / "new/metrics.jsonl").replace(tmp_path / "metrics.jsonl")
    readings.refresh()
    assert trend.take(readings).rise() is None


def ranks(step: int, *slow: tuple[int, float]) -> dict[str, object]:
    told = [{"rank": rank, "ratio": ratio} for rank, ratio in slow]
    return {
        "kind": "ranks",
        "step": step,
        "compute_seconds": [1.0] * 4,
        "nodes": ["a", "a", "b", "b"],
        "slow": told,
    }


def test_slow_ranks_are_told_by_node(tmp_path: Path):
    write(tmp_path, {"kind": "start", "step": 0}, ranks(10, (3, 1.52), (0, 1.4), (2, 1.31)))
    first, second = found("slow-rank", sight(tmp_path))
    assert (first.node, second.node, first.level) == ("b", "a", "warning")
    assert first.what.startswith("rank 3 (1.52 x) and rank 2 (1.31 x) compute longer than the others")
    write(tmp_path, ranks(20))
    assert found("slow-rank", sight(tmp_path)) == []


def test_ranks_of_the_attempt_before_are_forgotten(tmp_path: Path):
    write(tmp_path, {"kind": "start", "step": 0}, ranks(10, (3, 1.5)), {"kind": "start", "step": 10})
    assert found("slow-rank", sight(tmp_path)) == []


@pytest.mark.parametrize(("factor", "named"), [(1.5, ["b"]), (1.0, [])])
def test_a_rank_that_takes_half_as_long_again_is_named_within_20_steps(
    tmp_path: Path, factor: float, named: list[str]
):
    """T51 on a log: rank 2 of four takes 1.5 x as long; in the clean log nobody is named."""
    times = [[1.0, 1.01, factor, 0.99 + 0.001 * (step % 3)] for step in range(WINDOW)]
    for step in range(EVERY, WINDOW + 1, EVERY):
        write(tmp_path, ranks(step, *((one.rank, one.ratio) for one in slow_ranks(times[:step]))))
    assert [one.node for one in found("slow-rank", sight(tmp_path))] == named


@pytest.mark.parametrize(
    ("free", "total", "checkpoint", "level"),
    [
        (4.0, 100.0, 0.0, "warning"),  # less than a twentieth
        (6.0, 100.0, 0.0, None),
        (30.0, 1200.0, 0.0, None),  # 20 GiB are enough anywhere
        (15.0, 1200.0, 0.0, "warning"),
        (130.0, 1200.0, 100.0, "warning"),  # less than one and a half checkpoints
        (160.0, 1200.0, 100.0, None),
        (90.0, 1200.0, 100.0, "critical"),  # the next checkpoint will not fit
        (0.5, 100.0, 0.0, "critical"),
    ],
)
def test_room_on_the_disk(tmp_path: Path, free: float, total: float, checkpoint: float, level: str | None):
    sizes = {"disk_free_bytes": free, "disk_total_bytes": total, "checkpoint_bytes": checkpoint}
    alarms = found(
        "disk-nearly-full", sight(tmp_path, **{name: int(one * GIB) for name, one in sizes.items()})
    )
    assert [one.level for one in alarms] == ([level] if level else [])
    for one in alarms:
        assert one.what.startswith(f"{free:.1f} of {total:.1f} GiB are free on the run's disk")
        assert ("; a checkpoint takes 100.0 GiB: make room" in one.what) == bool(checkpoint)


@pytest.mark.parametrize(
    ("cost", "level"), [(79.99, None), (80.0, "warning"), (99.0, "warning"), (100.0, "critical")]
)
def test_four_fifths_of_the_budget(tmp_path: Path, cost: float, level: str | None):
    seen = sight(tmp_path, limits=Limits(budget_usd=100.0), cost_usd=cost, price_per_hour=43.0)
    alarms = found("budget-at-80-percent", seen)
    assert [one.level for one in alarms] == ([level] if level else [])
    for one in alarms:
        assert one.what.startswith(
            f"${cost:.2f} of $100.00 (watch.alarms.budget_usd) are spent, and $43.00 follow"
        )
    assert found("budget-at-80-percent", replace(seen, limits=Limits())) == []


def test_limits_are_those_of_the_recipe():
    from kitae.recipe.watching import AlarmConfig

    assert Limits.of(AlarmConfig().model_dump()) == Limits()
    assert Limits.of(AlarmConfig(budget_usd=5, idle_minutes=2).model_dump()) == Limits(2.0, budget_usd=5.0)
