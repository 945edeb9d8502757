"""`kitae completion`: the script by which a shell completes kitae's words."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer


class Shell(str, Enum):
    """Shells that can complete kitae's words."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command("completion")(completion)


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell to print it for.")],
) -> None:
    """Print the script that makes a shell complete verbs, options, recipes, runs and catalogue names."""
    from kitae.cli.completing import script

    print(script(shell.value), end="")
