"""Alarms as metrics: from the samples of machines through the rules to what Prometheus gets."""

import pytest
from exported_runs import NOW, collector, scraped, value, write_alarms
from neuron_stream import BEGUN_S, idle, report, sample_of, training
from recorded_runs import attempt, write_run

from kitae.watch.alarm_rules import RULES
from kitae.watch.alarms import Alarm
from kitae.watch.exporter.collector import RunCollector
from kitae.watch.exporter.of_run import RULE_NAMES
from kitae.watch.lead import Lead
from kitae.watch.recording import Recording

NODE, PERIOD_S = "queue1-st-trn1-1", 5.0


class Watched:
    """A run whose only node is sampled and looked at every five seconds, by a clock of its own."""

    def __init__(self, run, monkeypatch):
        self.now, self._number = BEGUN_S, 0
        monkeypatch.setattr("kitae.watch.lead.time", lambda: self.now)
        self._recording = Recording(run, NODE, PERIOD_S)
        self._lead = Lead(run, "neuron", PERIOD_S, {"idle_minutes": 10}, lambda said: None)
        self._collector = RunCollector(lambda: [run], print, now=lambda: self.now)

    def go_on(self, minutes, busy):
        """Let the node do something for a while; what is then scraped."""
        for _ in range(round(60 * minutes / PERIOD_S)):
            self.now += PERIOD_S
            self._number += 1
            self._recording.write(sample_of(report(self._number, 32, busy), NODE, self.now))
            self._lead.look()
        return scraped(self._collector)


@pytest.fixture
def watched(tmp_path, monkeypatch):
    run = write_run(tmp_path / "demo", [attempt(host="far", price_per_node_hour=21.5)], steps=3)
    return Watched(run, monkeypatch)


def test_32_idle_cores_of_a_running_job_raise_the_alarm(watched):
    """T59: a table of 32 cores, all at 0.0 for 10 minutes while the job runs."""
    alarm = {"run": "demo", "alarm": "idle-while-paid"}
    found = watched.go_on(9, idle)
    cores = [number for key, number in found.items() if key[0] == "kitae_core_utilisation_ratio"]
    assert cores == [0.0] * 32
    assert value(found, "kitae_alarm_active", **alarm) == 0
    found = watched.go_on(1, idle)
    assert value(found, "kitae_run_state", run="demo", state="running") == 1
    assert value(found, "kitae_alarm_active", **alarm) == 1
    since = value(found, "kitae_alarm_since_timestamp_seconds", **alarm, level="critical", node=NODE)
    assert since == BEGUN_S
    found = watched.go_on(1, training)
    assert value(found, "kitae_alarm_active", **alarm) == 0
    since = value(found, "kitae_alarm_since_timestamp_seconds", **alarm, level="critical", node=NODE)
    assert since is None


def test_cores_that_work_raise_none(watched):
    found = watched.go_on(11, lambda number, core: 80.0 if core == 31 else 0.0)
    assert value(found, "kitae_alarm_active", run="demo", alarm="idle-while-paid") == 0
    assert value(found, "kitae_core_utilisation_ratio", run="demo", node=NODE, core="31") == 0.8


def test_the_rules_of_the_alarms_are_all_named():
    assert tuple(RULES) == RULE_NAMES


def test_alarms_that_have_ended_are_not_active(tmp_path):
    run = write_run(tmp_path / "demo", [attempt(host="far")])
    ended = Alarm("idle-while-paid", "critical", "idle", NOW - 900, "trn-1", NOW - 60)
    twice = [Alarm("disk-nearly-full", "warning", "full", NOW - 30, node) for node in ("trn-1", "trn-2")]
    write_alarms(run, ended, *twice, Alarm("of-a-later-kitae", "warning", "?", NOW - 9))
    found = scraped(collector(run))
    active = {dict(key[1])["alarm"]: n for key, n in found.items() if key[0] == "kitae_alarm_active"}
    named = {"disk-nearly-full": 2, "of-a-later-kitae": 1}
    assert active == {name: named.get(name, 0) for name in (*RULES, "of-a-later-kitae")}
