"""A run behind a real sshd on loopback before a real Slurm: submitted, cut off, found again, fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from demo_case import run_kitae
from job_case import write_case
from slurm import Shape, Slurm, slurm
from sshd import Sshd, sshd

from kitae.errors import ClusterError
from kitae.launch.ssh.link import Link
from kitae.launch.ssh.probe import look
from kitae.launch.ssh.tasks import environment

TOKEN = "hf_madeUpForThisTest0815"
STEPS = 40
WAIT_S = 240.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all that the test makes, with a blank in its name."""
    return tmp_path_factory.mktemp("behind a head node")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("cluster") / "slurm", Shape(2)) as up:
        yield up


@pytest.fixture(scope="module")
def server(folder: Path, cluster: Slurm) -> Iterator[Sshd]:
    """What logs in there finds the cluster; nothing else of this process' environment is there."""
    environment = {"SLURM_CONF": str(cluster.conf), "OMP_NUM_THREADS": "1"}
    with sshd(folder / "sshd", environment) as up, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KITAE_SSH_OPTIONS", up.options)
        patch.setenv("KITAE_CACHE", str(folder / "cache"))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("HF_TOKEN", TOKEN)
        yield up


@pytest.fixture(scope="module")
def case(folder: Path, server: Sshd) -> Path:
    """Model, text and recipe."""
    target = {
        "kind": "ssh",
        "host": "head",
        "folder": str(folder / "shared disk"),
        "python": sys.executable,
        "nodes": 2,
        "processes_per_node": 1,
    }
    training = {"duration": f"{STEPS} steps", "global_batch_size": 4, "micro_batch_size": 2}
    write_case(folder / "at home", target=target, training=training, checkpoint={"every": "10 steps"})
    return folder / "at home"


class Client:
    """A command line that runs beside the test."""

    def __init__(self, case: Path, *words: str) -> None:
        self.output = case / f"output-{time.monotonic_ns()}"
        with self.output.open("wb") as file:
            command = [sys.executable, "-m", "kitae.cli.main", *words]
            self.process = subprocess.Popen(command, cwd=case, stdout=file, stderr=file)

    def text(self) -> str:
        return self.output.read_text()

    def wait_for(self, *words: str) -> None:
        wait(lambda: any(word in self.text() for word in words), f"{words} in {self.text}", self)

    def kill(self) -> None:
        """As a laptop that is switched off: the client and its ssh."""
        for one in [*psutil.Process(self.process.pid).children(recursive=True), self.process]:
            with suppress(psutil.Error):
                one.kill()
        self.process.wait()


def wait(condition: Callable[[], bool], what: str, client: Client) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert client.process.poll() is None, client.text()
        assert time.monotonic() < end, f"{what} did not come\n{client.text()}"
        time.sleep(0.1)


def files_with_token(*folders: Path) -> list[Path]:
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            with suppress(OSError):
                if path.is_file() and TOKEN.encode() in path.read_bytes():
                    found.append(path)
    return found


def told_to_programs() -> bool:
    """Whether the token is in a command line, where everybody sees it."""
    return any(TOKEN in " ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"]))


def jobs_with_token(cluster: Slurm) -> int:
    """Processes of jobs that have the token in their environment."""
    count = 0
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            environment = one.environ()
            mine = environment.get("SLURM_CONF") == str(cluster.conf) and "SLURM_JOB_ID" in environment
            count += mine and environment.get("HF_TOKEN") == TOKEN
    return count


def losses(run: Path) -> list[float]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [one["loss"] for one in map(json.loads, lines) if one["kind"] == "train"]


