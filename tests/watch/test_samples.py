"""What machines told: written as lines, read by node, and put together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.watch.alarms import Alarm, all_alarms, read_alarms
from kitae.watch.samples import (
    CoreSample,
    DeviceSample,
    HostSample,
    ProcessSample,
    Sample,
    latest_samples,
    lines_file,
    mean_of,
    now_file,
    read_samples,
)

FULL = Sample(
    time=1_700_000_000.25,
    period_s=5.0,
    source="neuron-monitor",
    node="queue1-st-i1-1",
    host=HostSample(0.25, 64 << 30, 512 << 30, 0, 900 << 30, 1000 << 30),
    cores=(
        CoreSample(0, 0.5, 8 << 30, 16 << 30, 4.5e13),
        CoreSample(1, None, 0, 16 << 30),
    ),
    devices=(DeviceSample(0, "trn1", 3, 0, 61.5, 400.0),),
    processes=(ProcessSample(4711, "rank 0", 1.5, 8 << 30, (0, 1)),),
    errors={"numerical": 2},
    notes=("memory_used: not told",),
)


def _keep(run: Path, *samples: Sample, rest: str = "") -> None:
    for sample in samples:
        path = lines_file(run, sample.node)
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(sample.as_json()) + "\n" + rest)


def _at(time: float, *busy: float | None, node: str = "one", **others: object) -> Sample:
    cores = tuple(CoreSample(index, value) for index, value in enumerate(busy))
    return Sample(time, 5.0, "host", node, cores=cores, **others)  # type: ignore[arg-type]


def test_a_sample_is_read_as_it_was_written() -> None:
    assert Sample.from_json(json.loads(json.dumps(FULL.as_json()))) == FULL


def test_a_sample_of_nothing_is_short() -> None:
    nothing = Sample(1.0, 5.0, "host", "one")
    assert nothing.as_json() == {"time": 1.0, "period_s": 5.0, "source": "host", "node": "one"}
    assert Sample.from_json(nothing.as_json()) == nothing
    assert nothing.utilisation is None


def test_the_mean_leaves_out_cores_that_tell_nothing() -> None:
    assert _at(1.0, 0.2, None, 0.4).utilisation == pytest.approx(0.3)


def test_numbers_that_json_does_not_know_are_left_out() -> None:
    text = json.dumps(_at(1.0, float("nan"), float("inf"), 1.0).as_json(), allow_nan=False)
    assert [core.utilisation for core in Sample.from_json(json.loads(text)).cores] == [None, None, 1.0]


def test_what_a_later_kitae_added_is_passed_over() -> None:
    values = FULL.as_json()
    values["host"]["fans"] = 8
    values["cores"]["colour"] = ["red", "blue"]
    assert Sample.from_json(values) == FULL


def test_samples_are_read_by_node_in_the_order_of_time(tmp_path: Path) -> None:
    _keep(tmp_path, _at(20.0, 0.1), _at(10.0, 0.2), _at(10.0, 0.3, node="two"))
    found = read_samples(tmp_path)
    assert {node: [one.time for one in samples] for node, samples in found.items()} == {
        "one": [10.0, 20.0],
        "two": [10.0],
    }


def test_a_line_that_a_kill_left_is_passed_over(tmp_path: Path) -> None:
    _keep(tmp_path, _at(10.0, 0.2), rest='{"time": 15.0, "peri')
    assert [one.time for one in read_samples(tmp_path)["one"]] == [10.0]
    assert latest_samples(tmp_path)["one"].time == 10.0


def test_the_newest_is_found_where_it_lies(tmp_path: Path) -> None:
    _keep(tmp_path, _at(10.0, 0.2), _at(10.0, 0.4, node="two"))
    now_file(tmp_path, "one").write_text(json.dumps(_at(15.0, 0.9).as_json()))
    now_file(tmp_path, "two").write_text("{")
    newest = latest_samples(tmp_path)
    assert (newest["one"].time, newest["two"].time) == (15.0, 10.0)


def test_a_run_without_samples_has_none(tmp_path: Path) -> None:
    assert read_samples(tmp_path) == latest_samples(tmp_path) == {}


def test_a_node_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    assert lines_file(tmp_path, "../../etc/passwd").parent == tmp_path / "devices"
    assert lines_file(tmp_path, "..").name == "node.jsonl"


def test_samples_together_are_means_over_all_of_their_time() -> None:
    first = _at(10.0, 0.0, 1.0, notes=("a",), host=HostSample(cpu_utilisation=0.2, disk_free_bytes=9))
    second = _at(15.0, 0.5, None, notes=("a", "b"), host=HostSample(cpu_utilisation=0.4, disk_free_bytes=7))
    both = mean_of([first, second])
    assert (both.time, both.period_s) == (15.0, 10.0)
    assert [core.utilisation for core in both.cores] == [0.25, 1.0]
    assert both.host == HostSample(cpu_utilisation=pytest.approx(0.3), disk_free_bytes=7)
    assert both.notes == ("a", "b")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=5), one, max_size=3),
    max_leaves=10,
)


@given(where=st.sampled_from(sorted(FULL.as_json())), value=JSON)
@settings(deadline=None, max_examples=100)
def test_a_line_with_anything_in_it_harms_nobody(
    tmp_path_factory: pytest.TempPathFactory, where: str, value: object
) -> None:
    run = tmp_path_factory.mktemp("run")
    path = lines_file(run, "one")
    path.parent.mkdir()
    path.write_text(
        json.dumps({**FULL.as_json(), where: value}) + "\n" + json.dumps(_at(1.0).as_json()) + "\n"
    )
    assert read_samples(run)["one"]
    assert latest_samples(run)["one"].period_s == 5.0


def test_only_alarms_that_go_on_are_active(tmp_path: Path) -> None:
    over = Alarm("slow-rank", "warning", "rank 3", since=1.0, until=5.0)
    here = Alarm("idle-while-paid", "critical", "idle", since=2.0, node="one")
    alarms = [here.as_json(), over.as_json(), {"name": "of another kitae"}]
    (tmp_path / "alarms.json").write_text(json.dumps({"alarms": alarms}))
    assert read_alarms(tmp_path) == [here]
    assert all_alarms(tmp_path) == [over, here]
