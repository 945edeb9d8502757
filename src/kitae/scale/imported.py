"""Numbers that somebody has recorded, judged as measurements are: `scale.json`, or rows of CSV or JSON.

A row has a width (`width`, `workers` or `nodes`) and a rate (`tokens_per_s`, `sequences_per_s`, or its other
names) or `step_s`. `round` says which rows are compared with each other; without it, those of the same place
among the rows of their width are. `kind` (strong or weak) sorts rows of a file that has both.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kitae.errors import RecipeError
from kitae.scale.measured import ABOUT, Measured, SlowRank, Waits
from kitae.scale.result import Scaling
from kitae.scale.share import Kind

Row = Mapping[str, Any]
WIDTHS = {"width": "workers", "workers": "workers", "processes": "workers", "nodes": "nodes"}
"""Name of the column -> what it counts."""
RATES = {
    "rate": "tokens",
    "tokens_per_s": "tokens",
    "sequences_per_s": "sequences",
    "seq_per_s": "sequences",
    "samples_per_s": "sequences",
    "rows_per_s": "sequences",
}
"""Name of the column -> what it counts."""
FORMS = f"a width ({', '.join(WIDTHS)}) and a rate ({', '.join(RATES)}) or step_s"


def imported(path: Path, kind: Kind, threshold: float) -> Scaling:
    """What a file holds of one kind. Raises `RecipeError` for one that cannot be read, with the row."""
    rows, about = _read(path)
    if about.get("kitae_scale"):
        return _again(about, path, kind, threshold)
    own = [(number, row) for number, row in rows if row.get("kind") in (None, "", kind)]
    if not own:
        raise RecipeError(
            f"{path}: no row is of {kind} scaling; give --strong or --weak as the column kind has it"
        )
    return _of_rows(path, own, kind, threshold)


def _read(path: Path) -> tuple[list[tuple[int, Row]], Mapping[str, Any]]:
    """Rows with their numbers in the file, and what else a JSON file says."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise RecipeError(f"--from {path}: cannot be read: {reason}") from None
    if path.suffix == ".json" or text.lstrip().startswith(("{", "[")):
        return _json(path, text)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    reader = csv.DictReader(io.StringIO("\n".join(lines)), skipinitialspace=True)
    return [(number, row) for number, row in enumerate(reader, 1)], {}


def _json(path: Path, text: str) -> tuple[list[tuple[int, Row]], Mapping[str, Any]]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RecipeError(f"--from {path}: broken JSON: {error}") from None
    if isinstance(value, dict) and value.get("kitae_scale"):
        return [], value
    rows = value.get("rows") if isinstance(value, dict) else value
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RecipeError(f"--from {path}: found no list of rows; each needs {FORMS}")
    return list(enumerate(rows, 1)), {}


def _of_rows(path: Path, rows: Sequence[tuple[int, Row]], kind: Kind, threshold: float) -> Scaling:
    unit, width_column = _unit(path, rows[0][1])
    rate_of, rate_column = _rate(path, rows[0][1])
    seen: Counter[int] = Counter()
    measured = []
    for number, row in rows:
        width = _whole(path, number, row, width_column)
        seen[width] += 1
        value = _number(path, number, row, rate_column)
        step_s = value if rate_column == "step_s" else None
        measured.append(
            Measured(
                width=width,
                round=str(row.get("round") or row.get("repeat") or seen[width]),
                rate=value if step_s is None else _rate_of_step(kind, width, value),
                step_s=step_s,
            )
        )
    widths = sorted(seen)
    return Scaling(path.stem, kind, unit, rate_of, threshold, widths, measured, wanted=len(measured))


def _unit(path: Path, row: Row) -> tuple[str, str]:
    column = next((name for name in WIDTHS if name in row), None)
    if column is None:
        raise RecipeError(f"--from {path}: no column is a width; each row needs {FORMS}")
    return WIDTHS[column], column


def _rate(path: Path, row: Row) -> tuple[str, str]:
    column = next((name for name in (*RATES, "step_s") if name in row), None)
    if column is None:
        raise RecipeError(f"--from {path}: no column is a rate; each row needs {FORMS}")
    return RATES.get(column, "updates" if column == "step_s" else ""), column


def _rate_of_step(kind: Kind, width: int, step_s: float) -> float:
    """Work a second: of an update that is always the same, or that grows with the width."""
    return (1 if kind == "strong" else width) / step_s


def _whole(path: Path, number: int, row: Row, column: str) -> int:
    value = _number(path, number, row, column)
    if value != int(value):
        raise RecipeError(f"--from {path}: row {number}: {column}: {value:g} is no whole number")
    return int(value)


def _number(path: Path, number: int, row: Row, column: str) -> float:
    text = row.get(column)
    try:
        value = float(str(text).replace(",", "").strip())
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise RecipeError(f"--from {path}: row {number}: {column}: {text!r} is no number above 0")
    return value


def _again(about: Mapping[str, Any], path: Path, kind: Kind, threshold: float) -> Scaling:
    """The measurements of a `scale.json`, judged anew."""
    if about.get("kind") != kind:
        raise RecipeError(f"--from {path}: it is of {about.get('kind')} scaling; give --{about.get('kind')}")
    try:
        measured = [_trial(one, about["widths"]) for one in about["trials"]]
        widths = [row["width"] for row in about["widths"]]
        failed = {row["width"]: row["failed"] for row in about["widths"] if row["failed"] is not None}
        unit, rate_of, name = about["unit"], about["rate_of"], about["name"]
    except (KeyError, TypeError) as error:
        raise RecipeError(f"--from {path}: this scale.json lacks {error}") from None
    described = {key: value for key, value in about.items() if key in DESCRIBED}
    price = {row["width"]: row["usd_an_hour"] for row in about["widths"] if row.get("usd_an_hour")}
    return Scaling(
        *(name, kind, unit, rate_of, threshold, widths, measured, failed),
        price=price,
        about=described,
        warnings=about.get("warnings", ()),
        wanted=len(measured),
    )


DESCRIBED = ("made", "machine", "backend", "precision", "phase", "steps", "warm_up", "recipe")
"""Keys of `scale.json` that say what was measured."""


def _trial(one: Row, rows: Sequence[Row]) -> Measured:
    about = next(row for row in rows if row["width"] == one["width"])
    waits = one.get("waits")
    return Measured(
        **{
            **one,
            "waits": None if waits is None else Waits(**waits),
            "slow": tuple(SlowRank(**slow) for slow in one.get("slow", ())),
            "losses": tuple(one.get("losses", ())),
            "grad_norms": tuple(one.get("grad_norms", ())),
            "about": {key: about[key] for key in about if key in ABOUT},
        }
    )
