"""A tiny decoder's state cut over ranks in every way, and what each rank should hold of it."""

from dataclasses import dataclass

import torch

from kitae.checkpoint.live import LiveSink, LiveSource
from kitae.checkpoint.stream import fill
from kitae.model.config import DecoderConfig
from kitae.model.decoder import decoder_layouts
from kitae.parallel.assembly import assemble
from kitae.parallel.shares import share_layouts

KINDS = ("weights", "exp_avg", "exp_avg_sq")
CONFIG = {
    "model_type": "llama",
    "vocab_size": 99,  # padded for every tp but 1
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,  # replicated from tp 4 on
    "head_dim": 6,  # shares end within a head
    "attention_bias": True,
    "max_position_embeddings": 64,
}


@dataclass(frozen=True)
class Topology:
    """Ranks, tensor parallel fastest."""

    tp: int = 1
    dp: int = 1
    zero: bool = False
    tied: bool = False

    @property
    def size(self):
        return self.tp * self.dp

    def layouts(self, rank):
        """What a rank holds."""
        local = decoder_layouts(DecoderConfig.from_hf(CONFIG), self.tied)(self.tp, rank % self.tp)
        return share_layouts(local, self.dp, rank // self.tp) if self.zero else local

    def world(self):
        return [self.layouts(rank) for rank in range(self.size)]


def full_state(tied=False, seed=0):
    """Every full tensor of every kind, fp32; any bits but zeros, NaNs among them."""
    draw = torch.Generator().manual_seed(seed)
    shapes = {p.tensor: p.full_shape for one in Topology(tied=tied).layouts(0) for p in one.pieces}
    return {
        kind: {
            name: torch.randint(1, 2**31 - 1, shape, generator=draw, dtype=torch.int32).view(torch.float32)
            for name, shape in shapes.items()
        }
        for kind in KINDS
    }


def local_state(layouts, full):
    """What a rank holds of a state, by kind and parameter; padding is zero."""
    return {
        kind: {
            one.name: assemble(one, lambda name, box, t=tensors: t[name][box.slices()], torch.float32)
            for one in layouts
        }
        for kind, tensors in full.items()
    }


def sources_of(layouts, local):
    return {kind: LiveSource(tensors, layouts) for kind, tensors in local.items()}


def filled(layouts, source_of):
    """What a rank reads from the sources of a checkpoint, into memory full of something else."""
    result = {}
    for kind in KINDS:
        result[kind] = {one.name: torch.full(one.shape, torch.nan) for one in layouts}
        with LiveSink(result[kind], layouts) as sink:
            fill(source_of(kind), sink)
    return result


def assert_same_state(found, expected):
    """Same dtypes and bits, padding included."""
    for kind in KINDS:
        assert found[kind].keys() == expected[kind].keys()
        for name, tensor in expected[kind].items():
            assert found[kind][name].dtype == torch.float32
            assert torch.equal(found[kind][name].view(torch.int32), tensor.view(torch.int32)), (kind, name)
