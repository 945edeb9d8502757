"""ParallelCluster's command line, as a program in an environment of its own: found, made, and run.

Its packages contradict kitae's, so it is never imported here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from kitae.catalog.aws import parallelcluster_version
from kitae.errors import ClusterError, RecipeError
from kitae.storage.cache import cache_folder
from kitae.storage.folders import remove_folder
from kitae.storage.lock import exclusive

OVERRIDE = "KITAE_PCLUSTER"
"""Names the folder of a virtual environment that has ParallelCluster already."""
_COMPLETE = "complete"
_DROPPED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Answer:
    """What the program said: its exit code, and its JSON."""

    code: int
    body: Mapping[str, Any]
    text: str

    @property
    def message(self) -> str:
        """Its own words, in one line."""
        found = str(self.body.get("message", "")) or self.text.strip()
        return " ".join(found.split())


@dataclass(frozen=True)
class Engine:
    """An environment with ParallelCluster."""

    folder: Path

    def run(self, words: Sequence[str], environment: Mapping[str, str] | None = None) -> Answer:
        """Run `pcluster WORDS` and read its JSON. Raises `ClusterError` when it cannot start."""
        done = self._started([str(self.folder / "bin/pcluster"), *words], environment)
        try:
            body = json.loads(done.stdout)
        except ValueError:
            body = {}
        text = done.stdout + done.stderr
        return Answer(done.returncode, body if isinstance(body, dict) else {}, text)

    def version(self) -> str:
        """What it says that it is. Raises `ClusterError` when that is not what kitae was made for."""
        answer = self.run(["version"])
        found = str(answer.body.get("version", ""))
        if found != parallelcluster_version():
            said = found or answer.message
            raise ClusterError(
                f"{self.folder} has ParallelCluster {said}, and kitae needs {parallelcluster_version()}; "
                f"{_AGAIN}"
            )
        return found

    def schema_problems(self, config: Mapping[str, Any], name: str) -> list[str]:
        """What its schema says against a configuration, each as `path: message`; no account is needed."""
        answer = self._asked("schema_program.py", [name], config, str(config["Region"]))
        if not isinstance(answer, list):
            raise self._nonsense()
        return [str(one) for one in answer]

    def update_rows(
        self, name: str, old: Mapping[str, Any], targets: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, list[dict[str, Any]]]:
        """What its update policies say of each target, as `update_program` tells it; without an account."""
        asked = {"name": name, "old": old, "targets": targets}
        answer = self._asked("update_program.py", [], asked, str(old["Region"]))
        if not isinstance(answer, dict) or any(not isinstance(answer.get(one), list) for one in targets):
            raise self._nonsense()
        return answer

    def _asked(self, program: str, words: Sequence[str], given: Any, region: str) -> Any:
        """What a program of kitae's that runs there answers to JSON. Raises `ClusterError`."""
        text = resources.files("kitae.cluster").joinpath(program).read_text("utf-8")
        python = [str(self.folder / "bin/python"), "-c", text, *words]
        done = self._started(python, {"AWS_DEFAULT_REGION": region}, json.dumps(given))
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1:] or [f"code {done.returncode}"]
            raise ClusterError(f"ParallelCluster's rules cannot be run in {self.folder}: {last[0]}; {_AGAIN}")
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise self._nonsense() from None

    def _nonsense(self) -> ClusterError:
        return ClusterError(
            f"{self.folder / 'bin/python'} does not answer as a Python with ParallelCluster does; {_AGAIN}"
        )

    def _started(
        self, words: Sequence[str], environment: Mapping[str, str] | None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if name not in _DROPPED}
        path = f"{self.folder / 'bin'}{os.pathsep}{inherited.get('PATH', os.defpath)}"
        whole = {**inherited, "PATH": path, **(environment or {})}
        try:
            return subprocess.run(words, env=whole, input=stdin, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ClusterError(f"{words[0]} cannot be started: {error.strerror}; {_AGAIN}") from None


_AGAIN = (
    f"where {OVERRIDE} names it, name another or unset it; otherwise remove that folder, and "
    "`kitae cluster engine` makes it anew"
)


def find() -> Engine | None:
    """The environment of the pinned version; None where there is none yet. Raises `RecipeError`."""
    given = os.environ.get(OVERRIDE)
    if given:
        if not Path(given, "bin/pcluster").exists():
            raise RecipeError(f"{OVERRIDE}: {given} has no bin/pcluster; name an environment that has")
        return Engine(Path(given).absolute())
    folder = _folder()
    return Engine(folder) if (folder / _COMPLETE).exists() else None


def make(say: Callable[[str], None]) -> Engine:
    """The environment of the pinned version, made with pip where there is none. Raises `ClusterError`."""
    folder = _folder()
    with exclusive(folder.with_suffix(".lock"), waiting=lambda: say("another kitae makes it; waiting")):
        found = find()
        if found is not None:
            return found
        remove_folder(folder)  # half of one, from an attempt that was stopped
        folder.parent.mkdir(parents=True, exist_ok=True)
        say(f"installing ParallelCluster {parallelcluster_version()} into {folder}; this takes a minute")
        _must([sys.executable, "-m", "venv", str(folder)])
        options = ["--quiet", "--no-input", "--disable-pip-version-check"]
        package = f"aws-parallelcluster=={parallelcluster_version()}"
        _must([str(folder / "bin/python"), "-m", "pip", "install", *options, package])
        (folder / _COMPLETE).touch()
    return Engine(folder)


def node_missing() -> str | None:
    """Why clusters cannot be made from here although the schema can be run; None when they can."""
    if shutil.which("node") is not None:
        return None
    return "ParallelCluster needs Node.js to make a cluster, and there is no `node` here; install nodejs"


def _folder() -> Path:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return cache_folder() / "pcluster" / f"{parallelcluster_version()}-python{python}"


def _must(words: Sequence[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        last = "; ".join(lines[-2:]) or f"code {done.returncode}"
        raise ClusterError(
            f"ParallelCluster {parallelcluster_version()} cannot be installed: {last}; mend that and repeat, "
            f"or name an environment that has it with {OVERRIDE}"
        )
