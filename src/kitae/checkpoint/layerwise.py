"""Logits of a model that need not fit into memory: embedding, layer after layer, head in runs of rows.

B prompts, S positions, H hidden, V vocabulary. The same is done by kitae's layers and by transformers' own
forward pass, whose matrices have no memory but while they are multiplied with.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from kitae.checkpoint.coverage import listed
from kitae.checkpoint.hf_sink import HEAD
from kitae.checkpoint.live import LiveSink
from kitae.checkpoint.model_folder import EMBEDDING
from kitae.checkpoint.pipe import TensorSource, blocks
from kitae.checkpoint.stock import stock_errors
from kitae.checkpoint.stream import fill
from kitae.errors import ProofError
from kitae.model.attention import attention_mask
from kitae.model.blocks import Attention, Context, GatedMLP, Parameters, RMSNorm
from kitae.model.config import DecoderConfig
from kitae.model.decoder import decoder_layouts
from kitae.model.rotary import inverse_frequencies, rotary_tables
from kitae.parallel.cuts import Place
from kitae.parallel.region import UNCUT

NORM = "model.norm.weight"
MULTIPLIED_BYTES = 4 << 20
"""How much of a matrix is multiplied with at once, in its own dtype, where a part of it will do."""
_PART_BYTES = 200_000_000
"""How much of half a layer has memory at once, in fp32: all of it in models of up to about 1B."""
_FIRST = "model.layers.0."


def kitae_logits(
    config: DecoderConfig, source: TensorSource, tied: bool, ids: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """fp32 logits [B, S, V] of kitae's layers for ids and positions [B, S]."""
    cosine, sine = rotary_tables(inverse_frequencies(config.rope, config.head_dim), positions)
    masks = {
        one: attention_mask(None, ids.shape[1], one, torch.float32, ids.device) for one in set(config.windows)
    }
    context = Context(cosine, sine, masks, UNCUT)
    with torch.inference_mode():
        hidden = embed(source, ids, torch.float32).flatten(0, 1)
        for index in range(config.num_layers):
            hidden = _through_layer(config, source, index, hidden, context)
        weight = nn.Parameter(source.read(NORM).float())
        hidden = RMSNorm(Parameters({"weight": weight}, {}), config.rms_norm_eps)(hidden)
        return head(source, tied, hidden.view(*ids.shape, -1))


