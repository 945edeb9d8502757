"""Numbers and signs of each panel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_runs import BEGUN_S, attempt, write_run
from top_scenes import append, of_ranks, sample, start, update, write_samples, write_training

from kitae.watch.top import curves, events
from kitae.watch.top.cores import cores, processes, ranges, title_of_cores
from kitae.watch.top.header import bar, header
from kitae.watch.top.look import ASCII, DARK, View
from kitae.watch.top.ranks import ranks
from kitae.watch.top.scene import CURVES, Ranks, Scene, Training
from kitae.watch.top.source import Past, RunSource

NOW = BEGUN_S + 605
VIEW = View()


@pytest.fixture(autouse=True)
def _no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return RunSource(write_training(tmp_path / "run"), now=lambda: NOW).look()


def machines(*given: object) -> Scene:
    samples = {one.node: one for one in given}  # type: ignore[attr-defined]
    return Scene(title="here", now=NOW, nodes=Past().nodes(samples))


# ---- the lines above


def test_the_header_tells_how_far_how_fast_and_how_much(scene: Scene):
    """2,700 updates of 2 s are left: 1 h 30 min, of 43 $/h: 64.50 $ more than the 50.23 $ of two attempts."""
    text = header(scene, VIEW, 120).plain
    assert "run · running" in text
    assert "attempt 2" in text
    assert "step 300/3,000" in text
    assert "10.0 %" in text
    assert "1h30m left" in text
    assert f"loss {update(300)['loss']:.4f}" in text
    assert "held-out 2.2606" in text
    assert "524k tokens/s (472k real)" in text
    assert "8,192 a core" in text
    assert "utilisation 31.4 %" in text
    assert "64 x xla, bf16-sr" in text
    assert "$50.23 so far · $114.73 at the end" in text.replace("\n", " · ")
    assert "$49.77 left of $100.00" in text


def test_pieces_are_not_broken(scene: Scene):
    narrow = header(scene, VIEW, 46).plain
    assert "8,192 a core" in narrow
    assert "step 300/3,000" in narrow
    assert max(map(len, narrow.split("\n"))) <= 46


def test_a_finished_run_tells_no_time_left(tmp_path: Path):
    run = write_training(tmp_path / "done", steps=300, of=300, outcome="finished")
    text = header(RunSource(run, now=lambda: NOW).look(), VIEW, 120).plain
    assert "done · done" in text
    assert "100.0 %" in text
    assert "left, ends" not in text
    assert "at the end" not in text
    assert "$86.00 in all" in text


def test_without_a_price_it_says_what_to_set(tmp_path: Path):
    run = write_run(tmp_path / "run", [attempt()], steps=3)
    assert "target.price_per_node_hour is not set" in header(RunSource(run).look(), VIEW, 120).plain


def test_before_the_first_update(tmp_path: Path):
    run = write_run(tmp_path / "run", [attempt(host="here")], signed=NOW)
    assert "no update yet" in header(RunSource(run, now=lambda: NOW).look(), VIEW, 80).plain


def test_what_is_gone_or_paused_is_said(scene: Scene):
    text = header(replace(scene, gone=True, notes=("run.json cannot be read",)), View(paused=True), 120).plain
    assert "its folder is gone" in text
    assert "paused" in text
    assert text.split("\n")[-1] == "run.json cannot be read"


@pytest.mark.parametrize(
    ("share", "filled"), [(0.0, 0), (0.5, 5), (0.96, 10), (1.7, 10), (-1.0, 0), (None, 0)]
)
def test_bars(share: float | None, filled: int):
    assert bar(share, 10, VIEW, "").plain == "━" * filled + "─" * (10 - filled)


# ---- cores


def test_a_single_machine_has_a_bar_for_each_core():
    rows = cores(machines(sample("a", 4)), VIEW, 60, 10).plain.split("\n")
    assert rows[0] == "a · neuron-monitor · cpu 12 % · memory 180/512 GiB"  # and no room for the whole disk
    assert rows[1].split() == [
        "0",
        f"{'━' * 11}─",
        "90",
        "%",
        "11.2G",
        "2",
        f"{'━' * 10}──",
        "86",
        "%",
        "11.2G",
    ]
    assert rows[2].split()[0] == "1"
    assert len(rows) == 3


def test_many_cores_are_a_map_by_node_and_device(scene: Scene):
    """T59, to be seen: core 5 of each node is idle, the others are at seven or six eighths."""
    rows = cores(scene, VIEW, 100, 12).plain.split("\n")
    assert title_of_cores(scene, VIEW) == "64 cores on 2 nodes · 79 % busy · 717/1024 GiB"
    assert rows[0].startswith("queue1-st-trn1-1 ▇▇ ▇▇ ▇· ▇▇ ")
    assert rows[0].count(" ▇▇") == 15
    assert rows[0].endswith("  83 %    358/512 GiB")
    assert rows[1].startswith("queue1-st-trn1-2 ▆▆ ▆▆ ▆· ")


def test_512_cores_fit_on_an_old_terminal():
    nodes = machines(*(sample(f"queue1-st-trn1-{number}") for number in range(1, 17)))
    rows = cores(nodes, VIEW, 78, 16).plain.split("\n")
    assert title_of_cores(nodes, VIEW) == "512 cores on 16 nodes · 83 % busy · 5734/8192 GiB"
    assert len(rows) == 16
    assert all(row.count("▇") == 31 and row.count("▇▇ ") == 15 for row in rows)
    assert rows[-1].startswith("queue1-st-trn1-16")


def test_nodes_that_do_not_fit_are_counted():
    nodes = machines(*(sample(f"n{number}") for number in range(16)))
    rows = cores(nodes, VIEW, 80, 6).plain.split("\n")
    assert len(rows) == 6
    assert rows[-1] == "and 11 lines more: n turns to one node after the other"


def test_a_whole_page_has_memory_too():
    rows = cores(machines(sample("a"), sample("b")), VIEW, 100, None).plain.split("\n")
    assert [row.split()[0] for row in rows] == ["a", "memory", "b", "memory"]
    assert rows[1].split()[1] == "▆▆"


def test_one_node_after_the_other(scene: Scene):
    text = cores(scene, View(node=2), 100, 20).plain
    assert text.startswith("queue1-st-trn1-2 · neuron-monitor")
    assert " 80 %" in text
    assert [
        VIEW.with_next_node(2).node,
        View(node=2).with_next_node(2).node,
        VIEW.with_next_node(1).node,
    ] == [1, 0, 0]


def test_an_old_sample_is_said_to_be_old():
    assert "2m old" in cores(machines(sample("a", 2, time=NOW - 125)), VIEW, 100).plain


def test_flops_in_place_of_utilisation():
    assert "62T" in cores(machines(sample("a", 2)), View(flops=True), 80).plain


def test_a_machine_without_accelerator_has_its_own_cores():
    text = cores(machines(sample("laptop", 2, 0)), VIEW, 60).plain
    assert "laptop · host" in text
    assert "90 %" in text
    assert "G" not in text.split("\n")[1]


def test_processes_are_those_that_use_most():
    row = processes(machines(sample("a", 8)), VIEW, 80).plain.split("\n")[1]
    assert row.split() == ["4242", "120", "%", "6.0", "0-3", "rank", "0"]
    assert ranges([3, 1, 2, 8, 10, 9, 5]) == "1-3,5,8-10"
    assert ranges([]) == "-"


# ---- ranks


def test_the_slow_rank_is_marked(scene: Scene):
    rows = ranks(scene, VIEW, 90, 70).plain.split("\n")
    assert rows[0].startswith("slow: rank 7 1.59 x; 64 ranks, median 1.83 s, most 2.9 s")
    assert rows[8].endswith("2.9 s ◀ slow, 1.59 x")
    assert rows[8].split()[:2] == ["7", "queue1-st-trn1-1"]
    assert sum("◀" in row for row in rows) == 1


def test_512_ranks_are_a_map_below_the_slowest():
    found = Ranks.of(of_ranks(10, 512, 400))
    rows = ranks(Scene("x", NOW, training=Training(ranks=found)), VIEW, 80, 14).plain.split("\n")
    assert rows[1].split()[0] == "400"
    assert "".join(rows).count("█") == 1
    assert sum(row.count("▅") for row in rows) == 511
    assert len(rows) <= 14


def test_one_process_waits_for_nobody(tmp_path: Path):
    run = write_run(tmp_path / "run", [attempt()], steps=4)
    assert ranks(RunSource(run).look(), VIEW, 80, 5).plain == "2 s/step; there is one process"


# ---- curves and events


@pytest.mark.parametrize("name", CURVES)
def test_each_curve_has_its_newest_value_in_its_title(scene: Scene, name: str):
    title = curves.title_of(name, scene, View(log_scale=True))
    assert title.startswith(curves.TITLES[name])
    assert ("(log)" in title) == ("held-out 2.261" in title) == (name == "loss")
    assert len(curves.curve(name, scene, VIEW, 40, 6).plain.split("\n")) == 6


@pytest.mark.parametrize(
    ("axis", "below"), [("steps", "300 steps"), ("tokens", "315M tokens"), ("time", "5m")]
)
def test_curves_along_steps_tokens_and_time(scene: Scene, axis: str, below: str):
    assert curves.curve("loss", scene, View(axis=axis), 60, 6).plain.endswith(below)  # type: ignore[arg-type]


def test_held_out_points_are_among_the_curve(scene: Scene):
    assert curves.curve("loss", scene, VIEW, 60, 12).plain.count("●") == 2


def test_alarms_come_first_then_errors_of_machines(scene: Scene):
    rows = events.alarms(scene, VIEW, 120).plain.split("\n")
    assert rows[0].startswith(
        "idle-while-paid on queue1-st-trn1-1: 1 of 32 cores idle for 10 minutes (for 10m)"
    )
    assert rows[1].startswith("slow-rank: rank 7 computes 1.59 x")
    assert "queue1-st-trn1-1, device 2: 3 corrected ECC errors" in rows
    assert "queue1-st-trn1-2: runtime errors: 2 generic" in rows
    assert events.alarms(Scene("x", NOW), VIEW, 80).plain == "none"


def test_alarms_are_whole_where_there_is_room(scene: Scene):
    """In 40 columns the five take eleven lines; where there are less they are cut, and each is to be seen."""
    whole = events.alarms(scene, VIEW, 40, 12).plain
    assert "(for 10m)" in whole.replace("\n", " ")
    assert len(whole.split("\n")) == 11
    cut = events.alarms(scene, VIEW, 40, 5).plain.split("\n")
    assert len(cut) == 5
    assert cut[1].startswith("slow-rank: rank 7")


def test_attempts_and_checkpoints_are_newest_first(scene: Scene):
    rows = events.attempts(scene, VIEW, 100).plain.split("\n")
    assert rows[0].startswith("2  19:00:00, 2 nodes  running")
    assert rows[1].endswith("killed after 1h00m")
    rows = events.checkpoints(scene, VIEW, 100).plain.split("\n")
    assert [row.split("  ")[:2] for row in rows] == [["step 300", "4.0 MB"], ["step 150", "4.0 MB"]]
    assert rows[0].endswith("waited 1.5 s")


@settings(deadline=None, max_examples=80)
@given(width=st.integers(1, 130), height=st.integers(1, 40), node=st.integers(0, 2))
def test_panels_fit_into_any_place(tmp_path_factory, width: int, height: int, node: int):
    global _KEPT
    if _KEPT is None:
        run = write_run(tmp_path_factory.mktemp("kept") / "run", [attempt(nodes=["a", "b"])])
        append(run, start(0, 9, 64), update(1), of_ranks(1, 64, 3))
        write_samples(run, sample("a"), sample("b"))
        _KEPT = RunSource(run, now=lambda: NOW).look()
    view = View(palette=DARK, glyphs=ASCII, node=node)
    for draw in (cores, ranks, events.alarms, events.attempts, events.checkpoints, events.log_tail):
        lines = draw(_KEPT, view, width, height).plain.split("\n")
        assert len(lines) <= height, draw
        assert max(map(len, lines)) <= max(width, 40), draw
    assert max(map(len, header(_KEPT, view, width).plain.split("\n"))) <= width


_KEPT: Scene | None = None
