"""A few layouts with a norm and grouped KV heads, for tests of what ranks hold twice."""

from __future__ import annotations

from kitae.parallel import cuts
from kitae.parallel.cuts import Place
from kitae.parallel.layout import ParameterLayout

HIDDEN, HEAD = 6, 2


def decoder_layouts_of(tp_size: int, tp_rank: int) -> list[ParameterLayout]:
    """A norm and a fused projection of 8 query and 2 KV heads."""
    place = Place(tp_size, tp_rank)
    qkv = (
        cuts.query_heads("q_proj.weight", (8 * HEAD, HIDDEN), 8, place),
        cuts.kv_heads("k_proj.weight", (2 * HEAD, HIDDEN), 2, place),
        cuts.kv_heads("v_proj.weight", (2 * HEAD, HIDDEN), 2, place),
    )
    norm = cuts.replicated("model.norm.weight", (HIDDEN,), place)
    return [ParameterLayout("norm", (norm,), token_wise=True), ParameterLayout("qkv", qkv)]
