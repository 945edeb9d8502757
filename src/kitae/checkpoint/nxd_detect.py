"""What the files of a neuronx-distributed (NxD) checkpoint tell of its format, and what tells it.

Names of files tell tp and pp, keys the kind of QKV, shapes together with the configuration's heads the KV
multiplier, and the ranks whose KV heads are equal tell the order of heads. One thing no value tells: tiled
copies are those of order trn1, or of NxD's converter when it was told trn2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kitae.checkpoint.coverage import listed
from kitae.checkpoint.gathered import GatheredSource, Holding
from kitae.checkpoint.nxd_file import State
from kitae.checkpoint.nxd_folder import NxdFolder, Rank
from kitae.checkpoint.nxd_format import NxdFormat, Order, QkvKind
from kitae.checkpoint.nxd_layout import EMBEDDING, nxd_layouts
from kitae.errors import WeightsError
from kitae.model.config import DecoderConfig
from kitae.parallel.layout import ParameterLayout

QKV_KEYS: dict[str, QkvKind] = {
    "self_attn.qkv_proj.weight_q": "linear",
    "self_attn.qkv_proj.weight_qkv": "fused",
    "self_attn.qkv_proj.weight": "coalesced",
    "self_attn.q_proj.weight": "separate",
}
"""The key of a layer that tells how query, key and value are stored."""
_WAYS: tuple[Order, ...] = ("trn1", "trn2")
"""Orders that stand for the ways in which copies of KV heads lie: all of them tiled, or each by itself."""
FIRST = Rank(0, 0)
_LAYER = re.compile(r"model\.layers\.\d+\.")
States = Mapping[Rank, State]


def all_stages(states: States, tp: int) -> State:
    """What a tensor-parallel rank holds in all pipeline stages."""
    ranks = sorted(rank for rank in states if rank.tp == tp)
    return {key: tensor for rank in ranks for key, tensor in states[rank].items()}


def detect_format(found: NxdFolder, first: State, config: DecoderConfig) -> tuple[NxdFormat, str]:
    """The format but for the order of heads, from what the first rank holds, and what told it.

    WeightsError when the files contradict the configuration or are of another architecture.
    """
    prefix, qkv, key = qkv_kind(found, first)
    _check_tp_size(found, first, config)
    multiplier, told = _kv_multiplier(found, first, prefix, qkv, config)
    format = NxdFormat(
        tp_size=found.tp_size,
        pp_size=found.pp_size,
        kv_multiplier=multiplier,
        qkv=qkv,
        fused_gate_up=f"{prefix}mlp.gate_up_proj.weight" in first,
    )
    return format, (
        f"tp {format.tp_size} and pp {format.pp_size} (names of files), qkv {qkv} (key {key}), gate and up "
        f"{'in one' if format.fused_gate_up else 'apart'}, KV multiplier {multiplier} ({told})"
    )


def qkv_kind(found: NxdFolder, first: State) -> tuple[str, QkvKind, str]:
    """The first layer's prefix, the kind of QKV, and the key that told it."""
    layer = next((match[0] for key in first if (match := _LAYER.match(key))), "")
    for key, kind in QKV_KEYS.items():
        if layer and layer + key in first:
            return layer, kind, key
    raise WeightsError(
        f"{found.model[FIRST]} is not of a Llama as NxD saves it: there is no layer with one of "
        f"{', '.join(QKV_KEYS)}; its keys are {listed(list(first))}"
    )


def with_order(
    found: NxdFolder, states: States, config: DecoderConfig, format: NxdFormat, given: Order | None
) -> tuple[NxdFormat, str]:
    """The format with the order of heads, and what told it; WeightsError when the `given` one cannot be."""
    if format.kv_multiplier in (1, format.tp_size):
        return replace(format, order=given or "trn1"), "either order of heads, which are the same here"
    prefix, _, _ = qkv_kind(found, all_stages(states, 0))
    ways = [way for way in _WAYS if _equal_copies(states, config, replace(format, order=way), prefix)]
    if ways == ["trn2"] and given not in (None, "trn2"):
        raise WeightsError(
            f"{found.folder}: the order {given} was given, but the copies of KV heads in {prefix}self_attn "
            "lie as in trn2; leave the order out, or look whether these are the files that you mean"
        )
    order, why = _order(ways, given)
    return replace(format, order=order), f"order {order} ({why})"


