import os
import resource

import psutil
import pytest
import torch

from kitae.backend import cpu
from kitae.backend.cuda import CudaBackend
from kitae.backend.table import BACKENDS, available, select
from kitae.errors import RecipeError


def test_the_cpu_is_always_there():
    backend = select("cpu")
    assert (backend.name, backend.device.type, backend.default_precision) == ("cpu", "cpu", "fp32")
    assert "cpu" in available()
    backend.synchronize()
    backend.boundary("update")


def test_without_a_name_the_first_available_is_taken():
    assert select().name == available()[0]


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(RecipeError, match=r"backend 'tpu' cannot be used.*none of that name.*cpu"):
        select("tpu")


def test_an_unavailable_backend_says_why(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert CudaBackend.unavailable() is not None
    with pytest.raises(RecipeError, match=r"'cuda' cannot be used: torch sees no CUDA device; .* cpu"):
        select("cuda")


def test_every_row_is_complete():
    for name, backend in BACKENDS.items():
        assert backend.name == name
        assert backend.default_precision in ("fp32", "bf16")
        assert not backend.__abstractmethods__


def test_peak_memory_covers_what_was_held_and_agrees_with_the_kernel():
    backend = select("cpu")
    before = backend.memory_bytes()
    block = torch.ones(16 << 20)
    assert backend.memory_bytes() >= max(before, block.nbytes)
    reported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert backend.memory_bytes() == pytest.approx(reported, rel=0.05)


def test_peak_memory_without_proc(monkeypatch, tmp_path):
    backend = select("cpu")
    known = backend.memory_bytes()
    monkeypatch.setattr(cpu, "_STATUS", tmp_path / "none")
    assert backend.memory_bytes() == pytest.approx(known, rel=0.05)


def test_peak_flops_is_measured():
    backend = select("cpu")
    assert 1e8 < backend.peak_flops(torch.float32) < 1e14
    assert backend.peak_flops(torch.bfloat16) > 1e7


def test_fp32_products_stay_fp32():
    """Whatever multiplies: factors with more bits than bf16 has are not rounded."""
    select("cpu")
    assert cpu._products_are_exact()
    left, right = torch.randn(300, 200), torch.randn(200, 500)
    exact = left.double() @ right.double()
    assert ((left @ right).double() - exact).abs().max() < 2e-5 * exact.abs().max()


@pytest.mark.parametrize("exact", [True, False])
def test_rounded_products_are_not_routed(monkeypatch, exact):
    settings = torch.backends.mkldnn.matmul
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(cpu, "_products_are_exact", lambda: exact)
    before = settings.fp32_precision
    try:
        settings.fp32_precision = "ieee"
        assert cpu.route_products.__wrapped__() is exact
        assert settings.fp32_precision == ("bf16" if exact else "ieee")
    finally:
        settings.fp32_precision = before


@pytest.mark.parametrize("feature", ["tiles", "no avx512", "no onednn"])
def test_processors_where_rounding_is_possible_are_left_alone(monkeypatch, feature):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: feature == "tiles")
    monkeypatch.setattr(
        torch.backends.cpu, "get_cpu_capability", lambda: "AVX2" if feature == "no avx512" else "AVX512"
    )
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: feature != "no onednn")
    assert cpu.route_products.__wrapped__() is False


def test_freed_memory_is_kept_for_the_next_step():
    assert cpu.keep_freed_memory() in (True, False)
    if not cpu.keep_freed_memory():
        pytest.skip("the C library is not glibc")
    faults = []
    for _ in range(8):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [torch.ones(4 << 20) for _ in range(8)]  # 16 MiB each
        del blocks
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    # The least of several: the kernel may take idle pages away in between.
    assert min(faults[1:]) < 100 < 8 * (16 << 20) // resource.getpagesize()


def test_processes_of_one_machine_talk_over_what_their_devices_allow(monkeypatch):
    """NCCL refuses two ranks on one GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert CudaBackend.devices() == 4
    assert CudaBackend.transport(4) == ("nccl", False)
    assert CudaBackend.transport(5) == ("gloo", True)
    assert BACKENDS["cpu"].transport(64) == ("gloo", False)


def test_devices_are_counted(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert CudaBackend.devices() == 0
    assert BACKENDS["cpu"].devices() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("local_rank", "device"), [("0", 0), ("2", 2), ("5", 1)])
def test_a_rank_takes_its_own_gpu(monkeypatch, local_rank, device):
    taken = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: taken[-1])
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert CudaBackend().device == torch.device("cuda", device)


def test_freed_memory_is_given_back():
    """Blocks of a size that the heap keeps for the next step; the next processes want it."""
    backend = select("cpu")
    resident = psutil.Process().memory_info
    blocks = [torch.ones(4 << 20) for _ in range(16)]  # 16 MiB each
    held = resident().rss
    del blocks
    backend.release_memory()
    assert resident().rss < held - 200 * 2**20


@pytest.mark.cuda
def test_a_gpu_releases_its_cache():
    backend = select("cuda")
    block = torch.ones(64 << 20, device=backend.device)
    del block
    assert torch.cuda.memory_reserved() > 0
    backend.release_memory()
    assert torch.cuda.memory_reserved() == 0


def test_the_recipe_knows_the_same_precisions():
    from kitae.recipe.resolve import _PRECISIONS

    for name, backend in BACKENDS.items():
        assert _PRECISIONS[name][0] == backend.default_precision
