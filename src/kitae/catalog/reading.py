"""The catalogue's files."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

from kitae.suggest import did_you_mean

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same parser, before it came into the standard library
    import tomli as tomllib


@cache
def read_table(name: str) -> dict[str, Any]:
    """The contents of `<name>.toml`."""
    return tomllib.loads(resources.files("kitae.catalog").joinpath(f"{name}.toml").read_text("utf-8"))


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """What to say of a name that the catalogue lacks: the nearest one, and the list."""
    names = list(known)
    return f"no {kind} is called {name!r}{did_you_mean(name, names)} There are: {', '.join(names)}"
