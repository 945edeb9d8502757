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


def select(name: str | None = None) -> Backend:
    """Return the backend called `name` or the first available one; `RecipeError` names what there is."""
    chosen = default_name() if name is None else name
    backend = BACKENDS.get(chosen)
    reason = "kitae knows none of that name" if backend is None else backend.unavailable()
    if backend is None or reason is not None:
        raise RecipeError(
            f"backend {chosen!r} cannot be used: {reason}; here there is {', '.join(available())}"
        )
    return backend()
