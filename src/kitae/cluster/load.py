"""A cluster file becomes a checked `ClusterFile` that knows on which line each value stands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from kitae.cluster.schema import FORMAT, ClusterFile
from kitae.errors import RecipeError
from kitae.recipe.load import listing
from kitae.recipe.messages import problems
from kitae.recipe.overrides import Settings
from kitae.recipe.yaml_positions import KeyPath, parse, read_text


@dataclass(frozen=True)
class LoadedCluster:
    """A cluster file that its schema accepts, and where its values stand."""

    file: ClusterFile
    path: Path
    settings: Settings

    def place(self, where: KeyPath) -> str:
        """Where a value, or the nearest thing above it, was written: `cluster.yaml:12` or `--set a.b=c`."""
        return self.settings.place(where, str(self.path))

    def line(self, where: KeyPath) -> int:
        """The line of a value or of the nearest thing above it; 0 where it is not in the file."""
        for length in range(len(where), 0, -1):
            if where[:length] in self.settings.lines:
                return self.settings.lines[where[:length]]
        return 0


def load_cluster(path: Path | str, overrides: Sequence[str] = ()) -> LoadedCluster:
    """Read a cluster file and put `section.key=value` flags over it.

    Raises one `RecipeError` that lists everything that is wrong: file and line (or flag), field and way out.
    """
    path = Path(path)
    if not path.exists():
        raise RecipeError(f"{path}: there is no such file; `kitae cluster init` writes one")
    document = parse(read_text(path), str(path))
    _check_format(document.value, path)
    settings = Settings(document)
    for flag in overrides:
        settings.set(flag)
    try:
        file = ClusterFile.model_validate_json(json.dumps(settings.values), strict=True)
    except ValidationError as error:
        found = problems(error, settings.values, ClusterFile)
        named = [(settings, path, where, f"{what} [{_rule(what)}]") for where, what in found]
        raise RecipeError(listing(named)) from None
    return LoadedCluster(file, path, settings)


def _rule(message: str) -> str:
    """Name of the rule that the schema's message is of."""
    names = {"unknown key": "unknown-key", "missing": "missing-key"}
    return next((name for start, name in names.items() if message.startswith(start)), "value")


def _check_format(values: object, path: Path) -> None:
    head = f"a cluster file begins with 'kitae_cluster: {FORMAT}' (see docs/cluster-file.md)"
    if not isinstance(values, dict):
        raise RecipeError(f"{path}:1: found no mapping; {head}")
    if "kitae" in values and "kitae_cluster" not in values:
        raise RecipeError(f"{path}:1: this is a recipe; {head}; `kitae cluster init` writes one")
    version = values.get("kitae_cluster")
    if type(version) is int and version > FORMAT:
        raise RecipeError(
            f"{path}:1: kitae_cluster: the file is of format {version}, and this kitae reads {FORMAT}; "
            "install a newer kitae"
        )
    if type(version) is not int or version < FORMAT:
        raise RecipeError(f"{path}:1: kitae_cluster: found {version!r}; {head}")
