"""How a rank ended, in its own words: a small file that the process that started it reads."""

from __future__ import annotations

import errno
import json
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from kitae import errors
from kitae.errors import KitaeError, StoppedError, StorageError

Kind = Literal["finished", "stopped", "error", "interrupted", "unread", "bug"]
_EXIT_CODES = {"finished": 0, "stopped": 0, "interrupted": 130, "unread": 141, "bug": 70}


@dataclass(frozen=True)
class Outcome:
    """The end of a rank."""

    kind: Kind
    message: str = ""
    error: str = ""
    """Name of the class in kitae.errors, for the kinds `stopped` and `error`."""
    lost_peer: bool = False
    """Whether it failed inside a collective, as ranks do when another one is gone."""
    at_ns: int = 0
    """Time of the wall clock, which all machines have in common."""

    @property
    def orderly(self) -> bool:
        """Whether all ranks end so, together."""
        return self.kind in ("finished", "stopped")

    @property
    def exit_code(self) -> int:
        """What the process exits with.

        0 for a stop, too: the elastic agent ends the other ranks as soon as one exits with anything else. The
        code of a stop is that of the whole launch.
        """
        code = _EXIT_CODES.get(self.kind)
        return self.error_class.exit_code if code is None else code

    @property
    def error_class(self) -> type[KitaeError]:
        """The class that `error` names."""
        found: type[KitaeError] = getattr(errors, self.error)
        return found

    def write(self, path: Path) -> None:
        """Keep it."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Outcome | None:
        """The outcome in a file; None when the rank left none."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None


def outcome_of(error: BaseException | None) -> Outcome:
    """What a rank's work ended with: None when it returned."""
    now = time.time_ns()
    if error is None:
        return Outcome("finished", at_ns=now)
    if isinstance(error, KitaeError):
        kind: Kind = "stopped" if isinstance(error, StoppedError) else "error"
        return Outcome(kind, str(error), _class_name(error), at_ns=now)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        message = f"cannot write {error.filename or 'a file'}: {error.strerror}; free some space"
        return Outcome("error", message, StorageError.__name__, at_ns=now)
    if isinstance(error, KeyboardInterrupt):
        return Outcome("interrupted", "interrupted", at_ns=now)
    if isinstance(error, BrokenPipeError):  # such as `head` behind the first rank's output
        return Outcome("unread", str(error), at_ns=now)
    message = f"{type(error).__name__}: {error}"
    return Outcome("bug", message, lost_peer=_inside_a_collective(error), at_ns=now)


def _class_name(error: KitaeError) -> str:
    """The nearest class that the reader knows."""
    return next(one.__name__ for one in type(error).__mro__ if one.__module__ == errors.__name__)


def _inside_a_collective(error: BaseException) -> bool:
    """Whether the innermost Python code is a collective's: what transports raise has no class of its own."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return False
    place = Path(frames[-1].filename).as_posix()
    return place.endswith("kitae/backend/group.py") or "/torch/distributed/" in place
