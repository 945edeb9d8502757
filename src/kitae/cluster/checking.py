"""A cluster file, checked: the rules, the configuration beside it, ParallelCluster's schema, the money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from kitae.cluster.check import check, line_of, refuse_errors
from kitae.cluster.config import PLACEHOLDER, Site, config_of
from kitae.cluster.load import LoadedCluster, load_cluster
from kitae.cluster.moments import end_of, shown
from kitae.cluster.money import dollars, tariff
from kitae.cluster.pcluster import find
from kitae.cluster.schema import ClusterFile
from kitae.errors import RecipeError
from kitae.recipe.yaml_positions import RecipeDumper
from kitae.storage.files import replace_file

_LEFT_OUT = (
    "note: ParallelCluster's own schema was left out, as its environment is not there; "
    "kitae cluster engine makes it"
)


@dataclass(frozen=True)
class Report:
    """What there is to say of a file that is right."""

    loaded: LoadedCluster
    remarks: tuple[str, ...]
    """Warnings and notes."""
    lines: tuple[str, ...]


def checked(path: Path, changes: Sequence[str], now: datetime) -> Report:
    """Check a file and write the configuration beside it. Raises `RecipeError` with all that is wrong."""
    loaded = load_cluster(path, changes)
    findings = check(loaded, now)
    refuse_errors(loaded, findings)
    config = config_of(loaded.file, PLACEHOLDER)
    left_out = refuse_by_schema(path, loaded.file, config)
    beside = write_config(path, config, PLACEHOLDER)
    remarks = [f"{one.level}: {line_of(loaded, one)}" for one in findings]
    return Report(
        loaded, (*remarks, *left_out), (*money_lines(loaded.file, now), f"{beside} is written", "right")
    )


def refuse_by_schema(path: Path, file: ClusterFile, config: dict[str, Any]) -> tuple[str, ...]:
    """Raise `RecipeError` for what ParallelCluster's schema refuses; a note where it cannot be asked."""
    engine = find()
    if engine is None:
        return (_LEFT_OUT,)
    problems = engine.schema_problems(config, file.name)
    if problems:
        raise RecipeError(
            f"{path}: ParallelCluster refuses what follows from it: {'; '.join(problems)} "
            "[parallelcluster-schema]"
        )
    return ()


def write_config(path: Path, config: dict[str, Any], site: Site) -> Path:
    """Write ParallelCluster's configuration beside the cluster file; its path."""
    beside = path.with_suffix(".pcluster.yaml")
    made = (
        "Subnets, groups and bucket are placeholders until `kitae cluster up`.\n# "
        if site is PLACEHOLDER
        else ""
    )
    head = f"# ParallelCluster's configuration. {made}Made from {path.name} by kitae; change that one.\n"
    text = yaml.dump(config, Dumper=RecipeDumper, sort_keys=False, allow_unicode=True)
    replace_file(beside, (head + text).encode())
    return beside


def money_lines(file: ClusterFile, now: datetime) -> list[str]:
    """What it costs, by the line."""
    rates = tariff(file)
    end = end_of(file.limits.until, now)
    hours = (end - now) / timedelta(hours=1)
    rows = [
        (
            f"{rate.item} ({rate.what})",
            _shown(rate.idle_usd),
            _shown(rate.full_usd),
        )
        for rate in rates.rates
    ]
    table = [("US$ an hour", "while idle", "all queues full"), *rows]
    table.append(("together", dollars(rates.idle_usd), dollars(rates.full_usd)))
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    lines = [f"{a:{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in table]
    most = dollars(rates.full_usd * _decimal(hours))
    lines.append(f"until {shown(end)}: at most {most} of {dollars(_decimal(file.limits.max_cost_usd))}")
    lines.append(f"a month of what stays on while idle: {dollars(rates.idle_usd * 730)}")
    return lines


def _shown(usd: Decimal | None) -> str:
    return "unknown" if usd is None else dollars(usd)


def _decimal(number: float) -> Decimal:
    return Decimal(str(number))
