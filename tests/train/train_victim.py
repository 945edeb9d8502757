"""Trainings in processes of their own, for tests that kill them.

A server that has imported everything forks a process for each line of JSON on its standard input, and
answers with how it ended: `folder`, `output` (file for what it prints), `sections` of the recipe and `die`, a
list of [place, n, signal]: the n-th time the place is reached, the process sends itself that signal. A
training prints the numbers of the rows of each update, then the result.
"""

import json
import os
import signal
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import torch
from tiny_training import job

from kitae.checkpoint.store import CheckpointStore
from kitae.errors import KitaeError
from kitae.train import loop, objective
from kitae.train.loop import train


def at(owner, name, count, number):
    """Send the signal in the call number `count` of a function, before it does its work."""
    usual, calls = getattr(owner, name), []

    def wrapped(*args, **kwargs):
        calls.append(name)
        if len(calls) == count:
            os.kill(os.getpid(), number)
        return usual(*args, **kwargs)

    setattr(owner, name, wrapped)


PLACES = {
    "train": (loop.Stepper, "loss_of"),
    "evaluation": (objective.CausalLM, "scores"),
    "save": (CheckpointStore, "_publish"),
    "enter": (CheckpointStore, "_enter"),
    "start": (loop, "build_stepper"),
}


def training(given: dict) -> int:
    made = replace(
        job(Path(given["folder"]), **given["sections"]), report=lambda line: print("report", line, flush=True)
    )
    rows = made.phases[0].train
    usual = type(rows).rows

    def noted(packed, indices):
        if packed is rows:
            print("rows", json.dumps(list(indices)), flush=True)
        return usual(packed, indices)

    type(rows).rows = noted
    for place, count, name in given["die"]:
        at(*PLACES[place], count, signal.Signals[name])
    try:
        result = train(made)
    except KitaeError as error:
        print("error", error, flush=True)
        return error.exit_code
    print("done", json.dumps(result.results), flush=True)
    return 0


def child(given: dict) -> int:
    """Train with both outputs in a file; the exit code."""
    output = os.open(given["output"], os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        return training(given)
    except KeyboardInterrupt:
        return 130
    except BaseException:
        traceback.print_exc()
        return 1


def serve() -> None:
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            code = child(json.loads(line))
            sys.stdout.flush()
            os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)  # a fork would lose the others
    torch.optim.AdamW([torch.ones(1, requires_grad=True)])  # imports for a second
    serve()
