"""The parameter table of an encoder: local names, the Hugging Face tensors behind them, and their cuts.

Query, key and value are one local parameter: one matrix product. A BertModel's tensors have no prefix; in a
model with a head those of the encoder begin with `bert.`.
"""

from __future__ import annotations

from dataclasses import replace

from kitae.model.encoder_config import EncoderConfig
from kitae.parallel import cuts
from kitae.parallel.cuts import Place
from kitae.parallel.layout import LayoutTable, ParameterLayout, Piece, Shape

PREFIX = "bert."
WORDS = "embeddings.word_embeddings.weight"
POOLER = "pooler.dense.weight"
DECODER = "cls.predictions.decoder.weight"
DECODER_BIAS = "cls.predictions.bias"


def encoder_prefix(config: EncoderConfig) -> str:
    """What the names of the encoder's own full tensors begin with."""
    return "" if config.head == "none" else PREFIX


def encoder_layouts(config: EncoderConfig) -> LayoutTable:
    """The table of an encoder: call it with (tp_size, tp_rank) for one rank's parameters, in forward order.

    `embed.words.weight` is also the head over the vocabulary, where there is one.
    """
    prefix = encoder_prefix(config)

    def table(tp_size: int, tp_rank: int) -> list[ParameterLayout]:
        place = Place(tp_size, tp_rank)
        layouts = _embeddings(config, f"{prefix}embeddings", place)
        for index in range(config.num_layers):
            layouts += _layer(config, f"layers.{index}", f"{prefix}encoder.layer.{index}", place)
        return [*layouts, *_heads(config, prefix, place)]

    return table


def _embeddings(config: EncoderConfig, full: str, place: Place) -> list[ParameterLayout]:
    hidden = config.hidden_size
    words = (config.vocab_size, hidden)
    return [
        ParameterLayout(
            "embed.words.weight", (cuts.vocabulary(f"{full}.word_embeddings.weight", words, place),)
        ),
        _added(
            "embed.positions.weight",
            f"{full}.position_embeddings.weight",
            (config.max_position_embeddings, hidden),
            place,
        ),
        _added(
            "embed.types.weight",
            f"{full}.token_type_embeddings.weight",
            (config.type_vocab_size, hidden),
            place,
        ),
        *_norm("embed.norm", f"{full}.LayerNorm", hidden, place),
    ]


def _layer(config: EncoderConfig, local: str, full: str, place: Place) -> list[ParameterLayout]:
    hidden, inner, heads = config.hidden_size, config.intermediate_size, config.num_heads
    out = cuts.head_columns(f"{full}.attention.output.dense.weight", (hidden, hidden), heads, place)
    up = f"{full}.intermediate.dense"
    return [
        _qkv(f"{local}.attention.qkv", f"{full}.attention.self", config, place),
        _qkv_bias(f"{local}.attention.qkv", f"{full}.attention.self", config, place),
        ParameterLayout(f"{local}.attention.out.weight", (out,)),
        _sum_bias(f"{local}.attention.out.bias", f"{full}.attention.output.dense.bias", hidden, place),
        *_norm(f"{local}.attention_norm", f"{full}.attention.output.LayerNorm", hidden, place),
        ParameterLayout(f"{local}.mlp.up.weight", (cuts.column(f"{up}.weight", (inner, hidden), place),)),
        _bias(f"{local}.mlp.up.bias", cuts.column(f"{up}.bias", (inner,), place)),
        ParameterLayout(
            f"{local}.mlp.down.weight", (cuts.row(f"{full}.output.dense.weight", (hidden, inner), place),)
        ),
        _sum_bias(f"{local}.mlp.down.bias", f"{full}.output.dense.bias", hidden, place),
        *_norm(f"{local}.mlp_norm", f"{full}.output.LayerNorm", hidden, place),
    ]


def _qkv(local: str, full: str, config: EncoderConfig, place: Place) -> ParameterLayout:
    shape = (config.hidden_size, config.hidden_size)
    names = (f"{full}.{kind}.weight" for kind in ("query", "key", "value"))
    return ParameterLayout(
        f"{local}.weight",
        tuple(cuts.query_heads(name, shape, config.num_heads, place) for name in names),
    )


def _qkv_bias(local: str, full: str, config: EncoderConfig, place: Place) -> ParameterLayout:
    names = (f"{full}.{kind}.bias" for kind in ("query", "key", "value"))
    shape = (config.hidden_size,)
    return _bias(f"{local}.bias", *(cuts.query_heads(name, shape, config.num_heads, place) for name in names))


def _heads(config: EncoderConfig, prefix: str, place: Place) -> list[ParameterLayout]:
    hidden = config.hidden_size
    layouts = _dense("pooler", f"{prefix}pooler.dense", (hidden, hidden), place) if config.pooler else []
    if config.predicts_tokens:
        full = "cls.predictions.transform"
        layouts += _dense("transform.dense", f"{full}.dense", (hidden, hidden), place)
        # Of hidden states that every rank has whole, with gradients in parts: not token-wise.
        layouts += [
            replace(one, token_wise=False)
            for one in _norm("transform.norm", f"{full}.LayerNorm", hidden, place)
        ]
        layouts.append(_bias("head.bias", cuts.vocabulary(DECODER_BIAS, (config.vocab_size,), place)))
    if config.head == "pretraining":
        layouts += _dense("pair", "cls.seq_relationship", (2, hidden), place)
    if config.head == "classification":
        layouts += _dense("classifier", "classifier", (config.num_labels, hidden), place)
    return layouts


def _dense(local: str, full: str, shape: Shape, place: Place) -> list[ParameterLayout]:
    """A small linear layer that every rank has whole."""
    return [
        ParameterLayout(f"{local}.weight", (cuts.replicated(f"{full}.weight", shape, place),)),
        _bias(f"{local}.bias", cuts.replicated(f"{full}.bias", shape[:1], place)),
    ]


def _added(local: str, full: str, shape: Shape, place: Place) -> ParameterLayout:
    """Rows that are added to hidden states."""
    return ParameterLayout(local, (cuts.replicated(full, shape, place),), token_wise=True)


def _norm(local: str, full: str, size: int, place: Place) -> list[ParameterLayout]:
    weight = ParameterLayout(
        f"{local}.weight",
        (cuts.replicated(f"{full}.weight", (size,), place),),
        initial="ones",
        decay=False,
        token_wise=True,
    )
    return [weight, _sum_bias(f"{local}.bias", f"{full}.bias", size, place)]


def _bias(local: str, *pieces: Piece) -> ParameterLayout:
    return ParameterLayout(local, pieces, initial="zeros", decay=False)


def _sum_bias(local: str, full: str, size: int, place: Place) -> ParameterLayout:
    """A bias of hidden states: added once."""
    return replace(_bias(local, cuts.replicated(full, (size,), place)), token_wise=True)
