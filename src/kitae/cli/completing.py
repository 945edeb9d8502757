"""What a shell completes on the command line of kitae; nothing here imports torch.

A shell's script asks by running kitae with `VARIABLE` set (typer's protocol). What may stand in a place is
told by its metavar, which is the same in every verb, so that a new verb needs nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

VARIABLE = "_KITAE_COMPLETE"
PROGRAM = "kitae"
_HEAD_BYTES = 4096
_RECIPE, _CLUSTER = (re.compile(rf"^{key}: *1\b", re.MULTILINE) for key in ("kitae", "kitae_cluster"))

_BASH = """\
_kitae_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %s=complete_bash $1 2>/dev/null) )
    # What ends so goes on: no blank behind it.
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=] ]] && compopt -o nospace
    return 0
}
complete -o default -F _kitae_completion kitae
"""


@dataclass(frozen=True)
class Item:
    """One completion, with the fields that typer's shells read."""

    value: str
    help: str | None = None
    type: str = "plain"


def script(shell: str) -> str:
    """The script that a shell reads to complete kitae's words."""
    from typer import completion

    if shell == "bash":
        return _BASH % VARIABLE
    found: str = completion.get_completion_script(  # type: ignore[attr-defined]
        prog_name=PROGRAM, complete_var=VARIABLE, shell=shell
    )
    return found + "\n"


def answer(app: typer.Typer) -> int:
    """Print what the shell asks for; the exit code."""
    from typer import completion

    completion.completion_init()  # type: ignore[attr-defined]
    command = typer.main.get_command(app)
    _teach(command)
    return int(completion.shell_complete(command, {}, PROGRAM, VARIABLE, os.environ[VARIABLE]))


def _teach(command: Any) -> None:
    """Let parameters of this command, and of those below, complete by their metavars."""
    for parameter in command.params:
        find = _of(parameter)
        if find is not None:
            parameter.shell_complete = _completer(find)
    for below in getattr(command, "commands", {}).values():
        _teach(below)


def _of(parameter: Any) -> Callable[[str], Iterator[str]] | None:
    option = parameter.opts[0] if parameter.param_type_name == "option" else None
    metavar = str(parameter.metavar or "").strip("[].")
    return _BY_OPTION.get(option or "") or (_BY_ARGUMENT.get(metavar) if option is None else None)


def _completer(find: Callable[[str], Iterator[str]]) -> Callable[[Any, str], list[Item]]:
    def complete(context: Any, incomplete: str) -> list[Item]:
        return [Item(value) for value in sorted(set(find(incomplete)))]

    return complete


def _beginning(values: Iterator[str] | list[str], incomplete: str) -> Iterator[str]:
    return (value for value in values if value.startswith(incomplete))


def _files(incomplete: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """YAML files that begin as the pattern says, and folders."""
    head, _, start = incomplete.rpartition("/")
    folder = Path(f"{head}/" if incomplete.startswith("/") or head else ".").expanduser()
    before = f"{head}/" if "/" in incomplete else ""
    try:
        entries = [one for one in folder.iterdir() if one.name.startswith(start)]
    except OSError:
        return
    for one in entries:
        if one.name.startswith(".") and not start.startswith("."):
            continue
        if one.is_dir():
            yield f"{before}{one.name}/"
        elif one.suffix in (".yaml", ".yml") and pattern.search(_head(one)):
            yield f"{before}{one.name}"


def _head(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _recipes(incomplete: str) -> Iterator[str]:
    yield from _files(incomplete, _RECIPE)


def _clusters(incomplete: str) -> Iterator[str]:
    yield from _files(incomplete, _CLUSTER)


def _runs(incomplete: str) -> Iterator[str]:
    """Names of runs in `runs/`, and their folders."""
    names = [one.parent.name for one in Path("runs").glob("*/run.json")]
    yield from _beginning(names, incomplete)
    if incomplete.startswith("runs/"):
        yield from _beginning([f"runs/{name}" for name in names], incomplete)


def _run_folders(incomplete: str) -> Iterator[str]:
    folders = [str(one.parent) for one in Path("runs").glob("*/run.json")]
    yield from _beginning(folders, incomplete)


def _recipes_and_runs(incomplete: str) -> Iterator[str]:
    yield from _recipes(incomplete)
    yield from _run_folders(incomplete)


def _machines(incomplete: str) -> Iterator[str]:
    from kitae.catalog import instances

    yield from _beginning(list(instances()), incomplete)


def _catalogue(incomplete: str) -> Iterator[str]:
    from kitae.catalog import instances, items
    from kitae.catalog.models import named_models, presets

    yield from _beginning([*instances(), *items(), *presets(), *named_models()], incomplete)


def _models(incomplete: str) -> Iterator[str]:
    from kitae.catalog.models import named_models, presets

    yield from _beginning([*named_models(), *presets()], incomplete)


def _keys(incomplete: str) -> Iterator[str]:
    """Keys of the recipe, down to the one that is written; behind `=` nothing."""
    from kitae.recipe.fields import Wanted, all_fields

    for path, info in all_fields():
        if "[]" not in path and not Wanted.of(info).section() and path.startswith(incomplete):
            yield f"{path}="


def _backends(incomplete: str) -> Iterator[str]:
    yield from _beginning(["auto", "cpu", "cuda", "xla", "neuron"], incomplete)


def _targets(incomplete: str) -> Iterator[str]:
    yield from _beginning(["local", "slurm", "ssh"], incomplete)


def _small(incomplete: str) -> Iterator[str]:
    yield from _beginning(["cpu"], incomplete)


_BY_ARGUMENT: dict[str, Callable[[str], Iterator[str]]] = {
    "RECIPE": _recipes,
    "RECIPE|RUN": _recipes_and_runs,
    "RECIPE|FOLDER": _recipes,
    "RECIPE|RUN|FOLDER|NXD": _recipes_and_runs,
    "RUN|FOLDER": _run_folders,
    "RUN|FOLDER|NXD": _run_folders,
    "RUN": _runs,
    "FILE": _clusters,
    "FILE|NAME": _clusters,
    "NAME": _catalogue,
}
"""Metavar of an argument -> what may stand there."""
_BY_OPTION: dict[str, Callable[[str], Iterator[str]]] = {
    "--set": _keys,
    "--instance": _machines,
    "--backend": _backends,
    "--target": _targets,
    "--scale-down": _small,
    "--model": _models,
    "--of": _run_folders,
}