def stock_logits(
    config: Mapping[str, Any],
    source: TensorSource,
    tied: bool,
    ids: torch.Tensor,
    positions: torch.Tensor,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Logits [B, S, V] of transformers' layers, computed in `dtype`; ProofError when names do not fit."""
    model = _empty_stock_model(config, dtype)
    decoder = model.model
    _require_names(model, source, tied)
    for name, module in model.named_modules():
        if name.startswith(("model.layers.", "model.norm")) and list(module.parameters(recurse=False)):
            prefix = f"{name}."
            module.register_forward_pre_hook(lambda one, _, p=prefix: _give(one, source, p, dtype))
            module.register_forward_hook(_take)
    with torch.inference_mode():
        hidden = decoder(
            inputs_embeds=embed(source, ids, dtype),
            position_ids=positions,
            # Given, so that positions with gaps are not taken for several documents.
            attention_mask=torch.ones_like(ids),
            use_cache=False,
            return_dict=True,
        ).last_hidden_state
        return head(source, tied, hidden)


def embed(source: TensorSource, ids: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rows of the embedding [B, S, H]."""
    info = source.tensors()[EMBEDDING]
    result = torch.zeros(*ids.shape, info.shape[1], dtype=dtype)
    for box in blocks(info):
        here = (ids >= box.start[0]) & (ids < box.start[0] + box.shape[0])
        if here.any():
            result[here] = source.read(EMBEDDING, box)[ids[here] - box.start[0]].to(dtype)
    return result


def head(source: TensorSource, tied: bool, hidden: torch.Tensor) -> torch.Tensor:
    """[B, S, H] to [B, S, V], in the dtype of the hidden states."""
    name = EMBEDDING if tied else HEAD
    info = source.tensors()[name]
    # Parts that are kept until the end would lie between the blocks, whose memory could not be used again.
    result = hidden.new_empty(*hidden.shape[:-1], info.shape[0])
    for box in blocks(info, MULTIPLIED_BYTES):
        rows = source.read(name, box).to(hidden.dtype)
        result[..., box.start[0] : box.start[0] + len(rows)] = F.linear(hidden, rows)
    return result


class _Renamed:
    """Layer `index` of a source as that of a model which has only this one."""

    def __init__(self, source: TensorSource, index: int) -> None:
        self._source, self._prefix = source, f"model.layers.{index}."
        names = [name for name in source.tensors() if name.startswith(self._prefix)]
        self._infos = {_FIRST + name.removeprefix(self._prefix): source.tensors()[name] for name in names}

    def tensors(self) -> Any:
        return self._infos

    def read(self, name: str, box: Any = None) -> torch.Tensor:
        return self._source.read(self._prefix + name.removeprefix(_FIRST), box)


def _through_layer(
    config: DecoderConfig, source: TensorSource, index: int, x: torch.Tensor, context: Context
) -> torch.Tensor:
    """A layer as `kitae.model.blocks.Layer` computes it, its two halves in memory one after the other.

    A half that is large goes in parts as tensor-parallel ranks have them, whose results are summed.
    """
    one = replace(config, num_layers=1, windows=(config.windows[index],))
    for name, make in _HALVES.items():
        parts = _parts(one, name)
        result = x
        for part in range(parts):
            own = _filled(one, _Renamed(source, index), name, Place(parts, part))
            norm = RMSNorm(own.below(f"{name}_norm"), config.rms_norm_eps)
            result = result + make(one, own.below(name))(x, norm, context)
        x = result
    return x


_HALVES: Mapping[str, Callable[[DecoderConfig, Parameters], nn.Module]] = {
    "attention": lambda config, own: Attention(config, own, 0),
    "mlp": lambda config, own: GatedMLP(own),
}


def _parts(config: DecoderConfig, half: str) -> int:
    """In how many parts half a layer goes: the fewest that are small, as far as KV heads divide."""
    rows = {
        "attention": 2 * (config.num_heads + config.num_kv_heads) * config.head_dim,
        "mlp": 3 * config.intermediate_size,
    }[half]
    if config.out_bias or config.mlp_bias:
        # Each part would add them.
        return 1
    common = math.gcd(config.num_kv_heads, config.intermediate_size)
    least = rows * config.hidden_size * torch.float32.itemsize / _PART_BYTES
    return next((count for count in range(1, common) if common % count == 0 and count >= least), common)


def _filled(config: DecoderConfig, source: _Renamed, half: str, place: Place) -> Parameters:
    """Parameters of half a layer, or of a part of it, in fp32."""
    table = decoder_layouts(config, True)(place.tp_size, place.tp_rank)
    layouts = {one.name: one for one in table if one.name.startswith(f"layers.0.{half}")}
    tensors = {name: nn.Parameter(torch.empty(layout.shape)) for name, layout in layouts.items()}
    with LiveSink(tensors, list(layouts.values())) as sink:
        fill(source, sink)
    return Parameters(tensors, layouts).below("layers.0")


def _empty_stock_model(config: Mapping[str, Any], dtype: torch.dtype) -> Any:
    """A model of transformers without memory, but for its rotary frequencies."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with tempfile.TemporaryDirectory(prefix="kitae-proof-") as folder:
        Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
        with stock_errors("build the model of config.json"):
            stock: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
            make: Any = AutoModelForCausalLM.from_config
            with torch.device("meta"):
                model = make(stock, dtype=dtype).eval()
            model.model.rotary_emb = type(model.model.rotary_emb)(stock)
    return model


def _give(module: nn.Module, source: TensorSource, prefix: str, dtype: torch.dtype) -> None:
    """Fill a module, key for key."""
    names = [name for name in source.tensors() if name.startswith(prefix)]
    state = {name.removeprefix(prefix): _read(source, name, dtype) for name in names}
    try:
        module.load_state_dict(state, strict=True, assign=True)
    except RuntimeError as error:
        raise ProofError(
            f"transformers' {type(module).__name__} does not take the tensors: {error}"
        ) from error


def _read(source: TensorSource, name: str, dtype: torch.dtype) -> torch.Tensor:
    """A whole tensor, of whose own dtype there is only a part in memory at a time."""
    info = source.tensors()[name]
    result = torch.empty(info.shape, dtype=dtype)
    for box in blocks(info):
        result[box.slices()] = source.read(name, box)
    return result


def _take(module: nn.Module, given: object, result: object) -> None:
    """Give back the memory of a module that has done its work."""
    module.to_empty(device="meta")


def require_stock_names(config: Mapping[str, Any], source: TensorSource, tied: bool) -> None:
    """Raise ProofError unless transformers' model has these tensors, name for name and shape for shape."""
    _require_names(_empty_stock_model(config, torch.float32), source, tied)


def _require_names(model: Any, source: TensorSource, tied: bool) -> None:
    due = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if tied:
        due.pop(HEAD, None)
    found = {name: info.shape for name, info in source.tensors().items() if not (tied and name == HEAD)}
    wrong = [name for name in {**due, **found} if due.get(name) != found.get(name)]
    if wrong:
        raise ProofError(f"transformers' model has other tensors: {listed(wrong)}; please report it")
