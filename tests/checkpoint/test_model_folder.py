from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hf_case import (
    FAMILIES,
    OLDER_ROPE,
    all_tensors,
    as_bin,
    assert_same,
    edit_json,
    hf_folder,
    rewrite,
    through_kitae,
)

from kitae.backend.group import Group
from kitae.checkpoint.live import LiveSource
from kitae.checkpoint.model_folder import load_decoder, open_model
from kitae.checkpoint.pipe import Selection
from kitae.checkpoint.resume import Checkpoint, open_checkpoint
from kitae.checkpoint.store import CheckpointStore
from kitae.errors import WeightsError
from kitae.parallel.region import region_of
from kitae.stages.training import load_checkpoint

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_round_trip_is_bit_equal(tmp_path: Path, family: str, tied: bool) -> None:
    """T01, T07, T11: every tensor and every key of config.json survives, sharded in and sharded out."""
    folder = hf_folder(tmp_path / "in", family, tie_word_embeddings=tied, max_shard_size="20KB")
    result = through_kitae(folder, tmp_path / "out", max_shard_bytes=15_000)
    assert len(list(result.glob("*.safetensors"))) > 2
    assert_same(all_tensors(result), all_tensors(folder))
    assert (HEAD in all_tensors(result)) is not tied
    before, after = (json.loads((one / "config.json").read_text()) for one in (folder, result))
    assert after == {**(OLDER_ROPE if family == "llama3" else {}), **before}


@pytest.mark.parametrize("shards", [1, 3])
def test_round_trip_from_bin(tmp_path: Path, shards: int) -> None:
    """T03: which file a tensor lies in, and in what order, makes no difference."""
    folder = hf_folder(tmp_path / "in")
    expected = all_tensors(folder)
    result = through_kitae(as_bin(folder, shards=shards), tmp_path / "out")
    assert_same(all_tensors(result), expected)


def test_no_part_is_taken_for_another(tmp_path: Path) -> None:
    """T09, T10: each tensor filled with its own constant, norms, gate and up among them."""
    folder = hf_folder(tmp_path / "in")
    constants = {name: torch.full_like(t, i) for i, (name, t) in enumerate(all_tensors(folder).items())}
    rewrite(folder, constants)
    decoder = load_decoder(folder)
    own = dict(decoder.named_parameters())
    layer = "model.layers.1"
    for mine, theirs in (
        ("layers.1.attention_norm.weight", f"{layer}.input_layernorm.weight"),
        ("layers.1.mlp_norm.weight", f"{layer}.post_attention_layernorm.weight"),
        ("norm.weight", "model.norm.weight"),
    ):
        assert torch.equal(own[mine], constants[theirs])
    gate_up = [constants[f"{layer}.mlp.{part}_proj.weight"] for part in ("gate", "up")]
    assert torch.equal(own["layers.1.mlp.gate_up.weight"], torch.cat(gate_up))
    assert_same(all_tensors(through_kitae(folder, tmp_path / "out")), constants)


def test_head_dim_of_its_own(tmp_path: Path) -> None:
    """T11: hidden 64, 4 heads of 24."""
    folder = hf_folder(tmp_path / "in", hidden_size=64, head_dim=24)
    result = through_kitae(folder, tmp_path / "out")
    assert all_tensors(result)["model.layers.0.self_attn.q_proj.weight"].shape == (96, 64)
    assert json.loads((result / "config.json").read_text())["head_dim"] == 24


@pytest.mark.parametrize("flag", [True, False])
def test_head_that_equals_the_embedding_is_tied(tmp_path: Path, flag: bool) -> None:
    """T02: whatever the flag says; no second copy is exported, and the export's flag is true."""
    folder = hf_folder(tmp_path / "in", tie_word_embeddings=True)
    tensors = all_tensors(folder)
    rewrite(folder, {**tensors, HEAD: tensors[EMBEDDING].clone()})
    edit_json(folder / "config.json", tie_word_embeddings=flag)
    model = open_model(folder)
    assert model.tied
    assert HEAD not in model.names
    assert len(model.notes) == (0 if flag else 1)
    result = through_kitae(folder, tmp_path / "out")
    assert HEAD not in all_tensors(result)
    assert json.loads((result / "config.json").read_text())["tie_word_embeddings"] is True


