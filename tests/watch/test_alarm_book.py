"""When alarms begin and end, and that nobody is told of them again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitae.watch.alarm_book import KEPT, AlarmBook, Change
from kitae.watch.alarm_rules import Finding, Limits, Rule, Sight
from kitae.watch.alarms import Alarm, all_alarms, read_alarms
from kitae.watch.announce import Quiet
from kitae.watch.reading import Readings
from kitae.watch.trends import LossTrend


class Days:
    """A book, and rules that find what the test says."""

    def __init__(self, run: Path, calm_s: float = 15.0) -> None:
        self.run, self.book = run, AlarmBook(run, calm_s)

    def look(self, now: float, **found: Finding) -> list[Change]:
        def rule(finding: Finding) -> Rule:
            return lambda sight: iter([finding])

        sight = Sight(now, Limits(), Readings(self.run), LossTrend())
        return self.book.look(
            sight, {name: rule(one) for name, one in found.items()} or {"none": lambda _: iter(())}
        )


WARNING, WORSE = Finding("warning", "it is so"), Finding("critical", "it is worse")


def test_one_begins_once_and_ends_once(tmp_path: Path):
    days = Days(tmp_path)
    (begun,) = days.look(100.0, disk=WARNING)
    assert begun == Change("began", Alarm("disk", "warning", "it is so", 100.0))
    assert read_alarms(tmp_path) == [begun.alarm]
    assert [days.look(now, disk=WARNING) for now in (105.0, 110.0)] == [[], []]
    assert days.look(120.0) == [], "it may come back"
    (ended,) = days.look(125.0)
    assert (ended.event, ended.alarm.since, ended.alarm.until) == ("ended", 100.0, 110.0)
    assert (read_alarms(tmp_path), all_alarms(tmp_path)) == ([], [ended.alarm])
    assert days.look(130.0) == []


def test_it_began_when_the_rule_says(tmp_path: Path):
    (begun,) = Days(tmp_path).look(700.0, idle=Finding("critical", "idle", "one", since=100.0))
    assert (begun.alarm.since, begun.alarm.node) == (100.0, "one")


def test_nodes_have_alarms_of_their_own(tmp_path: Path):
    days = Days(tmp_path)
    sight = Sight(1.0, Limits(), Readings(tmp_path), LossTrend())
    rules: dict[str, Rule] = {"idle": lambda _: iter([Finding("critical", "idle", node) for node in "ab"])}
    assert [one.alarm.node for one in days.book.look(sight, rules)] == ["a", "b"]


def test_what_gets_worse_is_told_but_not_what_gets_better(tmp_path: Path):
    days = Days(tmp_path)
    days.look(1.0, disk=WARNING)
    (worse,) = days.look(2.0, disk=WORSE)
    assert (worse.event, worse.alarm.level, worse.alarm.what, worse.alarm.since) == (
        "worse",
        "critical",
        "it is worse",
        1.0,
    )
    assert days.look(3.0, disk=WARNING) == []


def test_an_attempt_ends_with_its_alarms(tmp_path: Path):
    days = Days(tmp_path)
    days.look(1.0, **{"slow-rank": WARNING, "non-finite-loss": WORSE})
    assert [one.alarm.name for one in days.book.end(2.0)] == ["slow-rank"]
    assert [one.name for one in read_alarms(tmp_path)] == ["non-finite-loss"], "the attempt ended with it"
    assert [one.alarm.name for one in Days(tmp_path).look(30.0)] == ["non-finite-loss"]
    assert read_alarms(tmp_path) == []


def test_what_a_killed_attempt_left_ends_with_the_next(tmp_path: Path):
    Days(tmp_path).look(1.0, disk=WARNING)
    days = Days(tmp_path)
    assert [one.event for one in days.look(100.0)] == ["ended"]


def test_a_rule_that_meets_what_it_cannot_read_finds_nothing(tmp_path: Path):
    def broken(sight: Sight):
        yield Finding("warning", str(sight.last_line["nothing"]))

    sight = Sight(1.0, Limits(), Readings(tmp_path), LossTrend())
    assert AlarmBook(tmp_path, 1.0).look(sight, {"broken": broken}) == []


def test_no_more_are_kept_than_is_said(tmp_path: Path):
    days = Days(tmp_path, calm_s=0.0)
    for number in range(KEPT + 20):
        days.look(2.0 * number, disk=WARNING)
        days.look(2.0 * number + 1)
    assert len(all_alarms(tmp_path)) == KEPT
    assert all_alarms(tmp_path)[0].since == 40.0


def test_a_full_disk_harms_nobody(tmp_path: Path):
    (tmp_path / "run").write_text("no folder")
    assert [one.event for one in Days(tmp_path / "run").look(1.0, disk=WARNING)] == ["began"]


def change(event: str, since: float, name: str = "slow-rank") -> Change:
    return Change(event, Alarm(name, "warning", "so", since))  # type: ignore[arg-type]


def test_one_that_comes_and_goes_is_told_once_in_the_time_that_is_said():
    quiet = Quiet(3600.0)
    told = [
        (quiet.is_told(change("began", at)), quiet.is_told(change("ended", at)))
        for at in (0.0, 100.0, 200.0, 3500.0, 3601.0)
    ]
    assert told == [(True, True), (False, False), (False, False), (False, False), (True, True)]


def test_what_gets_worse_is_told_in_any_case():
    quiet = Quiet(3600.0)
    assert [
        quiet.is_told(change(event, 10.0)) for event in ("began", "ended", "began", "worse", "ended")
    ] == [True, True, False, True, True]


def test_what_was_told_in_the_attempt_before_counts():
    quiet = Quiet(3600.0, [Alarm("slow-rank", "warning", "so", 50.0, until=60.0)])
    assert not quiet.is_told(change("began", 100.0))
    assert quiet.is_told(change("began", 100.0, "rising-loss"))


@pytest.mark.parametrize("again_s", [0.0])
def test_with_no_time_every_beginning_is_told(again_s: float):
    quiet = Quiet(again_s)
    assert all(quiet.is_told(change("began", at)) for at in (1.0, 1.0, 2.0))
