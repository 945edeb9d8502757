"""Runs on a cluster behind a head node: submitted and followed from here, and `kitae fetch`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

RemoteRun = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder here of a run on a head node, or its name in runs/.")
]
CheckpointOption = Annotated[
    bool, typer.Option("--checkpoint", help="Also the newest checkpoint, with the optimizer's state.")
]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    app.command("fetch")(fetch)


def fetch(run: RemoteRun, checkpoint: CheckpointOption = False) -> None:
    """Bring results, metrics, logs and the exported model of a run on a head node here."""
    from kitae.launch.ssh.following import fetch as fetched
    from kitae.launch.ssh.remote import is_remote

    folder = next((path for path in (run, Path("runs") / run) if is_remote(path)), run)
    count = fetched(folder, print, checkpoint=checkpoint)
    print(f"fetched {count} files into {folder}" if count else f"nothing is new; all is in {folder}")


def over_ssh(
    recipe: Path, changes: Sequence[str], last: str, *, start_over: bool, show: bool, detach: bool
) -> None:
    """Submit the stages up to `last` on the recipe's head node, follow them, and fetch what they made."""
    from kitae.errors import KitaeError
    from kitae.launch.ssh import following
    from kitae.launch.ssh.submission import Sending
    from kitae.stages.run_folder import RunFolder
    from kitae.stages.summary import summary

    sending = Sending.of(recipe, changes, print)
    remote = sending.submit(last, start_over=start_over, show=show)
    if show:
        return
    print(f"the run is {remote.run} on {remote.host}; what is fetched goes to {sending.run}")
    if detach:
        return
    try:
        following.follow(sending.run, print)
    except KeyboardInterrupt:
        print(f"the run goes on there; to follow it: the same command; to end it: kitae cancel {sending.run}")
        raise
    except KitaeError:
        with suppress(KitaeError):  # what the run ended with is to be told
            following.fetch(sending.run, print)
        raise
    following.fetch(sending.run, print)
    if last == "prove":
        for line in summary(RunFolder(sending.run)):
            print(line)
        written = (sending.run / name for name in ("report.html", "report.md"))
        for path in (path for path in written if path.is_file()):
            print(f"report         {path}")
