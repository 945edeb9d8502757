"""`kitae plan`: memory, time and money of a recipe before it starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kitae.cli.recipe_verbs import SetOption

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
        int | None, typer.Option(min=1, help="How many of it; all their processes train.")
    ] = None,
    compare: Annotated[
        str | None, typer.Option(metavar="NAME:NODES,...", help="Compare several machines, time counted.")
    ] = None,
    price: Annotated[
        list[str], typer.Option(metavar="ITEM=USD", help="A price that is unknown, or another one.")
    ] = [],  # noqa: B006
    head: Annotated[str | None, typer.Option(metavar="NAME", help="Head node to pay for.")] = None,
    fsx: Annotated[int, typer.Option(min=0, metavar="GB", help="FSx for Lustre to pay for.")] = 0,
    fsx_type: Annotated[
        str, typer.Option(metavar="ITEM", help="Which of it: fsx-scratch, fsx-persistent-125 and so on.")
    ] = "fsx-scratch",
    ebs: Annotated[int, typer.Option(min=0, metavar="GB", help="EBS volumes to pay for.")] = 0,
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether a training fits, how long it takes and what it costs, before anything is started."""
    if accuracy:
        _accuracy(recipe, as_json)
        return
    recipe = _given(recipe)
    kind = _kind({"--search": search, "--simulate": simulate is not None, "--compare": compare is not None})
    _refuse_idle(kind, {"--weak": weak, "--mtbf-hours": mtbf_hours, "--max-cost": max_cost, "--until": until})
    rent = _rent(price, head, fsx, fsx_type, ebs, nat)
    if search:
        _search(recipe, changes, instance, nodes, rent, max_cost, until, as_json)
        return
    limits = _limits(max_cost, until)
    if instance is None:
        _refuse_lonely({"--simulate": simulate, "--nodes": nodes, "--mtbf-hours": mtbf_hours})
        _refuse_lonely({"--max-cost": max_cost, "--until": until})
    if simulate is not None and instance is not None:
        from kitae.cli.plan_outlook import show_simulation

        show_simulation(
            *(recipe, changes, instance, simulate, rent),
            weak=weak,
            mtbf_hours=mtbf_hours,
            json_wanted=as_json,
        )
    elif compare is not None:
        _compare(recipe, changes, compare, rent, as_json)
    elif instance is not None:
        limits(*_rented(recipe, changes, instance, nodes, rent, mtbf_hours, as_json))
    else:
        _here(recipe, changes, as_json)


_HEEDED = {
    "": ("--mtbf-hours", "--max-cost", "--until"),
    "--search": ("--max-cost", "--until"),
    "--simulate": ("--weak", "--mtbf-hours"),
    "--compare": (),
}
"""Options that only some kinds of plans heed, by kind."""


def _kind(given: dict[str, bool]) -> str:
    """Which of several plans is wanted. Raises `RecipeError` for two of them."""
    from kitae.errors import RecipeError

    first, *others = [*(option for option, wanted in given.items() if wanted), ""]
    if len(others) > 1:
        raise RecipeError(f"{first} and {others[0]} are two different plans; take one of them out")
    return first


def _refuse_idle(kind: str, given: dict[str, object]) -> None:
    """Raise `RecipeError` for an option that this kind of plan does not heed."""
    from kitae.errors import RecipeError

    for option, value in given.items():
        if value and option not in _HEEDED[kind]:
            where = [name for name, heeded in _HEEDED.items() if option in heeded and name]
            out = f"it is for {' and '.join(where)}" if not kind else f"take it, or {kind}, out"
            raise RecipeError(f"{option}: it has no effect here; {out}")


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

    most = None if max_cost is None else _usd("--max-cost", max_cost)
    end = None if until is None else moment(until)
    show_search(recipe, changes, instance, nodes, rent, most, end, as_json)


def _limits(max_cost: str | None, until: str | None) -> Callable[[Estimate, str | None], None]:
    """What raises `RecipeError` for a plan that costs more, or ends later, than it may."""
    from kitae.plan.money import refuse_above
    from kitae.plan.window import moment, refuse_after

    most = None if max_cost is None else _usd("--max-cost", max_cost)
    end = None if until is None else moment(until)

    def check(found: Estimate, time_limit: str | None) -> None:
        refuse_above(found.bill.total if found.bill is not None else None, most)
        refuse_after(found, end, datetime.now(timezone.utc), time_limit)

    return check


def _refuse_lonely(given: dict[str, object]) -> None:
    from kitae.errors import RecipeError

    for option, value in given.items():
        if value is not None:
            raise RecipeError(f"{option}: it needs --instance, the machine that it is about")


def _compare(recipe: Path, changes: list[str], text: str, rent: Rent, as_json: bool) -> None:
    from kitae.cli.plan_tables import show_comparison
    from kitae.plan.facts import as_json as facts_of
    from kitae.stages.estimating import compare

    lines = compare(recipe, changes, _entries(text), rent)
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


def _entries(text: str) -> list[tuple[str, int]]:
    from kitae.errors import RecipeError

    entries = []
    for part in text.split(","):
        name, colon, count = part.strip().rpartition(":")
        if not colon or not count.isdigit() or int(count) < 1:
            raise RecipeError(f"--compare: {part.strip()!r} is not NAME:NODES, such as trn1.32xlarge:4")
        entries.append((name, int(count)))
    return entries


def _rent(price: list[str], head: str | None, fsx: int, fsx_type: str, ebs: int, nat: bool) -> Rent:
    from kitae.catalog import instance, items
    from kitae.catalog.reading import unknown
    from kitae.errors import RecipeError
    from kitae.plan.money import Rent

    prices = {}
    for text in price:
        item, equals, usd = text.partition("=")
        if not equals:
            raise RecipeError(f"--price: {text!r} is not ITEM=USD, such as trn2.48xlarge=12.34")
        prices[item.strip()] = _usd("--price", usd)
    if head is not None:
        instance(head)
    if fsx_type not in items():
        raise RecipeError(
            f"--fsx-type: {unknown('file system', fsx_type, [n for n in items() if 'fsx' in n])}"
        )
    return Rent(head=head, fsx_gb=fsx, fsx_type=fsx_type, ebs_gb=ebs, nat=nat, prices=prices)


def _usd(option: str, text: str) -> Decimal:
    from kitae.errors import RecipeError

    try:
        usd = Decimal(text.strip().removeprefix("$").replace(",", ""))
    except InvalidOperation:
        raise RecipeError(f"{option}: {text!r} is no number of US dollars") from None
    if not usd.is_finite() or usd <= 0:
        raise RecipeError(f"{option}: {text} is not above 0")
    return usd
