"""One tiny decoder, whole and cut over tensor-parallel ranks, and its gradients put together again."""

import hashlib

import torch

from kitae.model.config import DecoderConfig
from kitae.model.decoder import Decoder, decoder_layouts
from kitae.parallel.assembly import assemble, pieces_of
from kitae.parallel.region import UNCUT, region_of
from kitae.train.loss import IGNORE, linear_cross_entropy

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
BIASES = {"attention_bias": True, "mlp_bias": True}
CASES = {
    "llama": ({"model_type": "llama"}, False),
    "llama-tied": ({"model_type": "llama"}, True),
    "llama-biases": ({"model_type": "llama", **BIASES}, False),
    "qwen2-tied": ({"model_type": "qwen2"}, True),
    "qwen3": ({"model_type": "qwen3", "head_dim": 6}, False),
    "qwen3-tied-window": (
        {
            "model_type": "qwen3",
            "head_dim": 4,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        True,
    ),
}
"""By name: what differs from the sizes, and whether the head is the embedding."""


def values(name, shape):
    """A full tensor's values, which depend on its name only; nothing is zero or one."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.15 + ("norm" in name)


def decoder_of(case, region=UNCUT, fill=values, **changes):
    """The case's decoder with the same weights in every cut; `fill(name, shape)` gives a full tensor."""
    fields, tied = CASES[case]
    config = DecoderConfig.from_hf({**SIZES, **fields, **changes})
    decoder = Decoder(config, tied=tied, region=region)
    parameters = dict(decoder.named_parameters())
    with torch.no_grad():
        for layout in decoder.layouts:
            shapes = {piece.tensor: piece.full_shape for piece in layout.pieces}
            local = assemble(
                layout, lambda name, box, s=shapes: fill(name, s[name])[box.slices()], torch.float32
            )
            parameters[layout.name].copy_(local)
    return decoder


def batch():
    """Ids, positions, documents and targets [2, 12], some of them ignored; vocabulary 99."""
    random = torch.Generator().manual_seed(5)
    ids, targets = torch.randint(0, 99, (2, 2, 12), generator=random)
    targets[0, 3:6] = IGNORE
    segments = torch.tensor([[1] * 5 + [2] * 7, [1] * 9 + [0] * 3])
    places = torch.cat([torch.arange(5), torch.arange(7), torch.arange(9), torch.arange(3)]).view(2, 12)
    return ids, places, segments, targets


def loss_of(decoder, scale=1 / 21):
    ids, places, segments, targets = batch()
    return linear_cross_entropy(
        decoder(ids, places, segments).flatten(0, 1),
        decoder.head_weight,
        targets.flatten(),
        scale=scale,
        chunk_tokens=8,
        vocabulary=decoder.vocabulary,
    )


def loss_and_gradients(decoder):
    """Loss, and each parameter's gradient here."""
    decoder.zero_grad()
    loss = loss_of(decoder)
    loss.backward()
    return loss.item(), {name: parameter.grad for name, parameter in decoder.named_parameters()}


def whole(case):
    """Loss of the whole model, and the gradients by full tensor."""
    decoder = decoder_of(case)
    loss, gradients = loss_and_gradients(decoder)
    return loss, full_gradients([gradients], case, 1, False)


def layouts_of(case, tp_size, rank):
    fields, tied = CASES[case]
    return decoder_layouts(DecoderConfig.from_hf({**SIZES, **fields}), tied)(tp_size, rank)


def full_gradients(by_rank, case, tp_size, sequence_parallel):
    """Full tensors' gradients from the ranks' ones: parts are summed, whole ones have to agree."""
    full, seen = {}, {}
    for rank in range(tp_size):
        for layout in layouts_of(case, tp_size, rank):
            replicated_whole = layout.token_wise and not sequence_parallel
            shapes = {piece.tensor: piece.full_shape for piece in layout.pieces}
            for name, box, part in pieces_of(layout, by_rank[rank][layout.name]):
                total = full.setdefault(name, torch.zeros(shapes[name]))[box.slices()]
                count = seen.setdefault(name, torch.zeros(shapes[name]))[box.slices()]
                if replicated_whole and rank:
                    assert torch.equal(total, part), f"{name}: rank {rank} differs"
                else:
                    total += part
                count += 1
    expected = {
        piece.tensor: piece.replicas for layout in layouts_of(case, tp_size, 0) for piece in layout.pieces
    }
    assert all((seen[name] == expected[name]).all() for name in seen)
    return full


def results_of(mesh, variants):
    """In a rank: loss and gradients by case and variant (sequence parallel, recompute)."""
    results = {}
    for case in CASES:
        for sequence_parallel, recompute in variants:
            decoder = decoder_of(case, region_of(mesh.tensor, sequence_parallel))
            decoder.recompute = recompute
            results[case, sequence_parallel, recompute] = loss_and_gradients(decoder)
    return results
