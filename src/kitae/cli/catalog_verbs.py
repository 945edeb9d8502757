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
    app.add_typer(group, name="catalog")


def list_entries(as_json: JsonOption = False) -> None:
    """List machines with their accelerators, memory and price, and the prices of storage and network."""
    from kitae.catalog import instances, prices

    if as_json:
        print(json.dumps([_facts(one) for one in instances().values()], indent=2, default=str))
        return
    _print_columns([_HEAD, *(_row(one) for one in instances().values())])
    print()
    others = [one for one in prices().values() if one.item not in instances()]
    _print_columns([(one.item, f"${one.usd} a {one.unit}", one.region, str(one.date)) for one in others])


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
    from kitae.catalog import price_of

    price = price_of(one.name)
    cost = UNKNOWN if price is None else f"{price.usd} ({price.region}, {price.date})"
    memory = f"{one.chip.memory_gib:g} GiB" if one.chip is not None else "-"
    network = f"{one.network_gbps:g} Gb/s"
    return (one.name, str(one.devices or "-"), memory, str(one.vcpus), f"{one.host_gib:g} GiB", network, cost)


def _print_columns(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
