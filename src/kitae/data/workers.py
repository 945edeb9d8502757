"""Batches are encoded in this process or in worker processes, in order and with the same result.

What encodes a batch is made from a spec in the process that does the work, and its result comes back.
Workers are started afresh (not forked), import no torch, and use one core each. They never see Ctrl-C, and
end when the process that started them ends, however it ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TypeVar

from kitae.data.documents import Document
from kitae.data.tokenise import AnyDocument, batched
from kitae.errors import DataError

IN_FLIGHT_PER_WORKER = 3
# Below this, starting processes (about a second) costs more than it saves.
WORKERS_MIN_BYTES = 16 << 20

Made = TypeVar("Made")
Made_co = TypeVar("Made_co", covariant=True)

Encode = Callable[[Iterable[AnyDocument]], Iterator[tuple[list[AnyDocument], Made]]]
"""From documents to (documents, result), a batch at a time."""


class Spec(Protocol[Made_co]):
    """All that the result of a batch depends on; it can be pickled."""

    def open(self) -> Callable[[Sequence[Any]], Made_co]:
        """What turns the contents of a batch of documents into the result, for one process."""
        ...


def text_of(document: Document) -> str:
    """The text alone, which is all that most encoders read."""
    return document.text


@contextmanager
def encoding(
    spec: Spec[Made], workers: int, content: Callable[[AnyDocument], object] = text_of
) -> Iterator[Encode[AnyDocument, Made]]:
    """Give a function from documents to (documents, result) in order, by `workers` processes (0: this one).

    `content` is what the encoder gets of each document. Raises `DataError` when a worker dies. Leaving the
    context, also by an exception, ends the workers.
    """
    if workers == 0:
        encoder = spec.open()
        yield lambda documents: (
            (batch, encoder([content(document) for document in batch])) for batch in batched(documents)
        )
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(spec,))
    try:
        yield lambda documents: _in_order(pool, batched(documents), workers * IN_FLIGHT_PER_WORKER, content)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def choose_workers(setting: int | Literal["auto"], num_bytes: int | None) -> tuple[int, str]:
    """Number of worker processes for a text of `num_bytes` on disk (None: unknown), and why."""
    if setting != "auto":
        return setting, "data.workers"
    cores = available_cores()
    if cores == 1:
        return 0, "one core"
    if num_bytes is not None and num_bytes < WORKERS_MIN_BYTES:
        return 0, f"{num_bytes / 2**20:.1f} MiB of text are done sooner than workers start"
    return cores, f"{cores} cores"


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_order(
    pool: ProcessPoolExecutor,
    batches: Iterator[list[AnyDocument]],
    in_flight: int,
    content: Callable[[AnyDocument], object],
) -> Iterator[tuple[list[AnyDocument], Any]]:
    waiting: deque[tuple[list[AnyDocument], Future[Any]]] = deque()
    try:
        for batch in batches:
            waiting.append((batch, _submit(pool, [content(document) for document in batch])))
            if len(waiting) >= in_flight:
                yield _finished(waiting.popleft())
        while waiting:
            yield _finished(waiting.popleft())
    except BrokenProcessPool as error:
        raise DataError(
            "a tokeniser process died (killed, out of memory, or started from a script without "
            "`if __name__ == '__main__':`); set data.workers to fewer, or to 0 for none"
        ) from error


def _finished(pair: tuple[list[AnyDocument], Future[Any]]) -> tuple[list[AnyDocument], Any]:
    documents, future = pair
    return documents, future.result()


def _submit(pool: ProcessPoolExecutor, contents: list[object]) -> Future[Any]:
    # Processes start inside submit and inherit the signal mask: with SIGINT blocked, Ctrl-C is for us only.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(_encode_in_worker, contents)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_encoder: Callable[[Sequence[Any]], Any] | None = None


def _start_worker(spec: Spec[Any]) -> None:
    global _encoder
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _encoder = spec.open()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _encode_in_worker(contents: list[object]) -> Any:
    assert _encoder is not None
    return _encoder(contents)
