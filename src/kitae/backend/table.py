"""The table of machines: adding one is adding a class and a row."""

from __future__ import annotations

from kitae.backend.base import Backend
from kitae.backend.cpu import CpuBackend
from kitae.backend.cuda import CudaBackend
from kitae.backend.neuron import NeuronBackend
from kitae.backend.xla import XlaBackend
from kitae.errors import RecipeError

BACKENDS: dict[str, type[Backend]] = {
    backend.name: backend for backend in (NeuronBackend, XlaBackend, CudaBackend, CpuBackend)
}
"""By name; without a name the first that is available, and may be taken so, is taken."""


def available() -> list[str]:
    """Names of the backends that can be used on this machine."""
    return [name for name, backend in BACKENDS.items() if backend.unavailable() is None]


def default_name() -> str:
    """Name of the backend that is taken when none is named."""
    return next(name for name, one in BACKENDS.items() if one.unasked() and one.unavailable() is None)


def chosen(name: str | None = None) -> type[Backend]:
    """The class of the backend called `name` (None or `auto`: see `default_name`), which takes no device yet.

    `RecipeError` says why it cannot be used, and what there is.
    """
    wanted = default_name() if name in (None, "auto") else str(name)
    backend = BACKENDS.get(wanted)
    reason = "kitae knows none of that name" if backend is None else backend.unavailable()
    if backend is None or reason is not None:
        raise RecipeError(
            f"backend {wanted!r} cannot be used: {reason}; here there is {', '.join(available())}"
        )
    return backend


def select(name: str | None = None) -> Backend:
    """The backend called `name`, or the one that is taken without a name. Errors as of `chosen`."""
    return chosen(name)()


def aside_name(name: str | None = None) -> str:
    """Name of what does work beside a training on the backend `name`; it takes no device.

    Errors as of `chosen`.
    """
    backend = chosen(name)
    return CpuBackend.name if backend.static else backend.name


def select_aside(name: str | None = None) -> Backend:
    """What does work beside a training on the backend `name`: the CPU where each shape would be compiled."""
    return select(aside_name(name))
