"""Numbers of one scrape, and their form for prometheus-client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kitae.watch.exporter.families import BY_NAME, FAMILIES, Family

Value = float | int | bool | None
UNITS = ("seconds", "bytes", "ratio", "usd", "celsius", "watts")


class Numbers:
    """Values by family and labels; each pair is there once."""

    def __init__(self) -> None:
        self._found: dict[str, dict[tuple[str, ...], float]] = {}

    def add(self, name: str, value: Value, *labels: object) -> None:
        """Note a value; nothing where it is None. The labels come in the order of the family, `run` first."""
        if value is not None:
            family = BY_NAME[name]
            assert len(labels) == len(family.labels) + family.of_run, name
            self._found.setdefault(name, {})[tuple(map(str, labels))] = float(value)

    def update(self, other: Numbers) -> None:
        """Take those of another, such as of one run."""
        for name, values in other._found.items():
            self._found.setdefault(name, {}).update(values)

    def only_rising(self, name: str, most: dict[tuple[str, ...], float]) -> None:
        """Let a counter stand still where its source fell back, as after a resume; `most` remembers."""
        for labels, value in self._found.get(name, {}).items():
            most[labels] = self._found[name][labels] = max(value, most.get(labels, 0.0))

    def families(self) -> Iterator[Metric]:
        """In the order of the table; those without a value are left out."""
        for family in FAMILIES:
            if family.name in self._found:
                yield _filled(family, self._found[family.name])


def _filled(family: Family, values: dict[tuple[str, ...], float]) -> Metric:
    labels = (*(("run",) if family.of_run else ()), *family.labels)
    if family.kind == "info":
        made = Metric(family.name.removesuffix("_info"), family.help, "info")
        for given, value in values.items():
            made.add_sample(family.name, dict(zip(labels, given, strict=True)), value)
        return made
    kind: Any = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    unit = family.name.removesuffix("_total").rpartition("_")[2]
    filled: Metric = kind(family.name, family.help, labels=labels, unit=unit if unit in UNITS else "")
    for given, value in values.items():
        filled.add_metric(given, value)  # type: ignore[attr-defined]
    return filled
