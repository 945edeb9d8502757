"""The way to the head node: the system's ssh with the user's configuration, called again when it drops."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from kitae.errors import ClusterError, KitaeError, RecipeError, StorageError
from kitae.launch.ssh import there

Report = Callable[[str], None]
Request = dict[str, Any]
Answer = dict[str, Any]

OPTIONS = "KITAE_SSH_OPTIONS"
"""Variable with further words for ssh, such as `-F file -p 2222`."""
_CONNECT_S, _ALIVE_S, _ALIVE_TRIES, _MASTER_S = 20, 10, 3, 60
_FIRST_S, _LONGEST_S = 1.0, 30.0
_PATIENCE_S = 600.0
_DROPPED = 255
_START = "import sys;b=sys.stdin.buffer;exec(b.read(int(b.readline())),dict(__name__='__main__'))"
_ERRORS: dict[type[KitaeError] | str, type[KitaeError]] = {"storage": StorageError, "cluster": ClusterError}

_CAUSES = (
    (
        "IDENTIFICATION HAS CHANGED",
        "the key of {host} is not the one that ssh knows: somebody may be in between; ask who runs it, and "
        "mend ~/.ssh/known_hosts only when the new key is confirmed",
    ),
    (
        "Host key verification failed",
        "ssh does not know the key of {host} yet; run `ssh {host}` once, compare the key and accept it",
    ),
    (
        "Permission denied",
        "{host} does not let you in; check that `ssh {host} true` works: user, key, agent (ssh-add -l)",
    ),
    (
        "Too many authentication failures",
        "{host} refused all keys that were offered; set IdentityFile for it",
    ),
    ("Could not resolve", "there is no host {host}, neither in the network nor in ~/.ssh/config"),
    ("Name or service not known", "there is no host {host}, neither in the network nor in ~/.ssh/config"),
    ("Bad configuration option", "ssh does not read its configuration"),
    ("Bad owner or permissions", "ssh does not read its configuration"),
    ("Can't open user config file", "ssh does not find its configuration"),
)
"""What ssh says when another try is of no use, and what a person can do."""


class DroppedError(Exception):
    """The connection is gone, or did not come about; the same can be asked again."""


def waits() -> Iterator[float]:
    """Seconds between tries: twice as many each time, up to half a minute."""
    pause = _FIRST_S
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_S)


@dataclass(frozen=True)
class Link:
    """A way to a host. Nothing is stored but, in a private folder, the socket of the shared connection."""

    host: str
    report: Report = print
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.@:%\[\]+][A-Za-z0-9_.@:%\[\]+-]*", self.host):
            raise RecipeError(
                f"target.host: {self.host!r} is no host; write a name of ~/.ssh/config, or user@address"
            )

    @cached_property
    def ssh(self) -> list[str]:
        """Words of ssh, without the host."""
        words = ["ssh", *_own_words()]
        options = {
            "StrictHostKeyChecking": "yes",
            "ConnectTimeout": _CONNECT_S,
            "ServerAliveInterval": _ALIVE_S,
            "ServerAliveCountMax": _ALIVE_TRIES,
            **({} if sys.stdin is not None and sys.stdin.isatty() else {"BatchMode": "yes"}),
            **_shared(words, self.host),
        }
        return [*words, "-T", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]

    def shell(self, script: str) -> list[str]:
        """Lines that a shell there prints; it is a login shell, which knows where Slurm's programs are."""
        command = "sh -c 'command -v bash >/dev/null 2>&1 && exec bash -l -s; exec sh -s'"
        done = self._run([*self.ssh, self.host, command], script.encode())
        if done.returncode == _DROPPED:
            raise self.unreachable(done.stderr.decode(errors="replace"))
        return done.stdout.decode(errors="replace").splitlines()

    def _run(self, words: Sequence[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
        with _found(words[0]):
            return subprocess.run(words, input=stdin, capture_output=True)

    def unreachable(self, text: str) -> ClusterError:
        """The error to raise, with the way out, after what ssh said."""
        last = _last_words(text)
        cause = self._cause(text)
        if cause is not None:
            return ClusterError(f"target.host: {cause} ({last})")
        return ClusterError(
            f"target.host: {self.host} cannot be reached ({last}); check `ssh {self.host} true`, the network "
            "and the VPN, then run the same command again"
        )

    def _cause(self, text: str) -> str | None:
        """What is wrong, where another try is of no use."""
        return next((cause.format(host=self.host) for sign, cause in _CAUSES if sign in text), None)

    def check(self, stderr: str, *, known: bool) -> None:
        """Of a connection that ended with `stderr`: raise `ClusterError`, or `DroppedError` for another try.

        `known`: it worked before, so that a name that is not found is the network's fault.
        """
        passing = known and ("resolve" in stderr or "not known" in stderr)
        if not passing and self._cause(stderr) is not None:
            raise self.unreachable(stderr)
        raise DroppedError(_last_words(stderr))


@dataclass(frozen=True)
class Head:
    """A head node, with a Python of its own and a folder."""

    link: Link
    python: str
    folder: str
    """Absolute, as it is called there."""
    environment: dict[str, str]
    """Variables of a login shell there, such as PATH."""

    def ask(self, verb: str, content: Callable[[IO[bytes]], None] | bytes = b"", **request: Any) -> Answer:
        """The last answer to a request; asked again, for ten minutes, when the connection drops.

        Raises what the head node said was wrong: `StorageError` or `ClusterError`.
        """
        end = self.link.now() + _PATIENCE_S
        for pause in waits():
            try:
                return self._last(self.answers(verb, content, **request))
            except DroppedError as drop:
                if self.link.now() > end:
                    raise self.link.unreachable(str(drop)) from None
                self.tell(drop, pause)
        raise AssertionError

    def _last(self, answers: Iterator[Answer]) -> Answer:
        found = list(answers)
        if not found:
            raise DroppedError("no answer")
        return found[-1]

    def follow(self, position: Callable[[], Request], verb: str, **request: Any) -> Iterator[Answer]:
        """All answers, over as many connections as it takes; `position` says where the next one goes on."""
        pauses = waits()
        while True:
            try:
                for answer in self.answers(verb, **request, **position()):
                    pauses = waits()
                    yield answer
                return
            except DroppedError as drop:
                self.tell(drop, next(pauses))

    def tell(self, drop: DroppedError, pause: float) -> None:
        """Say that the connection dropped, and wait."""
        self.link.report(f"ssh: the connection dropped ({drop}); once more in {pause:g} s, nothing is lost")
        self.link.sleep(pause)

    def answers(
        self, verb: str, content: Callable[[IO[bytes]], None] | bytes = b"", **request: Any
    ) -> Iterator[Answer]:
        """The answers of one connection. Raises `DroppedError` when it ends before the last one."""
        with self.opened(verb, content, **request) as output:
            for line in output:
                answer = _answer(line)
                if answer is not None:
                    yield answer

    @contextmanager
    def opened(
        self, verb: str, content: Callable[[IO[bytes]], None] | bytes = b"", **request: Any
    ) -> Iterator[IO[bytes]]:
        """One connection with a request on its way; what comes back."""
        words = [*self.link.ssh, self.link.host, f'{shlex.quote(self.python)} -u -c "{_START}"']
        with tempfile.TemporaryFile() as errors, _found(words[0]):
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                self._write(process.stdin, {"verb": verb, **request}, content)
                yield process.stdout
                code = process.wait()
            finally:
                process.stdout.close()
                if process.poll() is None:
                    process.kill()
                    process.wait()
            errors.seek(0)
            said = errors.read().decode(errors="replace")
        if code < 0 or code == _DROPPED:
            self.link.check(said, known=True)
        if code:
            raise ClusterError(f"{self.link.host}: {self.python} there failed: {_last_words(said)}")

    def _write(
        self, stdin: IO[bytes], request: Request, content: Callable[[IO[bytes]], None] | bytes
    ) -> None:
        source = Path(there.__file__).read_bytes()
        asked = {"folder": self.folder, "environment": self.environment, **request}
        try:
            stdin.write(b"%d\n%s%s\n" % (len(source), source, json.dumps(asked).encode()))
            if isinstance(content, bytes):
                stdin.write(content)
            else:
                content(stdin)
            stdin.close()
        except BrokenPipeError:  # what ended it is found out by its code
            with suppress(BrokenPipeError):
                stdin.close()

    def pass_through(self, words: Sequence[str], variables: dict[str, str]) -> int:
        """Run a program there, show what it prints, and return its exit code."""
        out = sys.stdout.buffer
        command = [*self.link.ssh, self.link.host, f'{shlex.quote(self.python)} -u -c "{_START}"']
        with _found(command[0]):
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        self._write(process.stdin, {"verb": "run", "words": list(words), "variables": variables}, b"")
        begun = False
        try:
            while block := process.stdout.readline():
                if begun:
                    out.write(block)
                    out.flush()
                elif (answer := _answer(block)) is not None:
                    begun = "follows" in answer
        except BaseException:
            process.terminate()
            raise
        finally:
            process.stdout.close()
        code = process.wait()
        if code < 0 or code == _DROPPED:
            raise ClusterError(f"the connection to {self.link.host} dropped; the run goes on: ask again")
        return code


def _own_words() -> list[str]:
    text = os.environ.get(OPTIONS, "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise RecipeError(f"{OPTIONS}: {text!r} cannot be read ({error}); mend the quotes") from None


def _answer(line: bytes) -> Answer | None:
    """What a line says; None for what a login shell printed. Raises what went wrong there."""
    text = line.decode(errors="replace")
    if not text.startswith(there.MARK) or not text.endswith("\n"):
        return None
    answer: Answer = json.loads(text[len(there.MARK) :])
    if "error" in answer:
        raise _ERRORS[answer["kind"]](answer["error"])
    return answer


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "it ended without a word"


@contextmanager
def _found(program: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if error.filename != program:
            raise
        raise ClusterError(f"there is no program {program} here; install OpenSSH's client") from None


def _shared(words: Sequence[str], host: str) -> dict[str, object]:
    """Options for one connection that all calls share; none where the user's configuration has its own."""
    with _found(words[0]):
        done = subprocess.run([*words, "-G", host], capture_output=True, text=True)
    own = [line for line in done.stdout.splitlines() if line.startswith("controlpath ")]
    folder = private_folder()
    if folder is None or any(line != "controlpath none" for line in own):
        return {}
    return {"ControlMaster": "auto", "ControlPath": folder / "%C", "ControlPersist": _MASTER_S}


def private_folder() -> Path | None:
    """A folder that only this user can enter, with a name as short as sockets need; None without one."""
    base = os.environ.get("XDG_RUNTIME_DIR") or "/tmp"
    folder = Path(base) / f"kitae-ssh-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    own = found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return folder if own and len(str(folder)) < 40 else None
