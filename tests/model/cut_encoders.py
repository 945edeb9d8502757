"""Tiny encoders, whole and cut over tensor-parallel ranks, with what each gives put together again."""

import torch
from cut_decoders import values
from tiny_encoders import CASES, SIZES, rows
from torch.nn import functional as F

from kitae.model.dropout import Draws
from kitae.model.encoder import Encoder
from kitae.model.encoder_config import EncoderConfig
from kitae.model.encoder_layouts import encoder_layouts
from kitae.parallel.assembly import assemble, pieces_of
from kitae.parallel.gradients import global_norm, sum_copies
from kitae.parallel.region import UNCUT, region_of
from kitae.train.loss import linear_cross_entropy

HEADS = ("pretraining", "classification")


def config_of(case):
    name, fields = CASES[case]
    return EncoderConfig.from_hf(
        {**SIZES, **fields, "model_type": "bert", "architectures": [name]} | labels(fields)
    )


def labels(fields):
    return {"id2label": {str(n): str(n) for n in range(fields.get("num_labels", 2))}}


def encoder_of(case, region=UNCUT):
    """The case's encoder with the same weights in every cut."""
    encoder = Encoder(config_of(case), region=region)
    parameters = dict(encoder.named_parameters())
    with torch.no_grad():
        for layout in encoder.layouts:
            shapes = {piece.tensor: piece.full_shape for piece in layout.pieces}
            local = assemble(
                layout, lambda name, box, s=shapes: filled(name, s[name])[box.slices()], torch.float32
            )
            parameters[layout.name].copy_(local)
    return encoder


def filled(name, shape):
    """As for decoders; the norms of a BERT have biases, too, and other names."""
    return values(name, shape) + ("LayerNorm.weight" in name)


def loss_of(encoder, draws=None):
    """Masked tokens and pairs, or classes: 4 rows of 12 tokens, one of them all padding."""
    ids, types, lengths = rows(4, 12)
    lengths[3] = 0
    hidden = encoder(ids, types, lengths, draws)
    if encoder.classifier is not None:
        logits, wanted = encoder.class_logits(hidden, draws), torch.tensor([2, 0, 1, -100])
        return F.cross_entropy(logits, wanted, reduction="sum") / 3
    positions = torch.tensor([[3, 0, 7], [1, 2, 0], [5, 0, 0], [0, 0, 0]])
    targets = torch.tensor([[5, -100, 98], [17, 60, -100], [33, -100, -100], [-100] * 3])
    masked = linear_cross_entropy(
        encoder.predictions(hidden, positions),
        encoder.head_weight,
        targets.flatten(),
        bias=encoder.head_bias,
        scale=1 / 5,
        chunk_tokens=2,
        vocabulary=encoder.vocabulary,
    )
    pairs = F.cross_entropy(encoder.pair_logits(hidden), torch.tensor([1, 0, 1, -100]), reduction="sum")
    return masked + pairs / 3


def results_of(encoder, draws=None):
    """Loss, and each parameter's gradient here."""
    encoder.zero_grad()
    loss = loss_of(encoder, draws)
    loss.backward()
    return loss.item(), {name: parameter.grad for name, parameter in encoder.named_parameters()}


def cut_results(mesh, variants):
    """In a rank: loss, gradients, and their norm over all ranks, by case and variant."""
    results = {}
    for case in HEADS:
        for cut, recompute, dropped in variants:
            encoder = encoder_of(case, region_of(mesh.tensor, cut))
            encoder.recompute = recompute
            loss, gradients = results_of(encoder, draws() if dropped else None)
            summed = {name: gradient.clone() for name, gradient in gradients.items()}
            sum_copies(summed, encoder.layouts, mesh, cut)
            norm = global_norm(summed, encoder.layouts, mesh, sharded=False).item()
            results[case, cut, recompute, dropped] = (loss, gradients, norm)
    return results


def draws():
    return Draws(seed=3, step=5, rows=torch.tensor([8, 9, 10, 11]))


def full_gradients(by_rank, case, tp_size, cut):
    """Full tensors' gradients from the ranks' ones: parts are summed, whole ones have to agree."""
    full = {}
    for rank in range(tp_size):
        for layout in encoder_layouts(config_of(case))(tp_size, rank):
            shapes = {piece.tensor: piece.full_shape for piece in layout.pieces}
            for name, box, part in pieces_of(layout, by_rank[rank][layout.name]):
                total = full.setdefault(name, torch.zeros(shapes[name]))[box.slices()]
                if layout.token_wise and not cut and rank:
                    assert torch.equal(total, part), f"{name}: rank {rank} differs"
                else:
                    total += part
    return full
