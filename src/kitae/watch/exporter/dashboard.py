"""The dashboard of Grafana over what is exported, as the file that Grafana imports."""

from __future__ import annotations

import json
from typing import Any

from kitae.watch.exporter.families import BY_NAME
from kitae.watch.exporter.panels import ROWS, Panel

WIDTH = 24
"""Of a row, in Grafana's units."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
                "panels": [],
            }
        )
        left, top = 0, top + 1
        for panel in row:
            if left + panel.width > WIDTH:
                left, top = 0, top + panel.height
            panels.append(_panel(panel, len(panels) + 1, left, top))
            left += panel.width
        top += row[-1].height
    return {
        "uid": "kitae",
        "title": "kitae: runs and their machines",
        "tags": ["kitae"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": panels,
    }


def dashboard_json() -> str:
    """The same as a file."""
    return json.dumps(dashboard(), indent=1) + "\n"


def _panel(panel: Panel, number: int, left: int, top: int) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0 if panel.most is not None else None}
    defaults |= {"max": panel.most}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": " ".join(dict.fromkeys(_helps(panel))),
        "datasource": _SOURCE,
        "gridPos": {"x": left, "y": top, "w": panel.width, "h": panel.height},
        "fieldConfig": {"defaults": {k: v for k, v in defaults.items() if v is not None}, "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {"legend": {"displayMode": "list"}, "tooltip": {"mode": "multi", "sort": "desc"}},
    "stat": {"textMode": "value_and_name", "reduceOptions": {"calcs": ["lastNotNull"]}},
}


def _helps(panel: Panel) -> list[str]:
    """What the metrics of a panel mean."""
    return [BY_NAME[name].help for name in BY_NAME if any(name in query for query, _ in panel.queries)]


def _variables() -> list[dict[str, Any]]:
    """What is chosen on top: where the numbers lie, which runs, which machines."""
    several = {"type": "query", "datasource": _SOURCE, "multi": True, "includeAll": True, "refresh": 2}
    several |= {"allValue": ".*", "current": {"text": "All", "value": "$__all"}, "sort": 1}
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
        {
            **several,
            "name": "run",
            "label": "Run",
            "query": "label_values(kitae_run_info, run)",
        },
        {
            **several,
            "name": "node",
            "label": "Node",
            "query": 'label_values(kitae_node_sample_timestamp_seconds{run=~"$run"}, node)',
        },
    ]
