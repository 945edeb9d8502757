"""How far a run was to go, and by which recipe it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_runs import BEGUN_S, attempt, write_run

from kitae.errors import KitaeError
from kitae.stages.pipeline import STAGES as PIPELINE
from kitae.watch.facts import RunFacts
from kitae.watch.resume import STAGES, last_stage, recipe_changes, refuse_active, source_of
from kitae.watch.status import Status, status_of


def test_the_stages_are_those_of_the_pipeline():
    assert tuple(stage.name for stage in PIPELINE) == STAGES


@pytest.mark.parametrize(
    ("lasts", "jobs", "last"),
    [
        ([], [], "prove"),
        ([None], [], "prove"),
        (["prove", "train"], [], "train"),
        (["train", None], [], "train"),
        (["prepare"], [("prepare", 1), ("train", 2), ("export", 3)], "export"),
        (["prove"], [("prepare", 1), ("train", 2)], "prove"),
    ],
)
def test_how_far_a_run_was_to_go(
    tmp_path: Path, lasts: list[str | None], jobs: list[tuple[str, int]], last: str
):
    attempts = [attempt("stopped", **({} if one is None else {"last": one})) for one in lasts]
    assert last_stage(RunFacts.read(write_run(tmp_path, attempts, jobs=jobs))) == last


def test_a_run_as_resolved_opens_its_topology_when_it_moves(tmp_path: Path):
    run = write_run(tmp_path / "a")
    assert recipe_changes(run, moved=False) == []
    assert recipe_changes(run, moved=True) == [
        "parallel.data_parallel_size=auto",
        "target.processes_per_node=auto",
    ]
    assert source_of(run) == run


def test_a_run_as_submitted_is_opened_where_it_lies_now(tmp_path: Path):
    run = write_run(tmp_path / "a b")
    (run / "submitted.yaml").write_text("")
    assert recipe_changes(run, moved=True) == [f'runs="{tmp_path}"', 'name="a b"']
    assert source_of(run) == run / "submitted.yaml"


def status(path: Path, life: str, now: float) -> Status:
    facts = RunFacts.read(write_run(path, [attempt(host="far")], signed=BEGUN_S))
    return status_of(facts, {}, lambda attempt: life, now)  # type: ignore[arg-type, return-value]


def test_a_run_that_works_or_may_work_does_not_begin_twice(tmp_path: Path):
    with pytest.raises(KitaeError, match="a: running; follow it with kitae logs -f"):
        refuse_active(status(tmp_path / "a", "alive", BEGUN_S))
    with pytest.raises(KitaeError, match=r"a may be at work: process 4242 on far, .* kitae run "):
        refuse_active(status(tmp_path / "a", "elsewhere", BEGUN_S + 700))
    refuse_active(status(tmp_path / "a", "gone", BEGUN_S))
