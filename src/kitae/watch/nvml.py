"""GPUs as NVML tells of them, through nvidia-ml-py (`pynvml`) where that is installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

from kitae.watch.samples import CoreSample, DeviceSample, ProcessSample
from kitae.watch.told import Told

_VISIBLE = "CUDA_VISIBLE_DEVICES"


class Nvml:
    """Tells of the GPUs that the training may use. A value that a card does not tell is None."""

    name = "nvml"

    def __init__(self, nvml: Any) -> None:
        """`nvml` is the module."""
        self._nvml = nvml
        nvml.nvmlInit()
        handles = {
            index: nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())
        }
        chosen = visible(os.environ.get(_VISIBLE), {index: self._uuid(one) for index, one in handles.items()})
        self._handles = {index: handles[index] for index in chosen}

    @classmethod
    def find(cls) -> Nvml | None:
        """NVML, where this machine has it, and a card."""
        with suppress(Exception):  # no module, no driver, a driver of another version, ...
            found = cls(import_module("pynvml"))
            return found if found._handles else None
        return None

    def read(self) -> Told:
        """What all cards tell now; utilisation is the driver's, of its last second or less."""
        processes: dict[int, ProcessSample] = {}
        for index, handle in self._handles.items():
            for pid, used in self._processes(handle):
                before = processes.get(pid, ProcessSample(pid))
                total = None if used is None else (before.memory_used_bytes or 0) + used
                processes[pid] = ProcessSample(pid, memory_used_bytes=total, cores=(*before.cores, index))
        return Told(
            cores=tuple(self._core(index, one) for index, one in self._handles.items()),
            devices=tuple(self._device(index, one) for index, one in self._handles.items()),
            processes=tuple(processes.values()),
        )

    def close(self) -> None:
        """End the connection to the driver."""
        with suppress(Exception):
            self._nvml.nvmlShutdown()

    def _core(self, index: int, handle: Any) -> CoreSample:
        busy = self._ask(lambda: self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
        memory = self._ask(lambda: self._nvml.nvmlDeviceGetMemoryInfo(handle))
        return CoreSample(index, busy, getattr(memory, "used", None), getattr(memory, "total", None))

    def _device(self, index: int, handle: Any) -> DeviceSample:
        nvml = self._nvml
        name = self._ask(lambda: nvml.nvmlDeviceGetName(handle))
        return DeviceSample(
            index=index,
            name=name.decode() if isinstance(name, bytes) else name or "",
            ecc_corrected=self._ecc(handle, "NVML_MEMORY_ERROR_TYPE_CORRECTED"),
            ecc_uncorrected=self._ecc(handle, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"),
            temperature_c=self._ask(
                lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            ),
            power_w=self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        )

    def _ecc(self, handle: Any, kind: str) -> int | None:
        """Since the driver was loaded; None for a card without such memory."""
        nvml = self._nvml
        found: int | None = self._ask(
            lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, getattr(nvml, kind), nvml.NVML_VOLATILE_ECC)
        )
        return found

    def _processes(self, handle: Any) -> Iterator[tuple[int, int | None]]:
        for one in self._ask(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or ():
            yield one.pid, one.usedGpuMemory

    def _uuid(self, handle: Any) -> str:
        uuid = self._ask(lambda: self._nvml.nvmlDeviceGetUUID(handle))
        return uuid.decode() if isinstance(uuid, bytes) else uuid or ""

    def _ask(self, question: Callable[[], Any]) -> Any:
        """The answer, or None where the card or the driver has none."""
        try:
            return question()
        except (self._nvml.NVMLError, AttributeError):
            return None


def visible(value: str | None, uuids: dict[int, str]) -> list[int]:
    """The cards that CUDA_VISIBLE_DEVICES leaves, by number or beginning of the UUID; unset: all."""
    if value is None:
        return list(uuids)
    found = []
    for word in filter(None, (word.strip() for word in value.split(","))):
        number = [int(word)] if word.isdecimal() else []
        match = [index for index, uuid in uuids.items() if index in number or uuid.startswith(word)]
        if not match:
            break  # CUDA sees none of those after one that is not there
        found.append(match[0])
    return found
