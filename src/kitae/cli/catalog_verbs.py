"""`kitae catalog`: the dated facts that plans are made of."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kitae.catalog import Instance

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
UNKNOWN = "unknown: give --price"
_HEAD: tuple[str, ...] = (
    *("instance", "processes", "memory each", "vCPU", "host", "network"),
    "US$ an hour",
)


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    group = typer.Typer(no_args_is_help=True, help="Show machines, their chips, and dated prices.")
    group.command("list")(list_entries)
    group.command("show")(show)
    group.command("refresh")(refresh)
    app.add_typer(group, name="catalog")


def list_entries(as_json: JsonOption = False) -> None:
    """List machines with their accelerators, memory and price, and the prices of storage and network."""
    from kitae.catalog import instances, items

    if as_json:
        print(json.dumps([_facts(one) for one in instances().values()], indent=2, default=str))
        return
    _print_columns([_HEAD, *(_row(one) for one in instances().values()), _here()])
    print()
    _print_columns([(name, one.what, _cost(name, f" a {one.unit}")) for name, one in items().items()])


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An instance, such as trn1.32xlarge.")],
    as_json: JsonOption = False,
) -> None:
    """Show all that is known of a machine, with dates and sources."""
    from kitae.catalog import instance

    facts = _facts(instance(name))
    if as_json:
        print(json.dumps(facts, indent=2, default=str))
        return
    _print_columns(list(_lines(facts)))


def refresh(
    items: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ITEM]...", help="Machines or items; else all."),
    ] = None,
    region: Annotated[str, typer.Option(help="Region that prices are asked for.")] = "us-west-2",
    as_json: JsonOption = False,
) -> None:
    """Ask AWS for today's prices on demand, and keep them for this user; what is not answered stays."""
    from datetime import datetime, timezone

    from kitae.catalog.price_api import open_price_list
    from kitae.catalog.refresh import refresh as renewed
    from kitae.catalog.refreshed import prices_file

    today = datetime.now(timezone.utc).date()
    changes = list(renewed(open_price_list(), region, items or (), today))
    if as_json:
        print(json.dumps([asdict(one) for one in changes], indent=2, default=str))
        return
    for one in changes:
        print(one.line)
    answered = sum(one.after is not None for one in changes)
    print(f"{answered} of {len(changes)} prices of {region}: {prices_file()}")


def _facts(one: Instance) -> dict[str, Any]:
    from kitae.catalog import price_of

    price = price_of(one.name)
    return {**asdict(one), "devices": one.devices, "price": None if price is None else asdict(price)}


def _lines(facts: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for name, value in facts.items():
        if isinstance(value, dict):
            lines += _lines(value, f"{prefix}{name}.")
        elif prefix + name == "price":
            lines.append(("price", UNKNOWN))
        elif value is not None and value != ():
            lines.append((prefix + name, ", ".join(value) if isinstance(value, tuple) else str(value)))
    return lines


def _row(one: Instance) -> tuple[str, ...]:
    memory = f"{one.chip.memory_gib:g} GiB" if one.chip is not None else "-"
    network = f"{one.network_gbps:g} Gb/s"
    return (
        one.name,
        str(one.devices or "-"),
        memory,
        str(one.vcpus),
        f"{one.host_gib:g} GiB",
        network,
        _cost(one.name),
    )


def _cost(item: str, unit: str = "") -> str:
    from kitae.catalog import price_of

    price = price_of(item)
    if price is None:
        return UNKNOWN
    day = f"refreshed {price.date}" if price.refreshed else str(price.date)
    return f"{price.usd}{unit} ({price.region}, {day})"


def _here() -> tuple[str, ...]:
    """The machine that this runs on, as it is now."""
    import psutil

    host = f"{psutil.virtual_memory().total / 2**30:.1f} GiB"
    return ("this machine", "1", "the host's", str(psutil.cpu_count() or 1), host, "-", "-")


def _print_columns(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
