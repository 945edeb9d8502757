"""The parameter table of a decoder: local names, the Hugging Face tensors behind them, and their cuts.

Query, key and value weights are one local parameter, and so are gate and up: one matrix product each.
"""

from __future__ import annotations

from dataclasses import replace

from kitae.model.config import DecoderConfig
from kitae.parallel import cuts
from kitae.parallel.cuts import Place
from kitae.parallel.layout import LayoutTable, ParameterLayout, Piece, Shape


def decoder_layouts(config: DecoderConfig, tied: bool) -> LayoutTable:
    """The table of a decoder: call it with (tp_size, tp_rank) for one rank's parameters, in forward order.

    With `tied`, `embed.weight` is also the head and there is no `head.weight`.
    """

    def table(tp_size: int, tp_rank: int) -> list[ParameterLayout]:
        place = Place(tp_size, tp_rank)
        embedding = (config.vocab_size, config.hidden_size)
        layouts = [
            ParameterLayout("embed.weight", (cuts.vocabulary("model.embed_tokens.weight", embedding, place),))
        ]
        for index in range(config.num_layers):
            layouts += _layer(config, index, place)
        layouts.append(_layer_norm("norm.weight", "model.norm.weight", config.hidden_size, place))
        if not tied:
            layouts.append(
                ParameterLayout("head.weight", (cuts.vocabulary("lm_head.weight", embedding, place),))
            )
        return layouts

    return table


def _layer(config: DecoderConfig, index: int, place: Place) -> list[ParameterLayout]:
    local, full = f"layers.{index}", f"model.layers.{index}"
    return [
        _layer_norm(
            f"{local}.attention_norm.weight", f"{full}.input_layernorm.weight", config.hidden_size, place
        ),
        *_attention(config, f"{local}.attention", f"{full}.self_attn", place),
        _layer_norm(
            f"{local}.mlp_norm.weight", f"{full}.post_attention_layernorm.weight", config.hidden_size, place
        ),
        *_mlp(config, f"{local}.mlp", f"{full}.mlp", place),
    ]


def _attention(config: DecoderConfig, local: str, full: str, place: Place) -> list[ParameterLayout]:
    width = config.num_heads * config.head_dim
    output = cuts.head_columns(f"{full}.o_proj.weight", (config.hidden_size, width), config.num_heads, place)
    layouts = [
        ParameterLayout(f"{local}.qkv.weight", _qkv(config, full, "weight", (config.hidden_size,), place))
    ]
    if config.qkv_bias:
        layouts.append(_bias(f"{local}.qkv.bias", *_qkv(config, full, "bias", (), place)))
    if config.qk_norm:
        layouts += [
            _head_norm(f"{local}.{kind}_norm.weight", f"{full}.{kind}_norm.weight", config.head_dim, place)
            for kind in ("q", "k")
        ]
    layouts.append(ParameterLayout(f"{local}.out.weight", (output,)))
    if config.out_bias:
        layouts.append(_sum_bias(f"{local}.out.bias", f"{full}.o_proj.bias", config.hidden_size, place))
    return layouts


def _qkv(config: DecoderConfig, full: str, kind: str, inputs: Shape, place: Place) -> tuple[Piece, ...]:
    """The three pieces of the fused projection: weights with `inputs` (hidden,), biases with ()."""
    query = (config.num_heads * config.head_dim, *inputs)
    key = (config.num_kv_heads * config.head_dim, *inputs)
    return (
        cuts.query_heads(f"{full}.q_proj.{kind}", query, config.num_heads, place),
        cuts.kv_heads(f"{full}.k_proj.{kind}", key, config.num_kv_heads, place),
        cuts.kv_heads(f"{full}.v_proj.{kind}", key, config.num_kv_heads, place),
    )


def _mlp(config: DecoderConfig, local: str, full: str, place: Place) -> list[ParameterLayout]:
    inner, hidden = config.intermediate_size, config.hidden_size
    names = ("gate_proj", "up_proj")
    gate_up = tuple(cuts.column(f"{full}.{name}.weight", (inner, hidden), place) for name in names)
    layouts = [ParameterLayout(f"{local}.gate_up.weight", gate_up)]
    if config.mlp_bias:
        biases = (cuts.column(f"{full}.{name}.bias", (inner,), place) for name in names)
        layouts.append(_bias(f"{local}.gate_up.bias", *biases))
    down = cuts.row(f"{full}.down_proj.weight", (hidden, inner), place)
    layouts.append(ParameterLayout(f"{local}.down.weight", (down,)))
    if config.mlp_bias:
        layouts.append(_sum_bias(f"{local}.down.bias", f"{full}.down_proj.bias", hidden, place))
    return layouts


def _layer_norm(name: str, tensor: str, size: int, place: Place) -> ParameterLayout:
    """A norm of hidden states."""
    return replace(_head_norm(name, tensor, size, place), token_wise=True)


def _head_norm(name: str, tensor: str, size: int, place: Place) -> ParameterLayout:
    """A norm of each of the heads that are here."""
    return ParameterLayout(name, (cuts.replicated(tensor, (size,), place),), initial="ones", decay=False)


def _bias(name: str, *pieces: Piece) -> ParameterLayout:
    return ParameterLayout(name, pieces, initial="zeros", decay=False)


def _sum_bias(name: str, tensor: str, size: int, place: Place) -> ParameterLayout:
    """A bias of hidden states: added to the ranks' sum."""
    return replace(_bias(name, cuts.replicated(tensor, (size,), place)), token_wise=True)