def test_submit_lose_the_connection_come_back_fetch(folder: Path, cluster: Slurm, server: Sshd, case: Path):
    """Nothing is lost, nothing submitted twice, the token in no file."""
    everything = (folder, cluster.folder)
    first = Client(case, "run", "recipe.yaml")
    first.wait_for("submitted: prepare (job 1), then import (job 2), then train (job 3), then prove (job 4)")
    wait(lambda: jobs_with_token(cluster) > 0, "a job with the token", first)
    assert files_with_token(*everything) == [folder / "shared disk/secrets/tiny"]
    assert not told_to_programs()
    assert server.drop() > 0
    first.wait_for("the connection dropped")
    first.wait_for("step 1/")
    first.kill()
    server.drop()

    again = run_kitae("run", "recipe.yaml", folder=case)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "found the run that was submitted" in again.stdout
    assert "held-out loss" in again.stdout
    run = case / "runs/tiny"
    assert len(losses(run)) == STEPS
    assert (run / "export/model.safetensors").is_file()
    assert json.loads((run / "proof.json").read_text())
    numbers = {
        job["number"] for job in json.loads((folder / "shared disk/runs/tiny/slurm.json").read_text())["jobs"]
    }
    assert numbers == {1, 2, 3, 4}
    assert cluster.job(4)["JobState"] == "COMPLETED"

    cluster.wait_for(lambda: not (folder / "shared disk/secrets/tiny").exists(), "the removal of the token")
    assert files_with_token(*everything) == []
    done = run_kitae("fetch", "tiny", folder=case)
    assert (done.returncode, done.stdout) == (0, "nothing is new; all is in runs/tiny\n"), done.stderr
    (written,) = run.glob("report.*")  # by the last job, there; without plotly it is Markdown
    assert "held-out" in written.read_text()
    assert f"report         {written}" in again.stdout


def test_it_learns_what_it_learns_here(case: Path, folder: Path):
    words = ("train", "recipe.yaml", "--target", "local", "--set", "name=here")
    done = run_kitae(*words, "--set", "target.processes_per_node=1", folder=case)
    assert done.returncode == 0, done.stderr
    assert losses(case / "runs/tiny") == pytest.approx(losses(case / "runs/here"), abs=1e-4)


def test_an_error_there_is_an_error_here(case: Path):
    """The exit code and the words are those of the job."""
    (case / "text/train.txt").write_text("too short\n")
    done = run_kitae("train", "recipe.yaml", "--set", "name=short", folder=case)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "head: prepare (job" in done.stderr


def test_a_host_key_that_is_not_known_and_a_user_that_is_not_let_in(folder: Path, server: Sshd):
    known = (server.folder / "known").read_text()
    host, kind, _ = known.split(" ", 2)
    try:
        (server.folder / "known").write_text("")
        with pytest.raises(ClusterError, match="ssh does not know the key of head yet"):
            fresh(server).shell("true")
        other = (server.folder / "user.pub").read_text().split()[1]
        (server.folder / "known").write_text(f"{host} {kind} {other}\n")
        with pytest.raises(ClusterError, match="the key of head is not the one that ssh knows"):
            fresh(server).shell("true")
        (server.folder / "known").write_text(known)
        keys = (server.folder / "keys").read_text()
        (server.folder / "keys").write_text("")
        with pytest.raises(ClusterError, match="head does not let you in"):
            fresh(server).shell("true")
        (server.folder / "keys").write_text(keys)
    finally:
        (server.folder / "known").write_text(known)
    assert fresh(server).shell("echo here") == ["here"]


def fresh(server: Sshd) -> Link:
    """A link without a connection that is shared."""
    server.drop()
    subprocess.run([*Link("head").ssh, "-O", "exit", "head"], capture_output=True)
    return Link("head")


def test_an_environment_is_made_once(folder: Path, server: Sshd):
    """By pip, without an index: of a wheel that needs nothing."""
    head, _ = look(Link("head"), str(folder / "shared disk"), None)
    path = folder / "shared disk/code/kitae-9+x-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("kitae/__init__.py", "")
        info = "kitae-9+x.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: kitae\nVersion: 9+x\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    made = environment(head, f"code/{path.name}", "torch==2.13.0\n", [], False, print)
    home = Path(made[0]).parents[2]
    assert (home.parent, made[1]) == (folder / "shared disk/environments", "")
    assert (home / "pins.txt").read_text() == "torch==2.13.0\n"
    subprocess.run([made[0], "-c", "import kitae"], check=True)
    before = (home / "complete").stat().st_mtime_ns
    assert environment(head, f"code/{path.name}", "torch==2.13.0\n", [], False, print) == made
    assert (home / "complete").stat().st_mtime_ns == before


def test_nothing_of_this_process_environment_is_there():
    """What the other tests rest on: the token does not get there by itself."""
    done = subprocess.run([*Link("head").ssh, "head", "env"], capture_output=True, text=True, check=True)
    assert TOKEN not in done.stdout
    assert os.environ["HF_TOKEN"] == TOKEN
