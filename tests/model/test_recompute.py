import pytest
import torch
from tiny_decoders import positions, random_ids, reference, same_in_kitae
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

CASES = ("llama-biases", "qwen3-window", "smollm2")


def gradients(decoder, mode, segments=None):
    decoder.recompute = mode
    decoder.zero_grad()
    ids = random_ids(2, 140)
    decoder.logits(decoder(ids, positions(ids), segments)).square().mean().backward()
    return [parameter.grad.clone() for parameter in decoder.parameters()]


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_the_same_to_the_bit(case):
    decoder = same_in_kitae(reference(case))
    segments = (torch.arange(140) // 50 + 1).expand(2, 140)
    for documents in (None, segments):
        kept = gradients(decoder, "none", documents)
        for mode in ("selective", "full"):
            assert all(map(torch.equal, gradients(decoder, mode, documents), kept)), mode


class Made(TorchDispatchMode):
    """Every memory that an operation has made, held weakly."""

    def __init__(self):
        super().__init__()
        self.made = {}

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        output = operation(*arguments, **(keywords or {}))
        for tensor in output if isinstance(output, (tuple, list)) else (output,):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self.made[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        return output


def kept_bytes(decoder, mode):
    """Bytes that are still alive after a forward pass because its backward pass will need them."""
    decoder.recompute = mode
    ids = random_ids(2, 128)
    places = positions(ids)
    owned = {tensor.untyped_storage()._cdata for tensor in (*decoder.parameters(), ids, places)}
    with Made() as memory:
        output = decoder(ids, places)
    alive = sum(size for key, (weak, size) in memory.made.items() if not weak.expired() and key not in owned)
    return alive - output.untyped_storage().nbytes()


@pytest.mark.parametrize("case", CASES)
def test_less_is_kept(case):
    decoder = same_in_kitae(reference(case))
    none, selective, full = (kept_bytes(decoder, mode) for mode in ("none", "selective", "full"))
    assert full < selective < none
    config = decoder.config
    tokens = 2 * 128 * 4 * config.num_layers
    assert none - selective == tokens * (2 * config.hidden_size + config.intermediate_size)


def test_full_keeps_one_hidden_state_a_layer():
    decoder = same_in_kitae(reference("llama2"))
    config, tokens = decoder.config, 2 * 128
    layers = (config.num_layers + 1) * tokens * config.hidden_size * 4
    tables, mask, final_norm = 2 * tokens * config.head_dim // 2 * 4, 128 * 128 * 4, tokens * 4
    assert kept_bytes(decoder, "full") == layers + tables + mask + final_norm


def test_unknown_mode_is_refused():
    with pytest.raises(AssertionError):
        same_in_kitae(reference("llama2")).recompute = "some"
