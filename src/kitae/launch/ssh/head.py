"""What kitae itself does on the head node: `python -m kitae.launch.ssh.head VERB ..`, started by `there`.

- `submit REQUEST` submits a run's jobs, or finds them submitted.
- `show REQUEST` prints the scripts of those jobs, and submits nothing.
- `follow RUN POSITIONS` prints what the jobs print, and how they end.
- `guard RUN` removes a run's tokens when its last job has ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kitae.errors import ClusterError, KitaeError, RecipeError
from kitae.launch.slurm.chain import Submission
from kitae.launch.slurm.commands import Slurm
from kitae.launch.slurm.parse import JobState
from kitae.launch.slurm.record import SUBMITTED, StageJob, read_jobs
from kitae.launch.slurm.script import log_of
from kitae.launch.ssh.there import ALIVE_S, read_lines, say
from kitae.recipe.load import load_recipe
from kitae.recipe.schema import Recipe
from kitae.stages.files import read_json
from kitae.stages.run_folder import RunFolder
from kitae.storage.lock import exclusive

GUARD_S, LOOK_S, JOBS_S = 10.0, 0.5, 3.0
OLD_S = 3600.0
"""Tokens that nobody has used for so long belong to a submission that never came."""
_ELSEWHERE = ("target", "parallel", "checkpoint", "tracking")
"""Sections that a run which is in the queue may differ in: they only say where and how it is computed."""


def submit(request: Path, slurm: Slurm) -> None:
    """Submit the jobs of a request, once: what is in the queue is found instead."""
    asked = read_json(request)
    runs, name = Path(asked["runs"]), str(asked["name"])
    run = runs / name
    try:
        _submit(run, asked, slurm)
    finally:
        sweep_others(runs.parent, slurm)
        if (runs.parent / "secrets" / name).exists():
            _start_guard(run)


def _submit(run: Path, asked: Mapping[str, Any], slurm: Slurm) -> None:
    with exclusive(run.parent / f".{run.name}.lock"):
        take_tokens(run.parents[1], run.name)
        submission = Submission.of(Path(asked["recipe"]), (), print, slurm)
        going = active(run, slurm)
        if going:
            _refuse_other(run, submission.recipe)
            told = ", ".join(f"{job.stage} (job {job.number}) {state.state.lower()}" for job, state in going)
            print(f"found the run that was submitted: {told}", flush=True)
        else:
            if asked["start_over"]:
                _set_aside(run)
            submission.submit(asked["last"])


def show(request: Path, slurm: Slurm) -> None:
    """Print the scripts of the jobs of a request; nothing is submitted."""
    asked = read_json(request)
    Submission.of(Path(asked["recipe"]), (), print, slurm).show(asked["last"])


def _refuse_other(run: Path, recipe: Recipe) -> None:
    before = load_recipe(run / SUBMITTED).recipe
    if _same_work(before) != _same_work(recipe):
        raise RecipeError(
            f"{run.name} is in the queue there with another recipe; cancel it (kitae cancel), or give this "
            "one another name with --set name=..."
        )


def _same_work(recipe: Recipe) -> dict[str, object]:
    return recipe.model_dump(mode="json", exclude=set(_ELSEWHERE))


def _set_aside(run: Path) -> None:
    from kitae.stages.training import set_aside

    old = set_aside(RunFolder(run))
    print(f"the old run is now {old}" if old is not None else "there was no run of that name", flush=True)


def active(run: Path, slurm: Slurm) -> list[tuple[StageJob, JobState]]:
    """Jobs of a run that have not ended."""
    jobs = read_jobs(run)
    found = slurm.jobs([job.number for job in jobs])
    return [(job, found[job.number]) for job in jobs if job.number in found and not found[job.number].ended]


# ---- following


def follow(run: Path, positions: Mapping[str, int], slurm: Slurm, sleep: Callable[[float], None]) -> None:
    """Answer with lines and states, from positions in the logs on, until no job is left."""
    there = dict(positions)
    told, states, looked = time.monotonic(), "", 0.0
    left: list[tuple[StageJob, JobState]] = []
    while True:
        if time.monotonic() - looked > JOBS_S:
            with suppress(ClusterError):  # a controller that is started anew, for instance
                left = active(run, slurm)
                looked = time.monotonic()
        now = ", ".join(f"{job.stage} (job {job.number}) {_state(state)}" for job, state in left)
        if now != states:
            states = now
            say(state=now)
        for stage, text in _news(run, there):
            say(text=text, stage=stage, position=there[stage])
            told = time.monotonic()
        if looked and not left:
            break
        if time.monotonic() - told > ALIVE_S:
            say(alive=True)
            told = time.monotonic()
        sleep(LOOK_S)
    sweep(run, slurm)
    say(end=outcome(run, slurm))


def _state(state: JobState) -> str:
    return f"{state.state.lower()} on {state.nodes}" if state.state == "RUNNING" else state.state.lower()


def _news(run: Path, positions: dict[str, int]) -> Iterator[tuple[str, str]]:
    for job in read_jobs(run):
        text, positions[job.stage] = read_lines(log_of(run, job.stage), positions.get(job.stage, 0))
        if text:
            yield job.stage, text


def outcome(run: Path, slurm: Slurm) -> dict[str, object]:
    """How the jobs ended: an exit code, and the words to tell."""
    jobs = read_jobs(run)
    found = slurm.jobs([job.number for job in jobs])
    failed = next((job for job in jobs if not _worked(run, job, found)), None)
    if failed is None:
        return {"code": 0, "why": ""}
    record = slurm.record(failed.number)
    code = int(record.get("ExitCode", "1:0").partition(":")[0]) or 1
    state = found[failed.number].state.lower() if failed.number in found else "gone"
    lines = log_of(run, failed.stage)
    attempts = RunFolder(run).state["attempts"]
    why = str(attempts[-1].get("why", "")) if attempts else ""
    return {"code": code, "why": f"{failed.stage} (job {failed.number}) {state}: {why or _last_line(lines)}"}


def _worked(run: Path, job: StageJob, found: Mapping[int, JobState]) -> bool:
    if job.number in found:
        return found[job.number].state == "COMPLETED"
    return bool(RunFolder(run).stage(job.stage))  # Slurm forgets jobs after some minutes


def _last_line(path: Path) -> str:
    with suppress(OSError):
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "it printed nothing"
    return "it printed nothing"


# ---- tokens


def take_tokens(folder: Path, name: str) -> None:
    """Use the tokens that came for a run; whoever does so holds its lock."""
    new = folder / "secrets/new" / name
    if new.exists():
        new.replace(folder / "secrets" / name)


def sweep(run: Path, slurm: Slurm) -> bool:
    """Remove a run's tokens if none of its jobs is left; whether none is kept."""
    kept = run.parent.parent / "secrets" / run.name
    with exclusive(run.parent / f".{run.name}.lock"), suppress(ClusterError):
        if kept.exists() and not active(run, slurm):
            kept.unlink(missing_ok=True)
    return not kept.exists()


