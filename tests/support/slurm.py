"""A real Slurm on this host: a controller and nodes, static or coming and going as cloud nodes do.

Every cluster has its own folder, key, ports and daemons, so that several can be up at once. The daemons are
children that end with this process; nodes that the controller resumes are found by their pid files.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "sinfo", "scancel")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
WAIT_S = 30.0
SLURMD_TIMEOUT_S = 10


class NoSlurmError(RuntimeError):
    """The packages are not installed, or not as root."""


def require_slurm() -> None:
    """Raise `NoSlurmError` when a cluster cannot be brought up here; skip where .ci/run has said that."""
    without = os.environ.get("KITAE_WITHOUT_CLUSTER")
    if without:
        pytest.skip(without)
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing:
        raise NoSlurmError(f"no {', '.join(missing)} here: apt-get install -y slurm-wlm munge (.ci/run does)")
    if os.geteuid() != 0:
        raise NoSlurmError("slurmd starts jobs of others only as root")


@dataclass(frozen=True)
class Shape:
    """What a cluster is made of."""

    nodes: int = 3
    """Static nodes n1, n2, ..; of a cluster with dynamic ones, c1, c2, .., those that are resumed."""
    cpus: int = 2
    dynamic: bool = False
    suspend_s: int = 6
    """After how long an idle dynamic node is let go."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Lines of slurm.conf that differ."""

    @property
    def names(self) -> list[str]:
        """Of the nodes."""
        return [f"{'c' if self.dynamic else 'n'}{number + 1}" for number in range(self.nodes)]


