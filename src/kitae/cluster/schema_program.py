"""Run by the interpreter of ParallelCluster's environment: its schema on a configuration from standard input.

Prints a JSON list of `path: message`. Nothing of kitae can be imported here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from marshmallow import ValidationError
from pcluster.schemas.cluster_schema import ClusterSchema


def flat(messages: Any, path: str = "") -> Iterator[str]:
    """Leaves of what marshmallow says, each with the path that leads there."""
    if isinstance(messages, dict):
        for key, below in messages.items():
            step = "" if key == "_schema" else f".{key}" if path else str(key)
            yield from flat(below, f"{path}{step}")
    elif isinstance(messages, list):
        for one in messages:
            yield from flat(one, path)
    else:
        yield f"{path}: {messages}"


def main() -> None:
    """Check what comes in."""
    try:
        ClusterSchema(cluster_name=sys.argv[1]).load(json.load(sys.stdin))
        found: list[str] = []
    except ValidationError as error:
        found = list(flat(error.messages))
    print(json.dumps(found))


main()
