"""A real sshd on loopback, with a port, keys and a configuration of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

SSHD = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
WAIT_S = 20.0


@dataclass(frozen=True)
class Sshd:
    """A server that is up; `ssh -F config head` leads to it."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def config(self) -> Path:
        """Of the client."""
        return self.folder / "config"

    @property
    def options(self) -> str:
        """What `KITAE_SSH_OPTIONS` is to be."""
        return f"-F {shlex.quote(str(self.config))}"

    def sessions(self) -> list[psutil.Process]:
        """Processes of the server that have a connection."""
        return [one for one in psutil.Process(self.process.pid).children() if one.is_running()]

    def drop(self) -> int:
        """Cut all connections; how many there were."""
        found = self.sessions()
        for one in found:
            with suppress(psutil.Error):  # a session may end by itself meanwhile
                for process in (*[c for c in one.children() if c.name() == "sshd"], one):
                    process.send_signal(signal.SIGKILL)
        return len(found)


@contextmanager
def sshd(folder: Path, environment: Mapping[str, str]) -> Iterator[Sshd]:
    """Bring a server up; what it starts gets `environment`. Its key is known to the client."""
    assert SSHD is not None, "no sshd here: apt-get install -y openssh-server (.ci/run does)"
    folder.mkdir(mode=0o700, parents=True)
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    port = _free_port()
    (folder / "keys").write_text((folder / "user.pub").read_text())
    (folder / "keys").chmod(0o600)
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "sshd_config").write_text(_server(folder, port, environment))
    (folder / "config").write_text(_client(folder, port))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stdout=log, stderr=log
        )
    up = Sshd(folder, process)
    try:
        _wait(port, process, folder / "log")
        yield up
    finally:
        up.drop()
        process.terminate()
        process.wait()


def _server(folder: Path, port: int, environment: Mapping[str, str]) -> str:
    variables = " ".join(f'"{name}={value}"' for name, value in environment.items())
    return f"""Port {port}
ListenAddress 127.0.0.1
HostKey "{folder}/host"
PidFile "{folder}/pid"
AuthorizedKeysFile "{folder}/keys"
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 50
{f"SetEnv {variables}" if variables else ""}
"""


def _client(folder: Path, port: int) -> str:
    return f"""Host head
HostName 127.0.0.1
Port {port}
IdentityFile "{folder}/user"
IdentitiesOnly yes
UserKnownHostsFile "{folder}/known"
GlobalKnownHostsFile /dev/null
"""


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(f"no sshd came up: {log.read_text()}")
