"""`kitae plan`: memory, time and money of a recipe before it starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kitae.cli.plan_options import MOST_GB, entries_of, refuse_idle, rent_of, usd_of
from kitae.cli.recipe_verbs import SetOption
from kitae.cli.scale_option import ScaleDownOption, scaled
from kitae.plan import MOST_NODES

if TYPE_CHECKING:
    from kitae.plan.estimate import Estimate
    from kitae.plan.money import Rent

RunArgument = Annotated[
    Path | None, typer.Argument(metavar="RECIPE|RUN", help="A recipe file, or the folder of a run.")
]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    app.command("plan")(plan)


def plan(
    recipe: RunArgument = None,
    changes: SetOption = [],  # noqa: B006
    instance: Annotated[
        str | None, typer.Option(metavar="NAME", help="Plan for this machine of the catalogue, not for here.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, max=MOST_NODES, help="How many of it; all their processes train.")
    ] = None,
    compare: Annotated[
        str | None, typer.Option(metavar="NAME:NODES,...", help="Compare several machines, time counted.")
    ] = None,
    price: Annotated[
        list[str], typer.Option(metavar="ITEM=USD", help="A price that is unknown, or another one.")
    ] = [],  # noqa: B006
    head: Annotated[str | None, typer.Option(metavar="NAME", help="Head node to pay for.")] = None,
    fsx: Annotated[
        int, typer.Option(min=0, max=MOST_GB, metavar="GB", help="FSx for Lustre to pay for.")
    ] = 0,
    fsx_type: Annotated[
        str, typer.Option(metavar="ITEM", help="Which of it: fsx-scratch, fsx-persistent-125 and so on.")
    ] = "fsx-scratch",
    ebs: Annotated[int, typer.Option(min=0, max=MOST_GB, metavar="GB", help="EBS volumes to pay for.")] = 0,
    nat: Annotated[bool, typer.Option("--nat", help="Pay for a NAT gateway.")] = False,
    max_cost: Annotated[
        str | None, typer.Option(metavar="USD", help="Fail when it is planned to cost more.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Fail when it may not end by then, started now.")
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Find the cheapest and the fastest topology that fits.")
    ] = False,
    simulate: Annotated[
        str | None, typer.Option(metavar="nodes=A..B", help="Scaling curves over numbers of nodes.")
    ] = None,
    weak: Annotated[
        bool, typer.Option("--weak/--strong", help="Of --simulate: the update grows with the nodes, or not.")
    ] = False,
    mtbf_hours: Annotated[
        float | None,
        typer.Option(min=1, metavar="HOURS", help="Mean time between failures of a node."),
    ] = None,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Show how earlier plans of this machine have done.")
    ] = False,
    scale_down: ScaleDownOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether a training fits, how long it takes and what it costs, before anything is started."""
    refuse_idle(
        {
            "--accuracy": accuracy,
            "--search": search,
            "--simulate": simulate is not None,
            "--compare": compare is not None,
        },
        {
            "--instance": instance,
            "--nodes": nodes,
            "--weak": weak,
            "--mtbf-hours": mtbf_hours,
            "--max-cost": max_cost,
            "--until": until,
            "--set": changes,
            "--scale-down": scale_down,
            "--price": price,
            "--head": head,
            "--fsx": fsx,
            "--ebs": ebs,
            "--nat": nat,
        },
    )
    if accuracy:
        _accuracy(recipe, as_json)
        return
    recipe = _given(recipe)
    changes = scaled(recipe, changes, scale_down, quiet=as_json)
    rent = rent_of(price, head, fsx, fsx_type, ebs, nat)
    if search:
        _search(recipe, changes, instance, nodes, rent, max_cost, until, as_json)
        return
    limits = _limits(max_cost, until)
    if simulate is not None and instance is not None:
        from kitae.cli.plan_outlook import show_simulation

        show_simulation(
            *(recipe, changes, instance, simulate, rent),
            weak=weak,
            mtbf_hours=mtbf_hours,
            json_wanted=as_json,
        )
    elif compare is not None:
        _compare(recipe, changes, entries_of(compare), rent, as_json)
    elif instance is not None:
        limits(*_rented(recipe, changes, instance, nodes, rent, mtbf_hours, as_json))
    else:
        _here(recipe, changes, as_json)