class Slurm:
    """A cluster that is up."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.folder, self.shape = folder, shape
        self.conf = folder / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self.conf), "PATH": PATH}
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, *words: str | Path) -> str:
        """Run a program of Slurm's; its output."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run([*map(str, words)], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.stderr}{done.stdout}"
        return done.stdout

    def json(self, program: str) -> dict[str, Any]:
        """What `program --json` says."""
        return json.loads(self.run(program, "--json"))

    def submit(self, *words: str | Path) -> int:
        """Submit a script, with options; the job's number."""
        return int(self.run("sbatch", "--parsable", *words))

    def job(self, number: int) -> dict[str, str]:
        """`scontrol show job`, by key."""
        text = self.run("scontrol", "show", "job", str(number), "--oneliner")
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def node(self, name: str) -> dict[str, str]:
        """`scontrol show node`, by key."""
        text = self.run("scontrol", "show", "node", name, "--oneliner")
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def wait_for(self, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
        """Wait until `condition`, or fail and say what did not come."""
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"{what} did not come within {timeout_s:g} s\n{self.report()}")
            time.sleep(0.1)

    def wait_for_state(self, number: int, *states: str, timeout_s: float = WAIT_S) -> None:
        """Wait until a job is in one of the states."""
        self.wait_for(
            lambda: self.job(number)["JobState"] in states, f"job {number}: {' or '.join(states)}", timeout_s
        )

    def report(self) -> str:
        """Jobs, nodes and the end of the controller's log, for a failed test."""
        log = self.folder / "log/slurmctld.log"
        lines = log.read_text(errors="replace").splitlines()[-25:] if log.exists() else []
        found = [self._quietly("squeue", "--all"), self._quietly("sinfo", "-N", "-l"), *lines]
        return "\n".join(found)

    def _quietly(self, *words: str) -> str:
        done = subprocess.run(
            words, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    # ---- daemons

    def start(self, name: str, *command: str | Path) -> None:
        """Start a daemon in the foreground, as a child that ends with this process."""
        with (self.folder / f"log/{name}.out").open("ab") as out:
            self._children[name] = subprocess.Popen(
                [str(word) for word in command],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                preexec_fn=_die_with_parent,
                start_new_session=True,
            )

    def start_node(self, name: str) -> None:
        """Start the slurmd of a static node."""
        (self.folder / "spool" / name).mkdir(parents=True, exist_ok=True)
        self.start(name, "slurmd", "-D", "-N", name, "-f", self.conf)

    def kill(self, name: str) -> None:
        """End a daemon by SIGKILL, as a machine that is switched off does."""
        process = self._children.pop(name)
        process.kill()
        process.wait()

    def kill_node(self, name: str) -> None:
        """Switch a static node off: its slurmd and all that runs on it."""
        self.kill(name)
        for process in self._processes():
            with suppress(psutil.Error):
                if process.environ().get("SLURMD_NODENAME") == name:
                    process.kill()

    def _processes(self) -> Iterator[psutil.Process]:
        """Those that were started to work with this cluster: jobs, and what attends to them."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                mine = process.environ().get("SLURM_CONF") == str(self.conf)
                if mine and process.pid != os.getpid():
                    yield process

    def down(self) -> None:
        """End the jobs, then the daemons."""
        self._quietly("scancel", "--quiet", "--user", _user())
        end = time.monotonic() + 3.0
        while self._quietly("squeue", "--noheader", "--all").strip() and time.monotonic() < end:
            time.sleep(0.1)
        for pid in self._resumed():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name in ("slurmctld", *self._children):
            if (process := self._children.pop(name, None)) is not None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                process.kill()
                process.wait()
        for process in list(self._processes()):
            with suppress(psutil.Error):
                process.kill()

    def _resumed(self) -> Iterator[int]:
        """Daemons of dynamic nodes, if the numbers in their files are still theirs."""
        for file in self.folder.glob("slurmd-c*.pid"):
            with suppress(psutil.Error, ValueError, OSError):
                pid = int(file.read_text())
                if str(self.conf) in psutil.Process(pid).cmdline():
                    yield pid


def _user() -> str:
    return psutil.Process().username()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


@contextmanager
def slurm(folder: Path, shape: Shape | None = None) -> Iterator[Slurm]:
    """Bring a cluster up in `folder`, and down again."""
    require_slurm()
    cluster = Slurm(folder, shape or Shape())
    for name in ("log", "spool", "state"):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    _write_key(folder / "munge.key")
    with ExitStack() as stack:
        stack.callback(cluster.down)
        _start_munge(cluster)
        ports = _free_ports(1 + cluster.shape.nodes)
        cluster.conf.write_text(_configuration(folder, cluster.shape, ports))
        if cluster.shape.dynamic:
            _write_power_programs(folder)
        cluster.start("slurmctld", "slurmctld", "-D", "-c", "-f", cluster.conf)
        cluster.wait_for(lambda: "UP" in cluster._quietly("scontrol", "ping"), "the controller")
        if not cluster.shape.dynamic:
            for name in cluster.shape.names:
                cluster.start_node(name)
            cluster.wait_for(lambda: _states(cluster) == {"idle"}, "idle nodes")
        yield cluster


def _states(cluster: Slurm) -> set[str]:
    return set(cluster._quietly("sinfo", "--noheader", "--format=%T").split())


def _write_key(path: Path) -> None:
    path.touch(mode=0o600)
    path.write_bytes(secrets.token_bytes(1024))
    path.chmod(0o400)


def _start_munge(cluster: Slurm) -> None:
    at = cluster.folder
    cluster.start(
        "munge",
        "munged",
        "--foreground",
        "--force",
        f"--key-file={at}/munge.key",
        f"--socket={at}/munge.sock",
        f"--pid-file={at}/munge.pid",
        f"--log-file={at}/log/munge.log",
        f"--seed-file={at}/munge.seed",
        "--num-threads=2",
    )
    cluster.wait_for(lambda: (at / "munge.sock").exists(), "munge's socket")


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens at; all are held until all are known."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]


def _configuration(folder: Path, shape: Shape, ports: Sequence[int]) -> str:
    host = socket.gethostname().split(".")[0]
    settings = {
        "ClusterName": "test",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": str(ports[0]),
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge.sock",
        "CredType": "cred/munge",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/slurmd-%n.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        "SlurmdLogFile": f"{folder}/log/slurmd-%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "SlurmdParameters": "config_overrides",
        "MpiDefault": "none",
        "ReturnToService": "2",
        "SlurmctldTimeout": "30",
        "SlurmdTimeout": str(SLURMD_TIMEOUT_S),
        "TCPTimeout": "2",
        "InactiveLimit": "0",
        "KillWait": "5",
        "MinJobAge": "600",
        "OverTimeLimit": "0",
        "SchedulerParameters": "sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0",
        "JobRequeue": "1",
        "PropagateResourceLimits": "NONE",
        **(_power_settings(folder, shape) if shape.dynamic else {}),
        **shape.settings,
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    kind = "State=CLOUD" if shape.dynamic else "State=UNKNOWN"
    for name, port in zip(shape.names, ports[1:], strict=True):
        address = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
        lines.append(f"NodeName={name} {address} CPUs={shape.cpus} RealMemory=4000 Features=trn1 {kind}")
    lines.append("PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "".join(f"{line}\n" for line in lines)


def _power_settings(folder: Path, shape: Shape) -> dict[str, str]:
    return {
        "SlurmctldParameters": (
            "idle_on_node_suspend,power_save_min_interval=0,power_save_interval=1,cloud_reg_addrs"
        ),
        "PrivateData": "cloud",  # shows nodes that are off, too, as ParallelCluster has it
        "ResumeProgram": f"{folder}/resume.sh",
        "SuspendProgram": f"{folder}/suspend.sh",
        "ResumeTimeout": "60",
        "SuspendTimeout": "3",
        "SuspendTime": str(shape.suspend_s),
    }


def _write_power_programs(folder: Path) -> None:
    """What brings dynamic nodes and lets them go, as ParallelCluster does; those in `no-capacity` never come.

    The controller starts these without PATH and with its own signals blocked, which a slurmd would inherit.
    """
    head = f"#!/bin/bash\nexport SLURM_CONF={folder}/slurm.conf PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
    (folder / "resume.sh").write_text(
        head
        + f"""echo "resume $1" >> {folder}/log/power.log
there=""
for name in $(scontrol show hostnames "$1"); do
  if grep -qx "$name" {folder}/no-capacity; then
    scontrol update nodename=$name state=down \\
      reason="(Code:InsufficientInstanceCapacity)Failure when resuming nodes"
  else
    there="$there $name"
  fi
done
sleep 1 # machines take longer than the answer that there is none
for name in $there; do
  mkdir -p {folder}/spool/$name
  perl -MPOSIX -e 'sigprocmask(SIG_SETMASK, POSIX::SigSet->new()); exec @ARGV' \\
    slurmd -b -N $name -f {folder}/slurm.conf
done
"""
    )
    (folder / "suspend.sh").write_text(
        head
        + f"""echo "suspend $1" >> {folder}/log/power.log
for name in $(scontrol show hostnames "$1"); do
  [ -s {folder}/slurmd-$name.pid ] && kill $(cat {folder}/slurmd-$name.pid)
done
exit 0
"""
    )
    for name in ("resume.sh", "suspend.sh"):
        (folder / name).chmod(0o755)
    (folder / "no-capacity").touch()
