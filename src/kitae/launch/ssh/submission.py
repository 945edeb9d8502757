"""A recipe on its way to a cluster behind a head node: what it needs is brought there, its jobs submitted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kitae.errors import RecipeError
from kitae.launch.slurm.chain import given, recipe_file
from kitae.launch.slurm.record import SUBMITTED
from kitae.launch.ssh.inputs import Inputs, refuse_missing
from kitae.launch.ssh.link import Head, Link
from kitae.launch.ssh.pins import extras_here, pins
from kitae.launch.ssh.probe import look
from kitae.launch.ssh.remote import Remote, is_remote, read_remote, write_remote
from kitae.launch.ssh.sync import bring
from kitae.launch.ssh.tasks import environment, task
from kitae.launch.ssh.tokens import setup_line, tokens_text
from kitae.launch.ssh.wheel import make_wheel, requirements
from kitae.storage.files import replace_file

if TYPE_CHECKING:
    from kitae.recipe.schema import Recipe

Report = Callable[[str], None]


@dataclass(frozen=True)
class Sending:
    """A recipe that is to be submitted."""

    recipe: Recipe
    """With absolute paths of this machine."""
    run: Path
    """The run's folder here."""
    report: Report

    @classmethod
    def of(cls, path: Path, changes: Sequence[str], report: Report) -> Sending:
        """That of a recipe's file, or of the folder of a run that was submitted. Raises `RecipeError`."""
        from kitae.recipe.load import load_recipe
        from kitae.recipe.paths import with_absolute_paths

        loaded = load_recipe(recipe_file(path), changes)
        recipe = with_absolute_paths(loaded.recipe, loaded.base)
        run = path.absolute() if path.is_dir() else Path(recipe.runs).absolute() / recipe.name
        sending = cls(recipe, run, report)
        sending._refuse_local()
        return sending

    def _refuse_local(self) -> None:
        """Raise `RecipeError` where the run is one of this machine."""
        if (self.run / "run.json").is_file() and not is_remote(self.run):
            raise RecipeError(
                f"{self.run} is a run of this machine; give the one on {self.recipe.target.host} another "
                "name with --set name=..."
            )
        if is_remote(self.run) and read_remote(self.run).host != self.recipe.target.host:
            raise RecipeError(
                f"{self.run} is a run on {read_remote(self.run).host}; give this one another name with "
                "--set name=..."
            )

    def submit(self, last: str, *, start_over: bool = False, show: bool = False) -> Remote:
        """Bring what lacks there and submit the stages up to `last`, or find them submitted.

        With `show`, print the scripts of the jobs instead.
        """
        target = self.recipe.target
        assert target.host is not None
        assert target.folder is not None
        head, rsync = look(Link(target.host, self.report), target.folder, target.python)
        recipe, wheel = self._bring(head, rsync)
        remote = self._environment(head, wheel, rsync)
        secret = tokens_text(self.recipe.tracking.trackers).encode()
        if secret:
            recipe = _reads_tokens(recipe, f"{head.folder}/secrets/{recipe.name}")
        head.ask("keep", files=self._request(head, recipe, last, start_over))
        if not show:
            head.ask("hide", secret, name=recipe.name, size=len(secret))
            replace_file(self.run / SUBMITTED, given(self.recipe).encode())
            write_remote(self.run, remote)
        verb, request = "show" if show else "submit", f"recipes/{recipe.name}.json"
        words = [remote.python, "-m", "kitae.launch.ssh.head", verb, request]
        task(head, f"{verb}-{recipe.name}", words, remote.variables, self.report)
        return remote

    def _bring(self, head: Head, rsync: bool) -> tuple[Recipe, str]:
        """The recipe as it is there, and where the wheel is."""
        from kitae.data.hashing import HashCache
        from kitae.recipe.paths import with_paths
        from kitae.storage.cache import cache_folder

        cache = cache_folder()
        inputs = Inputs(HashCache(cache / "hashes"), head.folder, lambda path: _run_on(head, path))
        recipe = with_paths(self.recipe, inputs.place)
        exist = head.ask("exists", paths=inputs.only_there)["exist"]
        refuse_missing(inputs.only_there, exist, head.link.host)
        for path in exist:
            self.report(f"ssh: {path} is not here but on {head.link.host}: used there")
        wheel = make_wheel(cache / "wheels")
        code = inputs.add("code", {wheel.name: wheel})
        bring(head, inputs.objects, rsync)
        head.ask("place", folders=inputs.folders)
        return _there(recipe, head.folder), f"{code}/{wheel.name}"

    def _environment(self, head: Head, wheel: str, rsync: bool) -> Remote:
        """The environment of this kitae there, made if it is not there yet."""
        import kitae

        own = self.recipe.target.python is not None
        needs = requirements(Path(kitae.__file__).parent)
        extras = [] if own else extras_here(needs)
        lock = "" if own else pins(needs, extras)
        python, pythonpath = environment(head, wheel, lock, extras, own, self.report)
        return Remote(
            host=head.link.host,
            folder=head.folder,
            name=self.recipe.name,
            head_python=head.python,
            python=python,
            pythonpath=pythonpath,
            shell=head.environment,
            rsync=rsync,
        )

    def _request(self, head: Head, recipe: Recipe, last: str, start_over: bool) -> dict[str, str]:
        path = f"recipes/{recipe.name}"
        asked = {
            "recipe": f"{head.folder}/{path}.yaml",
            "runs": recipe.runs,
            "name": recipe.name,
            "last": last,
            "start_over": start_over,
        }
        return {f"{path}.yaml": given(recipe), f"{path}.json": json.dumps(asked)}


def _run_on(head: Head, path: Path) -> str | None:
    """Where the run of a folder here, or a checkpoint of it, lies on this head node."""
    for folder in (path, path.parent, path.parent.parent):
        if is_remote(folder) and not (folder / "checkpoints").is_dir():
            remote = read_remote(folder)
            if (remote.host, remote.folder) == (head.link.host, head.folder):
                return str(Path(remote.run, path.relative_to(folder)))
    return None


def _there(recipe: Recipe, folder: str) -> Recipe:
    """The recipe as it is submitted on the head node."""
    target = {**recipe.target.model_dump(exclude_unset=True), "kind": "slurm"}
    for name in ("host", "folder", "python"):
        target.pop(name, None)
    return recipe.model_copy(
        update={
            "runs": f"{folder}/runs",
            "target": type(recipe.target).model_validate(target),
        }
    )


def _reads_tokens(recipe: Recipe, path: str) -> Recipe:
    setup = [*recipe.target.setup, setup_line(path)]
    return recipe.model_copy(update={"target": recipe.target.model_copy(update={"setup": setup})})