def sweep_others(folder: Path, slurm: Slurm) -> None:
    """Remove what was left when the guards of other runs ended too early."""
    for path in sorted((folder / "secrets").glob("*")):
        if path.is_file() and not path.name.startswith("."):
            sweep(folder / "runs" / path.name, slurm)
    for path in sorted((folder / "secrets/new").glob("*")):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < time.time() - OLD_S:
                path.unlink()


def guard(run: Path, slurm: Slurm, sleep: Callable[[float], None]) -> None:
    """Wait until the tokens of a run are needed no more, and remove them."""
    with exclusive(run.parents[1] / "tasks" / f"guard-{run.name}", wait=False) as held:
        while held and not sweep(run, slurm):
            sleep(GUARD_S)


def _start_guard(run: Path) -> None:
    subprocess.Popen(
        [sys.executable, "-m", "kitae.launch.ssh.head", "guard", str(run)],
        cwd=run.parents[1],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def main(words: Sequence[str]) -> int:
    """Do what is asked for; the exit code of the command line."""
    verb, *rest = words
    slurm = Slurm()
    try:
        if verb == "submit":
            submit(Path(rest[0]), slurm)
        elif verb == "show":
            show(Path(rest[0]), slurm)
        elif verb == "follow":
            follow(Path(rest[0]), json.loads(rest[1]), slurm, time.sleep)
        else:
            guard(Path(rest[0]), slurm, time.sleep)
    except KitaeError as error:
        print(f"error: {error}", flush=True)
        return error.exit_code
    except BrokenPipeError:  # whoever followed is gone
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
