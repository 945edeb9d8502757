"""How machines were used, from their samples (T59: cores that are idle while others work)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reported_runs import write_reported

from kitae.watch.report.blocks import Chart, Heat, Table, Words
from kitae.watch.report.conceal import Concealer
from kitae.watch.report.contents import report_of
from kitae.watch.report.devices_section import devices
from kitae.watch.report.html import MOST_BYTES, page
from kitae.watch.report.run_view import RunView
from kitae.watch.samples import CoreSample, DeviceSample, HostSample, Sample, lines_file

BEGUN = 1_796_065_200.0


def sample(node: str, place: int, uses: list[float | None], period: float = 5.0) -> Sample:
    """One of a machine with as many cores as `uses`, each with 1 GB."""
    return Sample(
        time=BEGUN + period * (place + 1),
        period_s=period,
        source="neuron-monitor",
        node=node,
        host=HostSample(cpu_utilisation=0.25, disk_free_bytes=10**11 - place),
        cores=tuple(CoreSample(index, use, 10**9, 2 * 10**9) for index, use in enumerate(uses)),
        devices=(DeviceSample(0, "trn1", ecc_corrected=3, ecc_uncorrected=0),),
        errors={"generic": 2, "hardware": 0},
    )


def recorded(run: Path, samples: list[Sample]) -> RunView:
    write_reported(run)
    for one in samples:
        path = lines_file(run, one.node)
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(one.as_json()) + "\n")
    return RunView(run, jobs={})


def test_a_run_without_samples_has_nothing_to_tell(tmp_path: Path):
    assert list(devices(RunView(write_reported(tmp_path), jobs={}))) == []


def test_machines_by_how_little_they_were_used(tmp_path: Path):
    busy = [sample("a", place, [0.9, 0.7]) for place in range(4)]
    idle = [sample("b", place, [0.0, 0.5]) for place in range(4)]
    said, table, *charts = devices(recorded(tmp_path, [*busy, *idle]))
    assert isinstance(said, Words)
    assert said.text.startswith("4 NeuronCores of 2 machines were watched over 20 s")
    assert isinstance(table, Table)
    assert [row[:4] for row in table.rows] == [("b", "2", "25.0 %", "2 GB"), ("a", "2", "80.0 %", "2 GB")]
    assert table.rows[0][4:] == ("25.0 %", "100 GB", "generic 2", "3", "0")
    use, memory, cores = charts
    assert isinstance(use, Chart)
    assert use.dates
    assert (use.traces[1].name, list(use.traces[1].ys)) == ("b", [0.25] * 4)
    assert use.traces[0].xs[0] == 1000 * (BEGUN + 5)
    assert isinstance(memory, Chart)
    assert isinstance(cores, Heat)
    assert cores.names == ["a core 0", "a core 1", "b core 0", "b core 1"]
    assert [row[0] for row in cores.values] == pytest.approx([0.9, 0.7, 0.0, 0.5])
    assert "1 of 4 were idle" in cores.summary


def test_longer_periods_fill_their_time(tmp_path: Path):
    """A line that stands for ten periods colours all of them; what is not known stays empty."""
    long = sample("a", 0, [0.5, None], period=50.0)
    short = [sample("a", place, [1.0, 0.25]) for place in range(10, 20)]
    *_, cores = devices(recorded(tmp_path, [long, *short]))
    assert isinstance(cores, Heat)
    assert len(cores.xs) == 11
    assert cores.values[0][:5] == [0.5] * 5
    assert cores.values[0][6:] == [1.0] * 5
    assert cores.values[1][:5] == [None] * 5


def test_512_cores_stay_within_the_bound(tmp_path: Path):
    """16 machines of 32 cores with 120 samples each; a core a row."""
    view = recorded(
        tmp_path / "wee",
        [sample(f"n{node}", place, [(place % 9) / 9] * 32) for node in range(16) for place in range(120)],
    )
    (heat,) = (one for one in devices(view) if isinstance(one, Heat))
    assert len(heat.names) == 512
    assert 100 <= len(heat.xs) <= 240
    assert all(len(row) == len(heat.xs) for row in heat.values)
    assert len(page(report_of([view.path], {}), Concealer(())).encode()) < MOST_BYTES
