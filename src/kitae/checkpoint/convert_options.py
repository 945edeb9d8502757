"""What a person asks of a conversion, and what follows from that and from the files, with the reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from kitae.checkpoint.convert_targets import Conversion, Target
from kitae.checkpoint.detect import TITLES, Kind, detect
from kitae.checkpoint.model_folder import ModelFolder
from kitae.checkpoint.nxd_format import (
    NxdFormat,
    QkvKind,
    check_allowed,
    needed_kv_multiplier,
)
from kitae.checkpoint.opened import Opened, open_weights
from kitae.errors import RecipeError, WeightsError
from kitae.model.config import DecoderConfig

Proof = Literal["values", "logits", "none"]
Chip = Literal["trn1", "trn2"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_TARGETS: tuple[Target, ...] = ("hf", "kitae", "nxd")
_ORDERS: dict[Chip | None, str] = {
    None: "order trn1: the one of NxD's converter and of Trn1; --order trn2 for copies on neighbours",
    "trn1": "order trn1: copies of all KV heads tiled, as NxD loads them on Trn1",
    "trn2": "order trn2: copies of a KV head on neighbours, as NxD loads it on Trn2 (its converter tiles)",
}
"""What is said of the order that is written."""


@dataclass(frozen=True)
class Options:
    """The flags of `kitae convert`; None is one that was not given."""

    to: Target | None = None
    tp: int | None = None
    pp: int | None = None
    kv_multiplier: int | None = None
    order: Chip | None = None
    fused_qkv: bool | None = None
    xser: bool | None = None
    dtype: str | None = None
    config: Path | None = None
    tokenizer: Path | None = None
    dry_run: bool = False
    proof: Proof = "logits"

    def cutting(self) -> dict[str, Any]:
        """The flags about NxD files that were given, by their names on the command line."""
        named = {
            "--tp": self.tp,
            "--pp": self.pp,
            "--kv-multiplier": self.kv_multiplier,
            "--order": self.order,
            "--fused-qkv": self.fused_qkv,
            "--xser": self.xser,
        }
        return {name: value for name, value in named.items() if value is not None}


def decide(source: Path, options: Options) -> tuple[Conversion, list[str]]:
    """Open the source and settle everything; what was derived is said with its reason.

    RecipeError for flags that mean nothing here or contradict the files, which it names too.
    """
    kind = detect(source).kind
    target, reasons = _target(source, kind, options)
    of_source = kind == "nxd" and target != "nxd"
    if options.cutting() and not of_source and target != "nxd":
        given = " and ".join(options.cutting())
        raise RecipeError(
            f"{given}: says how NxD files are cut, but neither {source} ({TITLES[kind]}) nor the result "
            f"(--to {target}) are such; leave it out, or give --to nxd"
        )
    opened = open_weights(source, options.config, order=options.order if of_source else None)
    if of_source:
        _require_agreement(opened, options)
    model = opened.model()
    form = None
    if target == "nxd":
        form, derived = _format(model.decoder_config, options)
        check_allowed(model.decoder_config, form)
        reasons += derived
    dtype, said = _dtype(model, options)
    optimizer = opened.optimizer() if opened.optimizer is not None and target == "kitae" else None
    conversion = Conversion(opened, model, target, dtype, form, bool(options.xser), optimizer)
    words = [*_optimizer_words(opened, conversion), *_tokenizer_words(opened, options)]
    return conversion, [*reasons, said, *words]


def _target(source: Path, kind: Kind, options: Options) -> tuple[Target, list[str]]:
    if options.to is not None:
        if options.to not in _TARGETS:
            raise RecipeError(f"--to {options.to}: kitae writes {', '.join(_TARGETS)}")
        return options.to, []
    if kind != "nxd" and options.cutting():
        return "nxd", ["to nxd: because of " + " and ".join(options.cutting())]
    if kind == "hf":
        raise RecipeError(
            f"{source} is a folder of Hugging Face safetensors already: say what it is to become, "
            "--to nxd --tp N or --to kitae (or --to hf, to write it anew, such as with another --dtype)"
        )
    return "hf", [f"to hf: what all tools read, and {source} is not yet"]


def _require_agreement(opened: Opened, options: Options) -> None:
    """Raise RecipeError naming both when a flag says other than the files."""
    found = opened.topology
    assert found is not None
    held = {
        "--tp": found.tp_size,
        "--pp": found.pp_size,
        "--kv-multiplier": found.kv_multiplier,
        "--order": "trn1" if found.order == "trn1" else "trn2",
        "--fused-qkv": found.qkv == "fused",
        "--xser": opened.xser,
    }
    for flag, value in options.cutting().items():
        if held[flag] != value:
            shown = flag if value is True else f"{flag} {value}"
            files = (
                f"have {'no ' if not held[flag] else ''}{flag[2:]}" if value is True else f"say {held[flag]}"
            )
            raise RecipeError(f"{shown}, but the files in {opened.path} {files}; leave the flag out")


def _format(config: DecoderConfig, options: Options) -> tuple[NxdFormat, list[str]]:
    if options.tp is None:
        raise RecipeError(
            f"--to nxd needs --tp, on how many ranks each layer is spread; {config.num_heads} query heads "
            f"allow {_listed(_divisors(config))}"
        )
    due = needed_kv_multiplier(config.num_kv_heads, options.tp)
    reasons = list(_format_reasons(config, options, due))
    form = NxdFormat(
        tp_size=options.tp,
        pp_size=options.pp or 1,
        kv_multiplier=due if options.kv_multiplier is None else options.kv_multiplier,
        order=options.order or "trn1",
        qkv=_qkv(options, due),
    )
    return form, reasons


def _qkv(options: Options, due: int) -> QkvKind:
    if options.fused_qkv:
        return "fused"
    return "linear" if due > 1 or options.kv_multiplier is not None else "separate"


def _format_reasons(config: DecoderConfig, options: Options, due: int) -> Iterator[str]:
    heads = f"{config.num_kv_heads} KV heads on {options.tp} rank{'s' * (options.tp != 1)}"
    if options.kv_multiplier is None:
        yield f"kv-multiplier {due}: {heads}"
    if due > 1:
        yield _ORDERS[options.order]
    kind = _qkv(options, due)
    why = {
        "fused": "as --fused-qkv says",
        "linear": f"{heads} need copies",
        "separate": f"{heads} need no copies; --fused-qkv, or --kv-multiplier 1 for qkv_linear",
    }
    if not options.fused_qkv:
        yield f"qkv {kind}: {why[kind] if due > 1 or kind == 'separate' else '--kv-multiplier was given'}"


def _divisors(config: DecoderConfig) -> list[int]:
    heads, kv_heads = config.num_heads, config.num_kv_heads
    sizes = [one for one in range(1, heads + 1) if heads % one == 0]
    return [one for one in sizes if kv_heads % one == 0 or one % kv_heads == 0]


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _dtype(model: ModelFolder, options: Options) -> tuple[torch.dtype | None, str]:
    if options.dtype is not None:
        if options.dtype not in DTYPES:
            raise RecipeError(f"--dtype {options.dtype}: kitae writes {', '.join(DTYPES)}")
        dtype = DTYPES[options.dtype]
        return dtype, f"dtype {options.dtype}: as --dtype says"
    held = {str(model.source.tensors()[name].dtype).removeprefix("torch.") for name in model.names}
    return None, f"dtype {' and '.join(sorted(held))}: as in the source; --dtype changes it"


def _optimizer_words(opened: Opened, conversion: Conversion) -> list[str]:
    optimizer = conversion.optimizer
    if optimizer is None:
        left = opened.optimizer is not None
        return ["the optimizer's state is left behind: only --to kitae takes it along"] if left else []
    said = [
        *optimizer.notes,
        f"with the optimizer's {' and '.join(optimizer.moments)} after {optimizer.step} updates",
    ]
    masters = "weights: the optimizer's fp32 masters, which the model's own are rounded from"
    return said + ([masters] if optimizer.masters is not None else [])


def _tokenizer_words(opened: Opened, options: Options) -> list[str]:
    if options.tokenizer is not None:
        from kitae.checkpoint.convert_targets import tokenizer_files

        if not tokenizer_files(options.tokenizer):
            raise WeightsError(
                f"--tokenizer: {options.tokenizer} holds no file of a tokenizer (tokenizer.json and others)"
            )
        return [f"tokenizer: from {options.tokenizer}"]
    if opened.tokenizer is None:
        return [
            "tokenizer: there is none beside the source, so the result has none; --tokenizer FOLDER adds it"
        ]
    return []
