"""Stands in for srun: starts the command that follows once for each of several machines, all of them here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def main() -> None:
    count, command = int(sys.argv[1]), sys.argv[2:]
    started = [
        subprocess.Popen(command, env={**os.environ, "SLURM_NODEID": str(node)}) for node in range(count)
    ]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: [one.send_signal(number) for one in started])
    sys.exit(max(abs(one.wait()) for one in started))


if __name__ == "__main__":
    main()
