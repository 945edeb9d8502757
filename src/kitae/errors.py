"""Every error that a user can cause or meet, and the exit code of its kind.

A message says what is wrong, where, and how to get out of it; the command line prints it without a traceback.
"""

from __future__ import annotations


class KitaeError(Exception):
    """Root of all errors that kitae raises on purpose; `exit_code` is what the command line exits with."""

    exit_code = 1


class RecipeError(KitaeError, ValueError):
    """The recipe, a flag or a `--set` value is wrong."""

    exit_code = 2


class DataError(KitaeError, ValueError):
    """A text source cannot be read, is empty, or does not fit the model."""

    exit_code = 3


class WeightsError(KitaeError, ValueError):
    """A model folder or checkpoint is broken, unsupported, or contradicts itself."""

    exit_code = 4


class TrainingError(KitaeError, RuntimeError):
    """Training met what it must not go on from: a value that is not finite, a process that died or hangs."""

    exit_code = 5


class ProofError(KitaeError, RuntimeError):
    """A result did not pass its proof."""

    exit_code = 6


class StorageError(KitaeError, OSError):
    """The disk is full, read-only or missing."""

    exit_code = 7


class ClusterError(KitaeError, RuntimeError):
    """The cluster's scheduler or head node is not there, refused a job, or gave it up."""

    exit_code = 8


class PrecompileError(KitaeError, RuntimeError):
    """Graphs of a training are not compiled, or the compiler's cache cannot be used."""

    exit_code = 9


class StoppedError(KitaeError):
    """The run was stopped by a signal after it saved; run it again to go on (75 is EX_TEMPFAIL)."""

    exit_code = 75
