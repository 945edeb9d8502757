"""A training on torch-xla in a process of its own, which may be killed: `xla_victim.py FOLDER STEP`.

Prints a line of JSON when it is done: losses by step, and keys of graphs by name.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from tiny_training import job
from xla_case import on_xla, run

from kitae.train.step import Stepper


def main(folder: Path, last: int) -> None:
    """Train six updates; the process kills itself when `last` would begin."""
    usual = Stepper.begin

    def begin(self, batch, rate, *, step, check):
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return usual(self, batch, rate, step=step, check=check)

    Stepper.begin = begin
    training = {"duration": "6 steps", "global_batch_size": 4, "micro_batch_size": 2, "precision": "bf16-sr"}
    often = {"evaluation": {"every": "3 steps"}, "checkpoint": {"every": "2 steps"}}
    done = run(on_xla(job(folder, training=training, **often)))
    losses = [[one["kind"], one["step"], one["loss"]] for one in done.records if "loss" in one]
    keys = {one.phase: one.key for one in done.ledger.entries}
    print(json.dumps({"losses": losses, "keys": keys, "compiled": done.compiled}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
