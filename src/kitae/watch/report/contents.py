"""What a report tells, in order: of one run, or of several beside each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import kitae
from kitae.watch.report import compare
from kitae.watch.report.attempts_section import alarms, attempts, checkpoints, failure, gaps
from kitae.watch.report.blocks import Block, Chart, Fold, Heat, Report, Section, Tile, Tone, Words
from kitae.watch.report.bounds import WORDS, bounded, cut, small
from kitae.watch.report.data_section import data
from kitae.watch.report.devices_section import devices
from kitae.watch.report.environment_section import environment
from kitae.watch.report.plan_section import plan
from kitae.watch.report.recipe_section import differences, recipe
from kitae.watch.report.result_section import result, samples
from kitae.watch.report.run_view import BROKEN, RunView
from kitae.watch.report.scaling_section import scaling
from kitae.watch.report.training_section import charts, training
from kitae.watch.report.verdict import tiles, verdict
from kitae.watch.state import Jobs

Teller = Callable[[RunView], Iterable[Block]]
SECTIONS: tuple[tuple[str, str, Teller], ...] = (
    ("failure", "What failed first", failure),
    ("alarms", "Alarms", alarms),
    ("result", "Result", result),
    ("training", "Training", training),
    ("samples", "A sample, before and after", samples),
    ("recipe", "Recipe", recipe),
    ("data", "Data", data),
    ("plan", "Plan and what came of it", plan),
    ("attempts", "Attempts and cost", attempts),
    ("checkpoints", "Checkpoints", checkpoints),
    ("devices", "Machines", devices),
    ("scaling", "Scaling", scaling),
    ("environment", "Environment", environment),
    ("gaps", "What could not be read", gaps),
)
"""Of one run: key, heading, and what tells it. One without anything to tell is left out; gaps come last, as
the others find them."""


def report_of(paths: Sequence[Path], jobs: Jobs | None = None) -> Report:
    """The report on runs; with `jobs` Slurm is not asked, and these are all that it still knows."""
    named = zip(paths, names_of(paths), strict=True)
    views = [RunView(path, name, jobs, len(paths)) for path, name in named]
    return _of_one(views[0]) if len(views) == 1 else _of_several(views)


def names_of(paths: Sequence[Path]) -> list[str]:
    """Of each run one that no other has: the folder's, or as much of its path as it takes."""
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        found = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(found)) == len(found):
            break
    return found


def _of_one(view: RunView) -> Report:
    sentence, tone = _verdict(view)
    sections = [_section(key, title, tell, view) for key, title, tell in SECTIONS]
    return Report(
        view.name,
        sentence,
        tone,
        tuple(_told(tiles, view)),
        tuple(one for one in sections if one.blocks),
        _written(),
        {"runs": [_facts(view, sentence)]},
    )


def _of_several(views: Sequence[RunView]) -> Report:
    parts = (
        ("results", "Results", lambda: compare.results(views)),
        ("recipes", "Recipes", lambda: differences(views)),
        ("training", "Training", lambda: charts(views)),
    )
    sections = [Section(key, title, tuple(bounded(_safely(tell)))) for key, title, tell in parts]
    told = [(view, *_verdict(view)) for view in views]
    sections += [
        _run_section(place, view, sentence, tone) for place, (view, sentence, tone) in enumerate(told)
    ]
    return Report(
        " · ".join(view.name for view in views),
        next(iter(_safely(lambda: [compare.sentence(views)])), "Several runs."),
        "plain",
        (),
        tuple(one for one in sections if one.blocks),
        _written(),
        {"runs": [_facts(view, sentence) for view, sentence, _ in told]},
    )


def _run_section(place: int, view: RunView, sentence: str, tone: Tone) -> Section:
    """All about one of several runs but the curves, folded."""
    inside = [_section(key, title, tell, view) for key, title, tell in SECTIONS if key != "training"]
    folds = [
        Fold(one.title, tuple(_keyed(block, f"run-{place}") for block in one.blocks))
        for one in inside
        if one.blocks
    ]
    return Section(f"run-{place}", view.name, (Words(sentence, tone), *folds))


def _keyed(block: Block, prefix: str) -> Block:
    """The block with keys that no other run's has."""
    if isinstance(block, Fold):
        return replace(block, blocks=tuple(_keyed(one, prefix) for one in block.blocks))
    return replace(block, key=f"{prefix}-{block.key}") if isinstance(block, Chart | Heat) else block


def _section(key: str, title: str, tell: Teller, view: RunView) -> Section:
    return Section(key, title, tuple(bounded(_safely(lambda: tell(view)), view.runs)))


def _safely(tell: Callable[[], Iterable[Any]]) -> list[Any]:
    """What is told up to where a damaged file stops it, and a word that it does."""
    found: list[Any] = []
    try:
        found.extend(tell())
    except BROKEN as error:
        found.append(Words(f"The rest cannot be told, as {_misfit(error)}.", "warn"))
    return found


def _misfit(error: BaseException) -> str:
    return f"the run's files do not fit ({type(error).__name__}: {error})"


def _told(tell: Callable[[RunView], Iterable[Tile]], view: RunView) -> list[Tile]:
    return [one for one in _safely(lambda: tell(view)) if isinstance(one, Tile)]


def _verdict(view: RunView) -> tuple[str, Tone]:
    try:
        sentence, tone = verdict(view)
    except BROKEN as error:
        return f"What became of it cannot be told, as {_misfit(error)}.", "warn"
    return cut(sentence, WORDS), tone


def _facts(view: RunView, sentence: str) -> dict[str, Any]:
    """For programs."""
    told: list[dict[str, Any]] = _safely(lambda: [{**view.status.as_json(), "seconds": view.machine_seconds}])
    seen = told[0] if isinstance(told[0], dict) else {}
    return {
        **seen,
        "run": view.name,
        "why": cut(str(seen.get("why", "")), WORDS),
        "verdict": sentence,
        "results": small(view.results, view.runs),
        "heldout": small(view.heldout, view.runs),
        "gaps": [cut(gap, WORDS) for gap in view.gaps],
    }


def _written() -> str:
    return f"Written by kitae {kitae.__version__} on {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC."
