"""The process beside a training: what it writes and says, and that it ends with it in every case."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from neuron_stream import idle, report, stand_in
from recorded_runs import attempt, write_run
from waiting import gone, wait_for

from kitae.watch.alarms import all_alarms, read_alarms
from kitae.watch.samples import latest_samples, read_samples

QUIET = {"disk_free": 1e-9}
"""The disk of whoever runs this may be nearly full."""
CODE = f"import sys; sys.path[:] = {sys.path}; from kitae.watch.sampler import main; main()"


class Watched:
    """A run, and samplers of it that this process has started."""

    def __init__(self, run: Path, environment: dict[str, str]) -> None:
        self.run, self._environment = run, environment
        self.started: list[subprocess.Popen[str]] = []

    def start(self, **settings: Any) -> subprocess.Popen[str]:
        values = {"run": str(self.run), "backend": "cpu", "period_s": 0.2, "node": "one", **settings}
        process = subprocess.Popen(
            [sys.executable, "-c", CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(values) + "\n")
        process.stdin.flush()
        self.started.append(process)
        return process

    def said(self, process: subprocess.Popen[str]) -> list[dict[str, Any]]:
        """All that it says until its end, which this asks for."""
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return [json.loads(line) for line in output.splitlines()]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    run = write_run(tmp_path / "run", [attempt()])
    one = Watched(run, {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    yield one
    for process in one.started:
        process.kill()
        process.communicate()


def test_it_samples_until_its_input_ends(watched: Watched):
    process = watched.start()
    wait_for(lambda: latest_samples(watched.run))
    assert watched.said(process) == []
    samples = read_samples(watched.run)["one"]
    assert samples[0].source == "host"
    assert samples[0].processes[0].pid == os.getpid(), "the process that started it is the training"
    assert 0.1 <= samples[0].period_s < 30


def test_a_short_training_has_a_sample_too(watched: Watched):
    process = watched.start(period_s=600)
    wait_for(lambda: psutil.Process(process.pid).num_fds() > 3)
    wait_for((watched.run / "devices/one.lock").is_file)
    time.sleep(0.15)  # what the sample stands for
    watched.said(process)
    assert len(read_samples(watched.run)["one"]) == 1


def test_signals_to_all_processes_of_a_job_pass_by(watched: Watched):
    process = watched.start()
    wait_for(lambda: latest_samples(watched.run))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        process.send_signal(number)
    before = latest_samples(watched.run)["one"].time
    wait_for(lambda: latest_samples(watched.run)["one"].time > before)
    watched.said(process)


def test_it_ends_when_its_parent_is_killed_though_others_hold_its_input(watched: Watched, tmp_path: Path):
    """Its input does not end then; it has another parent."""
    settings = {"run": str(watched.run), "backend": "cpu", "period_s": 0.2, "node": "one"}
    line = json.dumps(settings).encode() + b"\n"
    code = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {CODE!r}], stdin=subprocess.PIPE)
child.stdin.write({line!r}); child.stdin.flush()
holder = subprocess.Popen(["sleep", "60"], pass_fds=[child.stdin.fileno()])
print(child.pid, holder.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child, holder = map(int, parent.stdout.readline().split())
        wait_for(lambda: latest_samples(watched.run))
        parent.kill()
        parent.wait()
        wait_for(lambda: gone(child))
        os.kill(holder, signal.SIGKILL)


def test_the_next_attempt_waits_for_the_last_words_of_the_one_before(watched: Watched):
    first = watched.start()
    wait_for(lambda: latest_samples(watched.run))
    second = watched.start(node="one")
    wait_for(lambda: psutil.Process(second.pid).cpu_times().user > 0.01)
    watched.said(first)
    before = latest_samples(watched.run)["one"].time
    wait_for(lambda: latest_samples(watched.run)["one"].time > before)
    watched.said(second)


def test_32_idle_cores_of_a_running_job_raise_the_alarm(watched: Watched, tmp_path: Path):
    """T59 in one piece: neuron-monitor tells of 32 cores at 0.0, and the alarm is said, kept, and told."""
    stand_in(tmp_path, sys.executable, [report(busy=idle)])
    alarms = {
        **QUIET,
        "idle_minutes": 0.01,
        "command": f"cat > {tmp_path}/told.part; mv {tmp_path}/told.part {tmp_path}/told",
    }
    process = watched.start(backend="xla", alarms=alarms)
    wait_for((tmp_path / "told").is_file)
    (active,) = read_alarms(watched.run)
    assert (active.name, active.level, active.node) == ("idle-while-paid", "critical", "one")
    assert active.what.startswith("none of the 32 cores has done anything for 0 minutes")
    assert json.loads((tmp_path / "told").read_text())["alarms"][0]["name"] == "idle-while-paid"
    events = watched.said(process)
    assert [(one["event"], one["alarm"]["name"], one["aloud"]) for one in events] == [
        ("began", "idle-while-paid", True),
        ("ended", "idle-while-paid", False),
    ]
    assert all_alarms(watched.run)[0].until is not None, "it ends with the attempt"
    assert len(latest_samples(watched.run)["one"].cores) == 32
    assert gone(json.loads((tmp_path / "seen.json").read_text())["pid"])


def test_cores_of_a_cpu_raise_no_alarm_in_a_training_on_chips(watched: Watched):
    process = watched.start(backend="xla", alarms={**QUIET, "idle_minutes": 0.0001})
    wait_for(lambda: latest_samples(watched.run))
    assert watched.said(process) == []
    assert latest_samples(watched.run)["one"].notes == (
        "there is no neuron-monitor here: the cores are those of the CPU",
    )


def test_one_leads_for_all_nodes_without_sampling(watched: Watched, tmp_path: Path):
    stand_in(tmp_path, sys.executable, [report(busy=idle)])
    lead = watched.start(node=None, backend="xla", alarms={**QUIET, "idle_minutes": 0.01})
    nodes = [watched.start(node=name, backend="xla") for name in ("left", "right")]
    wait_for(lambda: len(read_alarms(watched.run)) == 2)
    for node in nodes:
        assert watched.said(node) == []
    begun = [one["alarm"]["node"] for one in watched.said(lead) if one["event"] == "began"]
    assert sorted(set(begun)) == sorted(read_samples(watched.run)) == ["left", "right"]


def test_the_last_look_sees_what_a_training_ends_with(watched: Watched):
    process = watched.start(alarms=QUIET)
    wait_for(lambda: latest_samples(watched.run))
    with (watched.run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "not-finite", "step": 3, "what": "step 4: NaN"}) + "\n")
    (event,) = watched.said(process)
    assert (event["event"], event["alarm"]["what"]) == ("began", "step 4: NaN")
    assert [one.name for one in read_alarms(watched.run)] == ["non-finite-loss"]


def test_a_budget_is_that_of_all_attempts(watched: Watched):
    """An hour of another attempt at $36 an hour, and the one that runs: more than four fifths of $40."""
    write_run(watched.run, [attempt("killed", price_per_node_hour=36.0), attempt(price_per_node_hour=36.0)])
    state = json.loads((watched.run / "run.json").read_text())
    state["attempts"][0]["ended"] = "2026-11-30T20:00:00+00:00"
    state["attempts"][1]["started"] = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    (watched.run / "run.json").write_text(json.dumps(state))
    process = watched.start(alarms={**QUIET, "budget_usd": 40.0})
    wait_for(lambda: read_alarms(watched.run))
    begun = watched.said(process)[0]["alarm"]
    assert begun["name"] == "budget-at-80-percent"
    assert begun["what"].startswith("$36.0"), begun["what"]
    assert "of $40.00" in begun["what"]


def test_what_cannot_be_watched_is_said_once_and_the_rest_goes_on(watched: Watched):
    process = watched.start(alarms={"again_minutes": "now and then"})
    wait_for(lambda: len(read_samples(watched.run).get("one", [])) >= 3)
    (said,) = watched.said(process)
    assert said["note"].startswith("something could not be watched (ValueError: could not convert string")