def _order(ways: Sequence[Order], given: Order | None) -> tuple[Order, str]:
    """The order, and why, from the ways in which copies may lie and what was given."""
    if ways == ["trn2"]:
        return "trn2", "told from equal copies of KV heads, on neighbouring ranks"
    if ways != ["trn1"]:
        said = "as given" if given else "by default: give the order where it is trn2"
        seen = "all KV heads are equal" if ways else "copies of a KV head differ, however they lie"
        return given or "trn1", f"{said}; {seen}, which does not tell it"
    if given in (None, "trn1"):
        said = "; NxD's converter tiles them for trn2 as well: give the order where it was told so"
        return "trn1", f"told from equal copies of KV heads, which are tiled{said * (given is None)}"
    return "trn2-tiled", (
        "as given, with tiled copies: so NxD's converter writes for trn2. Read as what it was made from; on "
        "NxD's ranks queries meet the wrong KV heads, so what these compute is no part of the proof"
    )


def _check_tp_size(found: NxdFolder, first: State, config: DecoderConfig) -> None:
    if EMBEDDING not in first:
        raise WeightsError(f"{found.model[FIRST]} lacks {EMBEDDING}; it is no Llama's")
    rows, tp_size = first[EMBEDDING].shape[0], found.tp_size
    if rows * tp_size == config.vocab_size:
        return
    seen = (
        f"{found.folder}: {EMBEDDING} has {rows} rows on each of {tp_size} tensor-parallel ranks, and "
        f"vocab_size of the configuration is {config.vocab_size}"
    )
    whole, left = divmod(config.vocab_size, max(1, rows))
    if not left and whole > tp_size:
        raise WeightsError(
            f"{seen}: that is tp {whole}, so the files of tp {tp_size} to {whole - 1} are missing, or the "
            "configuration is of another model"
        )
    raise WeightsError(f"{seen}; name the model's own with --config FILE")


def _kv_multiplier(
    found: NxdFolder, first: State, prefix: str, qkv: QkvKind, config: DecoderConfig
) -> tuple[int, str]:
    """How many ranks hold each KV head, and what told it."""
    query_rows, key_rows = (heads * config.head_dim for heads in (config.num_heads, config.num_kv_heads))
    # Rows of all ranks together: those of the query, and those that are there `multiplier` times.
    stored: dict[QkvKind, tuple[str, int, int]] = {
        "linear": ("weight_k", 0, key_rows),
        "fused": ("weight_qkv", query_rows, 2 * key_rows),
    }
    if qkv not in stored:
        return 1, f"qkv {qkv} has no copies"
    name, once, copied = stored[qkv]
    key = f"{prefix}self_attn.qkv_proj.{name}"
    if key not in first:
        raise WeightsError(f"{found.model[FIRST]} lacks {key}")
    rows = first[key].shape[0]
    told = (
        f"{name} has {rows} rows on each of {found.tp_size} ranks, the configuration has {config.num_heads} "
        f"query and {config.num_kv_heads} KV heads of {config.head_dim}"
    )
    multiplier, left = divmod(rows * found.tp_size - once, copied)
    if left or multiplier < 1:
        raise WeightsError(
            f"{found.folder}: {told}: this fits no KV multiplier; is it the model's config.json?"
        )
    return multiplier, told


def _equal_copies(states: States, config: DecoderConfig, format: NxdFormat, prefix: str) -> bool:
    """Whether all copies of KV heads in the first layer are equal when this is the format."""
    kv = tuple(f"{prefix}self_attn.{kind}_proj." for kind in "kv")

    def holds_kv(layout: ParameterLayout) -> bool:
        return any(piece.tensor.startswith(kv) for piece in layout.pieces)

    # The first layer is in the first of equal stages, wherever the files have it.
    table = nxd_layouts(config, False, format)
    holdings = [
        Holding(f"tp {tp}", all_stages(states, tp), [layout for layout in table(tp, 0) if holds_kv(layout)])
        for tp in range(format.tp_size)
    ]
    names = {piece.tensor: None for one in holdings for layout in one.layouts for piece in layout.pieces}
    try:
        GatheredSource(holdings, names).check_replicas()
    except WeightsError:
        return False
    return True
