"""The summary with which neuron_parallel_compile ends: JSON in its log, perhaps with `INFO:` before lines."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from kitae.precompile.cache_neuron import MODULE

_BEGIN = re.compile(r"\|\|NEURON_PARALLEL_COMPILE\|\|:\s*(?=\{)")
_PREFIX = re.compile(r"^INFO:[ \t]?", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """How the compilation of one graph ended."""

    worked: bool
    retries: int
    seconds: float | None = None
    """Only with NEURON_PARALLEL_COMPILE_DUMP_RESULTS."""


@dataclass(frozen=True)
class Summary:
    """What was compiled this time: not what was there before."""

    graphs: dict[str, Outcome]
    seconds: float | None = None


def read_summary(text: str) -> Summary | None:
    """The last summary in a log; None where there is none that can be read. It proves nothing by itself."""
    plain = _PREFIX.sub("", text)
    for begin in reversed(list(_BEGIN.finditer(plain))):
        try:
            value, _ = json.JSONDecoder().raw_decode(plain, begin.end())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("compilation_report"), dict):
            return _summary(value)
    return None


def _summary(value: dict[str, object]) -> Summary:
    report = value["compilation_report"]
    assert isinstance(report, dict)
    graphs = {}
    for path, said in report.items():
        name = MODULE.search(path)
        if name is not None and isinstance(said, dict):
            seconds = said.get("compile_time")
            graphs[name[0]] = Outcome(said.get("status") is True, _count(said.get("retry")), _number(seconds))
    return Summary(graphs, _number(value.get("compilation_time")))


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
