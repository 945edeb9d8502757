"""Which attention a decoder has on a chip; the SDK's kernel is played by torch's own attention."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType

import pytest
import torch
from torch.nn import functional as F

from kitae.errors import RecipeError
from kitae.model import neuron_attention
from kitae.model.attention import OwnKernel, attend
from kitae.model.neuron_attention import Asked, Choice, choose_attention, sdk_kernel

LLAMA = Asked(8192, 128, frozenset({None}), "bf16", document_mask=False)


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """neuronx-distributed with a kernel of the documented layout; the shapes that it is given."""
    shapes: list[tuple[int, ...]] = []

    def kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        assert q.shape == k.shape == v.shape
        shapes.append(tuple(q.shape))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    name = ""
    for part in ("neuronx_distributed", "kernels", "flash_attn"):
        name = f"{name}.{part}".lstrip(".")
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules[name].nki_flash_attn_func = kernel  # type: ignore[attr-defined]
    return shapes


def test_nothing_to_choose_without_a_chip():
    for stack in ("cpu", "cuda", "xla-cpu"):
        for wanted in ("auto", "plain", "kernel"):
            assert choose_attention(wanted, stack, LLAMA) is None


def test_the_kernel_where_it_fits_and_nothing_is_given_up(sdk):
    found = choose_attention("auto", "trn1-xla", LLAMA)
    assert isinstance(found.kernel, OwnKernel)
    assert str(found) == "attention: the SDK's flash kernel: it is there, fits, and gives nothing up"


def test_documents_are_kept_apart_unless_that_is_given_up(sdk):
    packed = replace(LLAMA, document_mask=True)
    automatic = choose_attention("auto", "trn1-xla", packed)
    assert automatic.kind == "plain"
    assert "which the kernel cannot keep apart" in automatic.reason
    asked_for = choose_attention("kernel", "trn1-xla", packed)
    assert asked_for.kind == "kernel"
    assert asked_for.reason.endswith("documents that share a row see each other")
    assert choose_attention("plain", "trn1-xla", packed).kind == "plain"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"length": 1024}, "rows of 1024 tokens are no multiple of 2048"),
        ({"length": 5000}, "rows of 5000 tokens are no multiple of 2048"),
        ({"head_size": 256}, "heads of 256 are larger than 128"),
        ({"windows": frozenset({None, 4096})}, "layers have a sliding window"),
        ({"precision": "fp32"}, "fp32 is wanted"),
        ({"causal": False}, "every token sees all others"),
    ],
)
def test_where_it_does_not_fit(sdk, change, reason):
    asked = replace(LLAMA, **change)
    found = choose_attention("auto", "trn1-xla", asked)
    assert found.kind == "plain"
    assert reason in found.reason
    with pytest.raises(RecipeError, match=r"training\.attention: the kernel cannot be used: "):
        choose_attention("kernel", "trn1-xla", asked)


def test_where_it_is_not_installed():
    found = choose_attention("auto", "trn1-xla", LLAMA)
    assert found == Choice("plain", found.reason)
    assert "neuronx_distributed.kernels.flash_attn.nki_flash_attn_func is not there (" in found.reason
    with pytest.raises(RecipeError, match="is not there"):
        choose_attention("kernel", "trn1-xla", LLAMA)


def test_a_package_that_breaks_on_import(monkeypatch: pytest.MonkeyPatch):
    def broken(name: str) -> ModuleType:
        raise RuntimeError("undefined symbol\nand more")

    monkeypatch.setattr(neuron_attention, "import_module", broken)
    assert sdk_kernel() == (
        "neuronx_distributed.kernels.flash_attn.nki_flash_attn_func is not there (undefined symbol)"
    )


def test_torch_neuron_has_its_own(sdk):
    found = choose_attention("auto", "torchneuron", LLAMA)
    assert (found.kind, "computes scaled_dot_product_attention itself" in found.reason) == ("plain", True)


def test_the_kernel_gives_what_the_plain_form_gives(sdk):
    """Of one document a row; KV heads are repeated beside each other, as grouped attention shares them."""
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 16, heads, 8, generator=draw, requires_grad=True) for heads in (6, 2, 2))
    kernel = choose_attention("auto", "trn1-xla", LLAMA).kernel
    plain, own = attend(q, k, v, None, None), attend(q, k, v, kernel, None)
    assert own.shape == (2, 16, 6, 8)
    assert sdk == [(2, 6, 16, 8)]
    assert torch.allclose(own, plain, atol=1e-6)
    for one, other in zip(
        *(torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (own, plain)), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-5)
