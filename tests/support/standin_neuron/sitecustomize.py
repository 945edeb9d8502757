"""Lets the programs of a test take this machine for a Trn1, each node with a cache of its own.

Read by every Python that has this folder in PYTHONPATH. Ranks compute on the CPU; only what is compiled
ahead, and how that is found out, is that of a chip's stack.
"""

import os

if "STANDIN_NEURON_ROOT" in os.environ:
    import kitae.backend.stack

    node = os.environ.get("SLURMD_NODENAME", "here")
    os.environ["NEURON_COMPILE_CACHE_URL"] = f"{os.environ['STANDIN_NEURON_ROOT']}/{node}"
    kitae.backend.stack.stack_here = lambda backend: "trn1-xla"
