"""What the supported model families differ in, as data: one entry a `model_type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kitae.errors import WeightsError

if TYPE_CHECKING:
    from kitae.model.config import DecoderConfig

Values = Mapping[str, Any]
LAYER_TYPES = ("full_attention", "sliding_attention")
COMMON: dict[str, Any] = {"rms_norm_eps": 1e-6, "initializer_range": 0.02, "tie_word_embeddings": False}


@dataclass(frozen=True)
class Family:
    """How one `model_type` is read and written; defaults are those of its transformers class."""

    architecture: str
    defaults: dict[str, Any]
    switches: Callable[[Values], dict[str, bool]]
    """Biases and query/key norms, from the configuration."""
    windows: Callable[[Values], tuple[int | None, ...]]
    written: Callable[[DecoderConfig], dict[str, Any]]
    """The fields that only this family has, for config.json."""


def _switches(qkv: bool, out: bool, mlp: bool, qk_norm: bool) -> dict[str, bool]:
    return {"qkv_bias": qkv, "out_bias": out, "mlp_bias": mlp, "qk_norm": qk_norm}


def _llama_switches(values: Values) -> dict[str, bool]:
    bias = bool(values.get("attention_bias"))
    return _switches(bias, bias, bool(values.get("mlp_bias")), False)


def _qwen3_switches(values: Values) -> dict[str, bool]:
    bias = bool(values.get("attention_bias"))
    return _switches(bias, bias, False, True)


def _no_windows(values: Values) -> tuple[int | None, ...]:
    return (None,) * int(values["num_hidden_layers"])


def _mistral_windows(values: Values) -> tuple[int | None, ...]:
    return (_window(values),) * int(values["num_hidden_layers"])


def _qwen_windows(values: Values) -> tuple[int | None, ...]:
    """`layer_types` decides when it is there; otherwise layers from `max_window_layers` on slide."""
    count = int(values["num_hidden_layers"])
    window = _window(values) if values.get("use_sliding_window") else None
    if window is None:
        return (None,) * count
    types = values.get("layer_types")
    if types is None:
        types = [LAYER_TYPES[index >= int(values["max_window_layers"])] for index in range(count)]
    if len(types) != count:
        raise WeightsError(f"config.json: layer_types: {len(types)} entries for num_hidden_layers {count}")
    for kind in types:
        if kind not in LAYER_TYPES:
            raise WeightsError(
                f"config.json: layer_types: {kind} is not supported; supported: {', '.join(LAYER_TYPES)}"
            )
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def _window(values: Values) -> int | None:
    window = values.get("sliding_window")
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise WeightsError(
            f"config.json: sliding_window: {window!r} where a whole number above 0 or null is needed"
        )
    return window


def _write_llama(config: DecoderConfig) -> dict[str, Any]:
    return {"attention_bias": config.qkv_bias, "mlp_bias": config.mlp_bias}


def _write_mistral(config: DecoderConfig) -> dict[str, Any]:
    return {"sliding_window": config.windows[0]}


def _write_qwen2(config: DecoderConfig) -> dict[str, Any]:
    window = next((window for window in config.windows if window is not None), None)
    return {
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "max_window_layers": sum(one is None for one in config.windows),
        "layer_types": [LAYER_TYPES[one is not None] for one in config.windows],
    }


def _write_qwen3(config: DecoderConfig) -> dict[str, Any]:
    return {"attention_bias": config.qkv_bias, **_write_qwen2(config)}


_QWEN: dict[str, Any] = {
    **COMMON,
    "max_position_embeddings": 32768,
    "num_key_value_heads": 32,
    "sliding_window": 4096,
    "max_window_layers": 28,
}

FAMILIES: dict[str, Family] = {
    "llama": Family(
        "LlamaForCausalLM",
        {**COMMON, "max_position_embeddings": 2048},
        _llama_switches,
        _no_windows,
        _write_llama,
    ),
    "mistral": Family(
        "MistralForCausalLM",
        {**COMMON, "max_position_embeddings": 131072, "num_key_value_heads": 8, "sliding_window": 4096},
        lambda values: _switches(False, False, False, False),
        _mistral_windows,
        _write_mistral,
    ),
    "qwen2": Family(
        "Qwen2ForCausalLM",
        _QWEN,
        lambda values: _switches(True, False, False, False),
        _qwen_windows,
        _write_qwen2,
    ),
    "qwen3": Family(
        "Qwen3ForCausalLM", {**_QWEN, "head_dim": 128}, _qwen3_switches, _qwen_windows, _write_qwen3
    ),
}
