"""The command `kitae`: its verbs, and how it ends."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import import_module

import typer

import kitae
from kitae.errors import KitaeError, StoppedError, StorageError
from kitae.launch.failure import RankBugError

# Each module has a `register(app)`. They import nothing heavy at the top: `--help` reads them all.
_VERB_MODULES = (
    "run_verbs",
    "plan_verbs",
    "calibrate_verbs",
    "model_verbs",
    "generate_verbs",
    "eval_verbs",
    "classify_verbs",
    "weights_verbs",
    "follow_verbs",
    "top_verbs",
    "report_verbs",
    "metrics_verbs",
    "ssh_verbs",
    "recipe_verbs",
    "catalog_verbs",
    "doctor_verbs",
    "precompile_verbs",
    "cache_verbs",
    "cluster_verbs",
    "new_verbs",
    "completion_verb",
    "scale_verbs",
)

_INTERRUPTED, _BROKEN_PIPE, _BUG = 130, 141, 70
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kitae {kitae.__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """From raw text to a trained, proven language-model checkpoint: one recipe, one command."""


def make_app() -> typer.Typer:
    """The command line with every verb."""
    app = typer.Typer(
        name="kitae", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    app.callback()(_root)
    for name in _VERB_MODULES:
        import_module(f"kitae.cli.{name}").register(app)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, by default that of the process, and return the exit code; errors are printed."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    _escape_what_the_terminal_cannot_show()
    if "_KITAE_COMPLETE" in os.environ:
        from kitae.cli.completing import answer

        return answer(make_app())
    try:
        code = _invoke(words)
        if sys.stdout is not None:  # None: it was closed before the start
            sys.stdout.flush()
    except StoppedError as stop:
        return _fail(str(stop), stop.exit_code)
    except KitaeError as error:
        return _fail(f"error: {error}", error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", _INTERRUPTED)
    except _UsageError as error:
        return _usage(error)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _no_room(error)
        return _BROKEN_PIPE if _reader_is_gone(error) else _bug(error)
    return code


def _escape_what_the_terminal_cannot_show() -> None:
    """Write a character that the output's encoding lacks as its escape, where Python would stop."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _invoke(words: list[str]) -> int:
    # Not `app(...)`: it turns interrupts and errors into exits of its own, in each version of typer others.
    command = typer.main.get_command(make_app())
    try:
        with command.make_context("kitae", words) as context:
            command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    return 0


def _usage(error: Exception) -> int:
    """A verb, option or argument that does not exist or is missing."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "kitae"
    message = error.format_message()  # type: ignore[attr-defined]
    return _fail(f"error: {message.rstrip('.')} (see {path} --help)", 2)


def _fail(message: str, code: int) -> int:
    with contextlib.suppress(OSError):  # nobody may be there to read it
        print(message, file=sys.stderr, flush=True)
    return code


def _no_room(error: OSError) -> int:
    """A full disk behind the output, or met where nobody expected it."""
    try:
        sys.stdout.flush()
    except OSError:  # the output itself: what is left of it goes nowhere, or the end would stop at it again
        _discard_output()
    where = error.filename or "the output"
    return _fail(f"error: cannot write {where}: {error.strerror}; free some space", StorageError.exit_code)


def _reader_is_gone(error: Exception) -> bool:
    """Whether the reader of our output, such as `head`, has closed it; the rest then goes nowhere."""
    if not isinstance(error, BrokenPipeError):
        return False
    try:
        output = sys.stdout.fileno()
    except OSError:  # not a file of the system
        return False
    poll = select.poll()
    poll.register(output, 0)
    gone = any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    if gone:
        _discard_output()
    return gone


def _discard_output() -> None:
    with contextlib.suppress(OSError):  # not a file of the system
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _bug(error: Exception) -> int:
    """An error that nobody foresaw: one line, and the traceback in a file (or here, with KITAE_DEBUG=1)."""
    if isinstance(error, RankBugError):
        return _fail(f"unexpected: {error}; this is a bug; its traceback is in {error.log}", _BUG)
    if os.environ.get("KITAE_DEBUG") == "1":
        traceback.print_exception(error)
        return _BUG
    what = f"unexpected: {type(error).__name__}: {error}; this is a bug"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="kitae-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            traceback.print_exception(error, file=file)
        what = f"{what}; its traceback is in {file.name}"
    except OSError:
        what = f"{what}; run again with KITAE_DEBUG=1 to see the traceback"
    return _fail(what, _BUG)


if __name__ == "__main__":
    sys.exit(main())
