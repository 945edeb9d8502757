"""Gives metrics to who asks over HTTP, or once, as text."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from kitae.errors import KitaeError, RecipeError
from kitae.storage.files import replace_file
from kitae.storage.own_file import refuse_other_file

try:
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server
except ImportError as error:
    raise RecipeError(
        "kitae metrics needs prometheus-client, which is not installed; pip install 'kitae[watch]'"
    ) from error

from kitae.watch.exporter.collector import RunCollector

_BEGINS = b"# HELP kitae_"
"""A file of metrics."""
_REASONS = {
    errno.EADDRINUSE: "is taken; give another one with --port",
    errno.EACCES: "may not be used by you; give one above 1023 with --port",
    errno.EADDRNOTAVAIL: "cannot be had: this machine does not have that address; see --address",
}


def text_of(collector: RunCollector) -> bytes:
    """What a scrape gets, in the text format (version 0.0.4)."""
    return generate_latest(_registry(collector))


def write_text(collector: RunCollector, path: Path) -> None:
    """Replace a file as a whole, such as node_exporter reads. Raises `RecipeError` or `StorageError`."""
    refuse_other_file(path, lambda head, tail: head.startswith(_BEGINS), "metrics file")
    replace_file(path, text_of(collector))


def serve(collector: RunCollector, address: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM. Raises `KitaeError` where the port cannot be had."""
    try:
        server, thread = start_http_server(port, address, _registry(collector))
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, f"cannot be had: {error.strerror or error}")
        raise KitaeError(f"port {port} of {address} {reason}") from error
    shown = f"[{address}]" if ":" in address else address
    tell(f"metrics: http://{shown}:{server.server_port}/metrics (Ctrl-C ends it)")
    try:
        _wait_for_the_end()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    tell("metrics: ended")


def _wait_for_the_end() -> None:
    over = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        over.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        over.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _registry(collector: RunCollector) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry
