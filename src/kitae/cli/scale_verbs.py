"""`kitae scale`: strong and weak scaling of a recipe, measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kitae.cli.recipe_verbs import SetOption
from kitae.cli.scale_option import ScaleDownOption, scaled

if TYPE_CHECKING:
    from kitae.scale.recipes import Wanted
    from kitae.scale.share import Kind

MOST_WIDTHS, MOST_REPEATS, MOST_STEPS = 32, 100, 10_000

RunArgument = Annotated[
    Path | None, typer.Argument(metavar="RECIPE|RUN", help="A recipe file, or the folder of a run.")
]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    app.command("scale")(scale)


def scale(
    recipe: RunArgument = None,
    changes: SetOption = [],  # noqa: B006
    weak: Annotated[
        bool,
        typer.Option("--weak/--strong", help="The same work for each worker, or the same update for all."),
    ] = False,
    workers: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Measure with so many processes of this machine.")
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Measure on so many nodes, as jobs of Slurm.")
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, max=MOST_REPEATS, help="How often each width is measured.")
    ] = 3,
    steps: Annotated[
        int, typer.Option(min=1, max=MOST_STEPS, help="Updates of a measurement that count.")
    ] = 20,
    warm_up: Annotated[
        int, typer.Option(min=1, max=MOST_STEPS, help="Updates before them, which do not.")
    ] = 2,
    threshold: Annotated[
        float, typer.Option(min=1, max=100, help="Efficiency to be above, in percent.")
    ] = 80.0,
    phase: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the recipe, to measure; the first.")
    ] = None,
    instance: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the nodes are, to compare with the plan.")
    ] = None,
    recorded: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Judge recorded numbers (JSON or CSV) instead."),
    ] = None,
    start_over: Annotated[
        bool, typer.Option("--start-over", help="Set earlier measurements aside, and make them anew.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="With --nodes: submit, and do not wait.")] = False,
    scale_down: ScaleDownOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure strong or weak scaling: efficiency with its spread, and up to where it is worth it."""
    kind: Kind = "weak" if weak else "strong"
    report = _report(as_json)
    if recorded is not None:
        _refuse_beside_file({"RECIPE": recipe, "--workers": workers, "--nodes": nodes, "--set": changes})
        from kitae.scale.imported import imported

        _show(imported(recorded, kind, threshold / 100).as_json(), as_json)
        return
    unit, widths = _widths(workers, nodes)
    _refuse_idle(unit, instance, detach)
    from kitae.cli.run_verbs import refuse_launcher
    from kitae.scale.measure import measure

    refuse_launcher()
    wanted = _wanted(
        recipe=_given(recipe),
        changes=scaled(_given(recipe), changes, scale_down, quiet=as_json),
        kind=kind,
        unit=unit,
        widths=widths,
        repeats=repeats,
        steps=steps,
        warm_up=warm_up,
        threshold=threshold / 100,
        phase=phase,
        instance=_known(instance),
    )
    _show(measure(wanted, report, start_over=start_over, detach=detach), as_json)


def _wanted(**fields: Any) -> Wanted:
    from kitae.scale.recipes import Wanted

    return Wanted(**fields)


def _report(as_json: bool) -> Callable[[str], None]:
    """Where progress is told: not among the JSON."""
    return lambda line: print(line, file=sys.stderr if as_json else sys.stdout, flush=True)


def _show(found: dict[str, Any], as_json: bool) -> None:
    from kitae.cli.scale_tables import show

    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        show(found)


def _given(recipe: Path | None) -> Path:
    from kitae.errors import RecipeError

    if recipe is None:
        raise RecipeError(
            "a recipe is missing: kitae scale RECIPE --workers 1,2, or kitae scale --from FILE for recorded "
            "numbers"
        )
    return recipe


def _known(name: str | None) -> str | None:
    """An instance of the catalogue, if one is named. Raises `RecipeError`."""
    if name is None:
        return None
    from kitae.stages.estimating import trainable

    return trainable(name).name


def _widths(workers: str | None, nodes: str | None) -> tuple[str, list[int]]:
    """What is counted, and the numbers, each once, in order. Raises `RecipeError`."""
    from kitae.errors import RecipeError

    given = {"workers": workers, "nodes": nodes}
    units = [unit for unit, text in given.items() if text is not None]
    if len(units) != 1:
        found = "both" if units else "neither"
        raise RecipeError(
            f"give one of --workers (processes of this machine) and --nodes (jobs of Slurm); found {found}"
        )
    unit = units[0]
    words = [word.strip() for word in (given[unit] or "").split(",")]
    if not all(word.isdecimal() and 0 < int(word) <= 100_000 for word in words):
        raise RecipeError(f"--{unit} {given[unit]}: write whole numbers above 0, such as 1,2,4")
    widths = sorted({int(word) for word in words})
    if len(widths) > MOST_WIDTHS:
        raise RecipeError(f"--{unit}: {len(widths)} widths are more than {MOST_WIDTHS}; leave some out")
    if len(widths) == 1:
        raise RecipeError(
            f"--{unit} {widths[0]}: scaling is a comparison; give two numbers or more, such as "
            f"{widths[0]},{2 * widths[0]}"
        )
    return unit, widths


def _refuse_idle(unit: str, instance: str | None, detach: bool) -> None:
    from kitae.errors import RecipeError

    idle = {"--instance": instance is not None, "--detach": detach}
    wrong = [name for name, given in idle.items() if given and unit == "workers"]
    if wrong:
        raise RecipeError(f"{wrong[0]} belongs to --nodes; leave it out, or measure on nodes")


def _refuse_beside_file(options: dict[str, object]) -> None:
    from kitae.errors import RecipeError

    given = [name for name, value in options.items() if value]
    if given:
        raise RecipeError(f"--from judges what is recorded, and measures nothing: leave {given[0]} out")
