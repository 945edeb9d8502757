"""A process of a measurement: the training it makes, and its clock."""

from __future__ import annotations

import os

import pytest
from job_case import write_case

from kitae.backend.group import Meter
from kitae.launch.local import launch_ranks
from kitae.launch.order import Launch
from kitae.parallel.mesh import Mesh
from kitae.scale.here import ENTRY, threads, threads_each
from kitae.scale.measure import told
from kitae.scale.measured import measured_of
from kitae.scale.rank import Clock, KeepsNothing, shortened
from kitae.scale.recipes import Wanted
from kitae.scale.setup import MEASURED, Setup
from kitae.stages.files import read_json
from kitae.stages.job import open_job
from kitae.stages.pipeline import run_stages
from kitae.stages.training import train_job
from kitae.train.course import course_of

SCHEDULE = {"kind": "cosine", "warmup": "4 steps"}


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("rank")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KITAE_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        path = write_case(
            folder, schedule=SCHEDULE, training={"duration": "60 steps", "global_batch_size": 4}
        )
        found = Setup.of(Wanted(path, (), "strong", "workers", [1, 2], 1, 3, 1, 0.8))
        found.begin()
        run_stages(open_job(found.folder / "base", report=lambda line: None), "import")
        yield found


def test_the_training_is_the_recipe_s_but_for_its_length(setup):
    order = next(setup.orders())
    job = open_job(setup.lay_out(order), report=lambda line: None)
    whole = train_job(job, "key", Mesh(), lambda line: None)
    short = shortened(whole, 4)
    long_course, short_course = course_of(whole), course_of(short)
    assert (long_course.steps, short_course.steps) == (60, 4)
    rates = [
        [one.stretches[0].schedule.rate(update) for update in range(4)] for one in (long_course, short_course)
    ]
    assert rates[0] == rates[1]
    (phase,) = short.phases
    assert phase.heldout is None
    assert phase.train is whole.phases[0].train
    assert short.store.latest() is None
    assert short.store.save(4, {}) == short.store.folder
    assert not short.store.folder.exists()


def test_nothing_is_kept(tmp_path):
    store = KeepsNothing(tmp_path / "none", keep=1)
    store.begin_save(1, {})
    assert store.wait() is None
    assert not (tmp_path / "none").exists()


class Told:
    def __init__(self) -> None:
        self.words: list[str] = []

    def enter(self) -> None:
        self.words.append("enter")

    def leave(self) -> None:
        self.words.append("leave")

    def touch(self, where: str) -> None:
        self.words.append(where)


def test_the_clock_tells_updates_apart_and_passes_everything_on():
    told_to = Told()
    meter = Meter(observer=told_to)
    clock = Clock(meter)
    clock.touch("loading")
    for step in range(3):
        clock.touch(f"an update, after step {step}")
        clock.enter()
        meter.waited_s += step
        clock.leave()
    clock.touch("saving, after step 3")
    meter.waited_s += 100
    clock.touch("finishing a save, after step 3")
    found = clock.updates(3)
    assert found["waited_s"] == [0.0, 1.0, 2.0]
    assert all(one > 0 for one in found["seconds"])
    assert told_to.words[:4] == ["loading", "an update, after step 0", "enter", "leave"]
    with pytest.raises(AssertionError, match="every update"):
        clock.updates(4)


def test_two_ranks_leave_what_they_measured(setup):
    order = next(one for one in setup.orders() if one.width == 2)
    folder = setup.lay_out(order)
    launch_ranks(ENTRY, {"folder": str(folder)}, Launch(2, 1, "cpu", 60.0, folder / "logs"))
    facts = read_json(folder / MEASURED)
    assert [one["step"] for one in facts["steps"]] == [1, 2, 3, 4]
    assert [one["rank"] for one in facts["ranks"]] == [0, 1]
    assert all(len(one["seconds"]) == len(one["waited_s"]) == 4 for one in facts["ranks"])
    assert all(
        0 < w < s for one in facts["ranks"] for s, w in zip(one["seconds"], one["waited_s"], strict=True)
    )
    assert (facts["accumulation_steps"], facts["copies"], facts["global_batch_size"]) == (1, 2, 4)
    assert setup.is_done(order)
    found = measured_of(facts)
    assert found.rate == pytest.approx(4 * 32 / found.step_s)
    assert "round 1 of 1: 2 workers: " in told(setup, order)
    assert not list(folder.glob("checkpoints/*"))
    assert not (folder / "evaluations").exists()
    assert "step 4/4" in (folder / "logs/rank-0.log").read_text()


def test_threads_are_the_same_at_every_width(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("kitae.scale.here.usable_cores", lambda: 8)
    assert [threads_each(widest) for widest in (1, 2, 3, 16)] == [8, 4, 2, 1]
    with threads(4):
        assert os.environ["OMP_NUM_THREADS"] == "4"
    assert "OMP_NUM_THREADS" not in os.environ
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_each(16) == 3
    with threads(1):
        pass
    assert os.environ["OMP_NUM_THREADS"] == "3"
