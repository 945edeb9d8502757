"""Programs on the head node that go on without the connection: begun once, and followed to their end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from kitae import errors
from kitae.errors import KitaeError
from kitae.launch.ssh import build
from kitae.launch.ssh.link import Head

Report = Callable[[str], None]
_ERROR = "error: "


def task(head: Head, name: str, words: Sequence[str], variables: dict[str, str], report: Report) -> None:
    """Begin a program there, or find it begun, and show what it prints to its end.

    Raises the error that it ended with.
    """
    position = {"position": 0}
    head.ask("start", task=name, words=list(words), variables=variables)
    code, said = 1, ""
    for answer in head.follow(lambda: position, "follow", task=name):
        if "code" in answer:
            code = int(answer["code"])
            continue
        position["position"] = answer["position"]
        said = answer["text"] or said
        for line in answer["text"].partition(f"\n{_ERROR}")[0].splitlines():
            if not line.startswith(_ERROR):
                report(f"{head.link.host}: {line}")
    if code:
        raise failed(code, _error_in(said))


def _error_in(said: str) -> str:
    """The lines from the error on; the last line where there is none."""
    lines = [line for line in said.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if line.startswith(_ERROR)), max(0, len(lines) - 1))
    return "\n".join(lines[first:]).removeprefix(_ERROR) or "it failed there without a word"


def failed(code: int, text: str) -> KitaeError:
    """The error that something there ended with, by its exit code."""
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, KitaeError)]
    error = next((one for one in classes if one.exit_code == code), KitaeError)(text)
    error.exit_code = code
    return error


def environment(
    head: Head, wheel: str, pins: str, extras: Sequence[str], own: bool, report: Report
) -> tuple[str, str]:
    """The Python of an environment with a wheel that is there, made if it is not there, and its PYTHONPATH.

    `own`: the packages of the head's Python are used, as they are; `pins` and `extras` say nothing then.
    """
    source = Path(build.__file__).read_text(encoding="utf-8")
    parts = [wheel, pins, list(extras), own, head.python]
    key, code = (hashlib.sha256(one.encode()).hexdigest()[:16] for one in (json.dumps(parts), source))
    program, order = f"code/build-{code}.py", f"tasks/environment-{key}.json"
    asked = {
        "key": key,
        "wheel": wheel,
        "pins": pins,
        "extras": f"[{','.join(extras)}]" if extras else "",
        "own": own,
    }
    head.ask("keep", files={program: source, order: json.dumps(asked)})
    task(head, f"environment-{key}", [head.python, program, order], {}, report)
    home = f"{head.folder}/environments/{key}"
    return (head.python, f"{home}/packages") if own else (f"{home}/venv/bin/python", "")