def _accuracy(run: Path | None, as_json: bool) -> None:
    from kitae.cli.accuracy_tables import show_accuracy

    show_accuracy(run, json_wanted=as_json)


def _given(recipe: Path | None) -> Path:
    from kitae.errors import RecipeError

    if recipe is None:
        raise RecipeError("a recipe or a run is missing: kitae plan RECIPE, or kitae plan --accuracy")
    return recipe


def _here(recipe: Path, changes: list[str], as_json: bool) -> None:
    from kitae.cli.plan_tables import show
    from kitae.cli.run_verbs import refuse_launcher
    from kitae.stages.planning import plan_here

    refuse_launcher()
    facts, found = plan_here(recipe, changes, report=(lambda line: None) if as_json else print)
    if as_json:
        print(json.dumps(facts, indent=2))
    elif found is not None:
        show(found)


def _rented(
    recipe: Path,
    changes: list[str],
    name: str,
    nodes: int | None,
    rent: Rent,
    mtbf_hours: float | None,
    as_json: bool,
) -> tuple[Estimate, str | None]:
    """Show the plan; what it is, and the time limit of its job."""
    from kitae.cli.plan_tables import show
    from kitae.plan.facts import as_json as facts_of
    from kitae.stages.estimating import estimate_of, machine_of, open_plan, shape_of, trainable

    one = trainable(name)
    job = open_plan(recipe, changes, rented_as=one, nodes=nodes)
    shape = shape_of(job, guess=True)
    found = estimate_of(job, shape, machine_of(job, one), rent, mtbf_hours=mtbf_hours or float("inf"))
    if as_json:
        print(json.dumps(facts_of(found, *shape.notes), indent=2))
    else:
        show(found, *shape.notes)
    target = job.recipe.target
    return found, None if target.kind == "local" else target.time_limit


def _search(
    recipe: Path,
    changes: list[str],
    instance: str | None,
    nodes: int | None,
    rent: Rent,
    max_cost: str | None,
    until: str | None,
    as_json: bool,
) -> None:
    from kitae.cli.plan_outlook import show_search
    from kitae.plan.window import moment

    most = None if max_cost is None else usd_of("--max-cost", max_cost)
    end = None if until is None else moment(until)
    show_search(recipe, changes, instance, nodes, rent, most, end, as_json)


def _limits(max_cost: str | None, until: str | None) -> Callable[[Estimate, str | None], None]:
    """What raises `RecipeError` for a plan that costs more, or ends later, than it may."""
    from kitae.plan.money import refuse_above
    from kitae.plan.window import moment, refuse_after

    most = None if max_cost is None else usd_of("--max-cost", max_cost)
    end = None if until is None else moment(until)

    def check(found: Estimate, time_limit: str | None) -> None:
        refuse_above(found.bill.total if found.bill is not None else None, most)
        refuse_after(found, end, datetime.now(timezone.utc), time_limit)

    return check


def _compare(
    recipe: Path, changes: list[str], entries: list[tuple[str, int]], rent: Rent, as_json: bool
) -> None:
    from kitae.cli.plan_tables import show_comparison
    from kitae.plan.facts import as_json as facts_of
    from kitae.stages.estimating import compare

    lines = compare(recipe, changes, entries, rent)
    if as_json:
        found = [
            {"name": one.name, "nodes": one.nodes, "problem": one.problem}
            if one.found is None
            else facts_of(one.found)
            for one in lines
        ]
        print(json.dumps(found, indent=2))
    else:
        show_comparison(lines)
