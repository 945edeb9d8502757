"""What the system says of files that cannot be read, told so that one can act."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kitae.errors import KitaeError, WeightsError


@contextmanager
def reading(what: Path | str) -> Iterator[None]:
    """Turn the system's word on a file into a WeightsError that names it, or `what` where it doesn't."""
    try:
        yield
    except (KitaeError, BrokenPipeError):  # a StorageError is the system's word, too; a pipe is no file
        raise
    except OSError as error:
        raise WeightsError(
            f"cannot read {error.filename or what}: {error.strerror or error}; look whether its disk is "
            "there and whether you may read it"
        ) from error