def test_head_that_differs_in_one_bit_is_untied(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "in", tie_word_embeddings=True)
    tensors = all_tensors(folder)
    head = tensors[EMBEDDING].clone()
    head[-1, -1] += 2e-7
    rewrite(folder, {**tensors, HEAD: head})
    model = open_model(folder)
    assert not model.tied
    assert model.notes == ("lm_head.weight differs from the embedding: untied, against config.json",)
    result = through_kitae(folder, tmp_path / "out")
    assert torch.equal(all_tensors(result)[HEAD], head)
    assert json.loads((result / "config.json").read_text())["tie_word_embeddings"] is False


def test_missing_head_is_tied_and_said(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "in", tie_word_embeddings=True)
    edit_json(folder / "config.json", tie_word_embeddings=False)
    model = open_model(folder)
    assert model.tied
    assert "the head is the embedding" in model.notes[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtype_is_cast_on_the_way(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = hf_folder(tmp_path / "in")
    decoder = load_decoder(folder, dtype)
    assert {p.dtype for p in decoder.parameters()} == {dtype}
    assert torch.equal(decoder.head_weight, all_tensors(folder)[HEAD].to(dtype))
    assert open_model(folder).dtype == torch.float32


def test_unsupported_rope_stops_before_anything_is_written(tmp_path: Path) -> None:
    """T08."""
    folder = hf_folder(tmp_path / "in")
    scaling = {"rope_type": "longrope", "long_factor": [1.0] * 4, "short_factor": [1.0] * 4}
    edit_json(folder / "config.json", rope_parameters=None, rope_scaling=scaling)
    with pytest.raises(WeightsError, match="longrope"):
        through_kitae(folder, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_missing_tensors_are_counted_and_named(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "in")
    tensors = {name: t for name, t in all_tensors(folder).items() if ".layers.1." not in name}
    rewrite(folder, tensors)
    with pytest.raises(
        WeightsError, match=r"9 of 21 tensors are missing: model.layers.1.input_layernorm.* and 4 more"
    ):
        open_model(folder)


def test_wrong_shape_names_both(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "in")
    edit_json(folder / "config.json", vocab_size=100)
    message = r"embed_tokens.weight is \(99, 32\), config.json needs \(100, 32\), lm_head"
    with pytest.raises(WeightsError, match=message):
        open_model(folder)


def test_unknown_tensors_are_named(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "in")
    rewrite(folder, {**all_tensors(folder), "model.layers.0.self_attn.sinks": torch.zeros(4)})
    with pytest.raises(WeightsError, match=r"1 tensors are not part of the model .*self_attn.sinks"):
        open_model(folder)


def test_quantised_tensors_are_refused(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "in")
    name = "model.layers.0.mlp.up_proj.weight"
    rewrite(folder, {**all_tensors(folder), name: torch.zeros(48, 32, dtype=torch.int8)})
    with pytest.raises(WeightsError, match=rf"quantised .*{name} \(torch.int8\)"):
        open_model(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "config.json is missing"), ("{", "cannot be read as JSON"), ("[]", "must hold a JSON object")],
)
def test_broken_config(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(WeightsError, match=message):
        open_model(tmp_path)


@pytest.mark.parametrize("saved", [False, True], ids=["folder", "checkpoint"])
def test_a_tensor_parallel_rank_loads_its_part(tmp_path: Path, saved: bool) -> None:
    """From a folder and from a checkpoint; the vocabulary of 99 is padded on the last rank."""
    folder = hf_folder(tmp_path / "in")
    full, held = all_tensors(folder), []
    for rank in range(4):
        region = region_of(Group((0, 1, 2, 3), rank), sequence_parallel=False)
        if saved:
            decoder = load_checkpoint(saved_from(folder, tmp_path / "store"), torch.device("cpu"), region)
        else:
            decoder = load_decoder(folder, region=region)
        source = LiveSource(dict(decoder.named_parameters()), decoder.layouts)
        for name in source.tensors():
            for box in source.boxes(name):
                assert torch.equal(source.read(name, box), full[name][box.slices()]), name
                held.append((name, box))
        assert decoder.embed.weight.shape == (25, 32)
    assert {name for name, _ in held} == set(full)
    assert torch.equal(decoder.embed.weight[24], torch.zeros(32))


def saved_from(folder: Path, store: Path) -> Checkpoint:
    model = open_model(folder)
    source = Selection(model.source, model.names)
    path = CheckpointStore(store, keep=1).save(
        0, {"weights": source}, state={}, config=model.config, recipe_hash=""
    )
    return open_checkpoint(path)
