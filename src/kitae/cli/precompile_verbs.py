"""`kitae precompile`: compile every graph of a training ahead, and say whether all are there."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kitae.cli.elsewhere import NodesOption, PrintOption, TargetOption, flags_of, submitted
from kitae.cli.recipe_verbs import SetOption
from kitae.cli.scale_option import ScaleDownOption, scaled

if TYPE_CHECKING:
    from kitae.precompile.answer import Answer
    from kitae.precompile.drive import Compiling
    from kitae.stages.precompiling import Use

MissOption = Annotated[
    tuple[str, str] | None,
    typer.Option(
        metavar="A B", help="Say in what two graphs differ: folders of a cache, keys, .pb files, RUN:PHASE."
    ),
]
TraceOption = Annotated[
    bool,
    typer.Option(
        "--trace-only", help="Only list the graphs of a rank and what they exchange, without data or peers."
    ),
]
RankOption = Annotated[int, typer.Option(min=0, help="Of --trace-only: which rank.")]
InstanceOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Of --trace-only: whose devices an automatic number of copies takes."),
]
_PLAIN = "operations run as they are called; nothing has to be compiled ahead"


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command("precompile")(precompile)


def precompile(
    recipe: Annotated[
        Path | None, typer.Argument(metavar="RECIPE|RUN", help="A recipe file, or the folder of a run.")
    ] = None,
    changes: SetOption = [],  # noqa: B006
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Graphs compiled at a time; default: as many as memory bears.")
    ] = None,
    retries: Annotated[int, typer.Option(min=0, help="How often a graph that fails is tried again.")] = 1,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also try graphs that failed in an earlier run.")
    ] = False,
    of: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Compare what this training used with the cache.")
    ] = None,
    why_miss: MissOption = None,
    trace_only: TraceOption = False,
    rank: RankOption = 0,
    instance: InstanceOption = None,
    target: TargetOption = None,
    nodes: NodesOption = None,
    show: PrintOption = False,
    scale_down: ScaleDownOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --of, --why-miss or --trace-only: print JSON.")
    ] = False,
) -> None:
    """Compile every graph of a training before it begins; exit code 9 lists what is missing, and why."""
    from kitae.errors import RecipeError
    from kitae.precompile.drive import Compiling

    _check_options(bool(rank or instance), trace_only, as_json, of is not None or why_miss is not None)
    if recipe is not None:
        changes = scaled(recipe, changes, scale_down, quiet=as_json, keep=not trace_only)
    if why_miss is not None:
        _why_miss(*why_miss, as_json)
    elif of is not None:
        _of(of, as_json)
    elif recipe is None:
        raise RecipeError("name a recipe or a run to compile for, or use --of RUN or --why-miss A B")
    elif trace_only:
        from kitae.cli.trace_tables import trace_only as show_trace

        show_trace(recipe, changes, instance=instance, rank=rank, as_json=as_json)
    else:
        asked = Compiling(jobs, retries, retry_failed)
        changes = [*changes, *flags_of(target, nodes)]
        if not submitted(recipe, changes, "precompile", False, show, compiling=asked.words()):
            _here(recipe, changes, asked)


def _check_options(of_trace: bool, trace_only: bool, as_json: bool, compares: bool) -> None:
    """Raise `RecipeError` for what would be ignored."""
    from kitae.errors import RecipeError

    if of_trace and not trace_only:
        raise RecipeError("--rank and --instance are of --trace-only; give that, too")
    if as_json and not (trace_only or compares):
        raise RecipeError("--json is of --of, --why-miss and --trace-only; leave it out")


def _here(recipe: Path, changes: list[str], asked: Compiling) -> None:
    from kitae.backend.stack import stack_here
    from kitae.cli.run_verbs import refuse_launcher
    from kitae.stages.job import open_job
    from kitae.stages.pipeline import run_stages
    from kitae.stages.precompiling import way_of
    from kitae.stages.report import Log

    refuse_launcher()
    log = Log()
    job = open_job(recipe, changes, report=log)
    if way_of(job) is None:
        print(f"precompile: {stack_here(job.backend)}: {_PLAIN}")
        return
    log.attach(job.run.log)
    run_stages(replace(job, compiling=asked), "precompile")


def _of(run: Path, as_json: bool) -> None:
    from kitae.errors import PrecompileError, RecipeError
    from kitae.precompile.answer import answer
    from kitae.precompile.caches import place_of
    from kitae.stages.job import open_job
    from kitae.stages.precompiling import cache_environment, listing, used_by, way_of

    if not run.is_dir():
        raise RecipeError(f"--of {run}: there is no such run")
    way = way_of(open_job(run, report=lambda line: None))
    if way is None:
        raise RecipeError(f"--of {run}: its backend compiles nothing ahead")
    use = used_by(run, way)
    said = answer(use.needed, place_of(way.kind, None, cache_environment()).entries())
    if as_json:
        facts = {
            "complete": said.complete,
            "needed": [asdict(one) for one in use.needed],
            "compiled_in_training": None if use.compiled is None else [one.name for one in use.compiled],
            "not_in_trial": [asdict(one) for one in use.unmet],
            "missing": [asdict(one) for one in said.missing],
        }
        print(json.dumps(facts, indent=2))
    else:
        _show_use(use, said)
    if not said.complete:
        raise PrecompileError(listing(said))


def _show_use(use: Use, said: Answer) -> None:
    told = "" if use.compiled is None else f", {len(use.compiled)} of them compiled while it trained"
    print(f"{said.needed} graphs were used{told}")
    for one in use.compiled or ():
        print(f"  {one.phase or 'unknown phase'}: {one.name}")
    for graph in use.unmet:
        print(f"  the trial run has not met {graph.phase} {graph.key} ({', '.join(map(str, graph.inputs))})")
    if said.complete:
        print("all of them are in the cache now")


def _why_miss(one: str, other: str, as_json: bool) -> None:
    from kitae.precompile.caches import all_entries, places
    from kitae.precompile.why_miss import differences, side_of
    from kitae.stages.precompiling import cache_environment

    entries = all_entries(places(cache_environment()))
    sides = [side_of(text, entries) for text in (one, other)]
    found, notes = differences(*sides)
    if as_json:
        print(json.dumps({"differences": [asdict(line) for line in found], "notes": notes}, indent=2))
        return
    print(f"{sides[0].label}\n{sides[1].label}")
    for line in found:
        print(f"  {line}")
    for note in notes:
        print(f"  note: {note}")
