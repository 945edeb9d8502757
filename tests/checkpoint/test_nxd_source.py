from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
import torch
from hf_case import assert_same
from nxd_case import (
    FIXTURE,
    Cut,
    change,
    cut_rank,
    everything,
    fixture_config,
    fixture_weights,
    rank_name,
    write,
)

from kitae.checkpoint.nxd import NxdSource
from kitae.checkpoint.nxd_file import open_model_file
from kitae.checkpoint.nxd_format import NxdFormat
from kitae.errors import WeightsError
from kitae.parallel.layout import Box

K = "self_attn.qkv_proj.weight_k"
FORMATS = {
    "qkv_kv2": NxdFormat(4, 1, 2, "trn1", "linear"),
    "qkv_kv2_xser": NxdFormat(4, 1, 2, "trn1", "linear"),
    "qkv_kv2_nxd_xser": NxdFormat(4, 1, 2, "trn1", "linear"),
    "noqkv_tp2": NxdFormat(2, 1, 1, "trn1", "separate"),
}
CUTS = [
    *(Cut(tp=1, multiplier=1, qkv=qkv) for qkv in ("linear", "fused", "separate")),
    *(Cut(tp=2, multiplier=1, qkv=qkv, pp=2) for qkv in ("linear", "fused")),
    *(Cut(multiplier=2, qkv=qkv, order=order) for qkv in ("linear", "fused") for order in ("trn1", "trn2")),
    *(Cut(tp=8, multiplier=4, qkv="fused", order=order, pp=2) for order in ("trn1", "trn2")),
]


@pytest.fixture
def tp4(tmp_path: Path) -> Path:
    return write(tmp_path / "nxd", Cut(), fixture_weights())


@pytest.mark.parametrize("name", FORMATS)
def test_fixture_to_the_bit(name: str) -> None:
    source = NxdSource(FIXTURE / name, fixture_config())
    assert source.format == FORMATS[name]
    assert_same(everything(source), fixture_weights())
    source.check_replicas()
    assert list(source.tensors())[:2] == [
        "model.embed_tokens.weight",
        "model.layers.0.input_layernorm.weight",
    ]


def test_what_was_found_is_said_with_what_told_it() -> None:
    found = NxdSource(FIXTURE / "qkv_kv2", fixture_config()).notes[0]
    for part in (
        "tp 4 and pp 1 (names of files)",
        "qkv linear (key self_attn.qkv_proj.weight_q)",
        "KV multiplier 2 (weight_k has 4 rows on each of 4 ranks",
        "order trn1 (told from equal copies of KV heads, which are tiled; NxD's converter",
    ):
        assert part in found


@pytest.mark.parametrize("tag", ["train_ckpt_tp1/step_2", "train_ckpt_tp4_xser/step_0"])
def test_training_checkpoints_of_the_fixture_as_torch_loads_their_tensors(tag: str) -> None:
    """They are of another network than a Llama: read rank by rank, and refused as a whole."""
    for path in sorted((FIXTURE / tag / "model").glob("*00.pt")):
        state = open_model_file(path)
        assert list(state) == [
            "emb.weight",
            "up.weight",
            "down.weight",
            "norm.weight",
            "norm.bias",
            "head.weight",
        ]
        for tid, tensor in enumerate(state.values()):
            assert torch.equal(
                tensor.read(), torch.load(path.parent / f"{path.name}.tensors/tensor_{tid}.pt")
            )
    with pytest.raises(WeightsError, match=r"not of a Llama as NxD saves it.*emb\.weight"):
        NxdSource(FIXTURE / tag, fixture_config())


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_checkpoints_cut_by_hand(tmp_path: Path, cut: Cut) -> None:
    source = NxdSource(write(tmp_path, cut, fixture_weights()), fixture_config())
    # With as many copies as there are ranks, both orders would be the same.
    assert source.format == NxdFormat(cut.tp, cut.pp, cut.multiplier, cut.order, cut.qkv)
    assert_same(everything(source), fixture_weights())
    source.check_replicas()


def test_hand_made_ranks_are_those_of_the_real_tool() -> None:
    for name, cut in (("qkv_kv2", Cut()), ("noqkv_tp2", Cut(tp=2, multiplier=1, qkv="separate"))):
        for tp in range(cut.tp):
            real = torch.load(FIXTURE / name / "model" / rank_name(tp))
            assert_same(cut_rank(cut, fixture_weights(), tp), real)


def test_coalesced_where_each_query_head_has_a_kv_head(tmp_path: Path) -> None:
    full = fixture_weights()
    for layer in range(2):
        for kind in "kv":
            full[f"model.layers.{layer}.self_attn.{kind}_proj.weight"] = torch.randn(32, 32).bfloat16()
    cut = Cut(tp=2, multiplier=1, qkv="coalesced", kv_heads=8)
    source = NxdSource(write(tmp_path, cut, full), fixture_config(num_key_value_heads=8))
    assert source.format.qkv == "coalesced"
    assert_same(everything(source), full)


def test_stages_of_unequal_length(tmp_path: Path) -> None:
    """A reader needs no rule for where the pipeline is cut."""
    write(tmp_path, Cut(pp=2), fixture_weights())
    for tp in range(4):
        first, second = (tmp_path / "model" / rank_name(tp, pp) for pp in (0, 1))
        states = torch.load(first), torch.load(second)
        moved = {key: tensor for key, tensor in states[0].items() if key.startswith("model.layers.0.")}
        torch.save({key: tensor for key, tensor in states[0].items() if key not in moved}, first)
        torch.save(moved | states[1], second)
    assert_same(everything(NxdSource(tmp_path, fixture_config())), fixture_weights())


def test_tied_model_without_a_head(tmp_path: Path) -> None:
    full = fixture_weights()
    del full["lm_head.weight"]
    source = NxdSource(write(tmp_path, Cut(), full), fixture_config())
    assert_same(everything(source), full)
    assert "the head is the embedding" in source.notes[-1]


def test_any_box(tp4: Path) -> None:
    source, full = NxdSource(tp4, fixture_config()), fixture_weights()
    chance = random.Random(0)
    for name, tensor in full.items():
        for _ in range(8):
            start = tuple(chance.randrange(size) for size in tensor.shape)
            shape = tuple(chance.randint(0, size - at) for size, at in zip(tensor.shape, start, strict=True))
            box = Box(start, shape)
            assert torch.equal(source.read(name, box), tensor[box.slices()]), (name, box)


def test_more_copies_than_query_heads_a_rank(tmp_path: Path) -> None:
    """T04: query head h meets KV head h // 4; 2 KV heads come back, bit-equal."""
    cut = Cut(tp=8, multiplier=4)
    for rank in range(8):
        (head,) = cut.query_heads(rank)
        state, full = cut_rank(cut, fixture_weights(), rank), fixture_weights()
        key = full["model.layers.0.self_attn.k_proj.weight"].reshape(2, 4, 32)
        assert torch.equal(state[f"model.layers.0.{K}"], key[head // 4])
    source = NxdSource(write(tmp_path, cut, fixture_weights()), fixture_config())
    assert source.read("model.layers.1.self_attn.k_proj.weight").shape == (8, 32)
    assert_same(everything(source), fixture_weights())


@pytest.mark.parametrize(
    ("key", "tensor", "ranks", "where"),
    [
        (f"layers.1.{K}", "model.layers.1.self_attn.k_proj.weight", r"\(tp 1\) and \(tp 3\)", r"\[4, 0\]"),
        (
            "layers.0.input_layernorm.weight",
            "model.layers.0.input_layernorm.weight",
            r"\(tp 0\) and \(tp 3\)",
            r"\[0\]",
        ),
    ],
)
def test_copies_that_differ(tp4: Path, key: str, tensor: str, ranks: str, where: str) -> None:
    """T04: named with tensor and ranks, never averaged; the smallest difference counts."""
    path = tp4 / "model" / rank_name(3)
    values = next(value for name, value in torch.load(path).items() if name.endswith(key)).clone()
    values.view(torch.int16).view(-1)[0] ^= 1
    change(path, **{key: values})
    source = NxdSource(tp4, fixture_config())
    with pytest.raises(
        WeightsError, match=rf"{tensor}: the ranks {ranks} .* different values, the first at {where}"
    ):
        source.check_replicas()


def test_copies_with_the_same_nan_are_equal(tp4: Path) -> None:
    for tp in range(4):
        change(
            tp4 / "model" / rank_name(tp), **{"model.norm.weight": torch.full((32,), torch.nan).bfloat16()}
        )
    NxdSource(tp4, fixture_config()).check_replicas()


def test_without_a_configuration() -> None:
    with pytest.raises(WeightsError, match=r"tp 4, pp 1 and qkv linear.*--config FILE"):
        NxdSource(FIXTURE / "qkv_kv2", None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"vocab_size": 128},
            "16 rows on each of 4 .* 128: that is tp 8, so the files of tp 4 to 7 are missing",
        ),
        ({"vocab_size": 60}, "16 rows on each of 4 .* 60; name the model's own"),
        ({"num_key_value_heads": 8}, "weight_k has 4 rows on each of 4 ranks.* fits no KV multiplier"),
        ({"num_attention_heads": 16}, r"weight_q is \(8, 32\), the configuration needs \(16, 32\)"),
        ({"num_hidden_layers": 3}, r"8 of 27 tensors .* are missing: model\.layers\.2\."),
        ({"num_hidden_layers": 1}, r"8 tensors are not part of the model .*: model\.layers\.1\."),
        (
            {"intermediate_size": 96},
            r"gate_up_proj\.weight is \(24, 32\), the configuration needs \(48, 32\)",
        ),
        ({"hidden_size": 64}, r"embed_tokens\.weight is \(16, 32\), the configuration needs \(16, 64\)"),
        ({"model_type": "qwen3"}, r"are missing: .*q_norm"),
    ],
)
def test_configuration_of_another_model(tp4: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        NxdSource(tp4, fixture_config(**changes))


def test_other_heads_of_the_same_shapes_show_in_the_copies(tp4: Path) -> None:
    """2 KV heads twice, or one 4 times: all ranks would hold the same then."""
    source = NxdSource(tp4, fixture_config(num_key_value_heads=1))
    with pytest.raises(WeightsError, match=r"k_proj\.weight: the ranks \(tp 0\) and \(tp 1\)"):
        source.check_replicas()


def test_tp_sizes_that_do_not_fit(tp4: Path) -> None:
    """The last rank's file is missing: shapes tell it."""
    (tp4 / "model" / rank_name(3)).unlink()
    with pytest.raises(
        WeightsError, match=r"16 rows on each of 3 .*: that is tp 4, so the files of tp 3 to 3"
    ):
        NxdSource(tp4, fixture_config())


def test_rank_file_of_another_cut(tp4: Path) -> None:
    torch.save(cut_rank(Cut(tp=2, multiplier=1), fixture_weights(), 1), tp4 / "model" / rank_name(1))
    with pytest.raises(WeightsError, match=rf"{rank_name(1)}: 10 tensors have another shape: .*\(32, 32\)"):
        NxdSource(tp4, fixture_config())


def test_rank_file_that_lacks_a_tensor_or_has_one_more(tp4: Path) -> None:
    change(tp4 / "model" / rank_name(2), **{f"layers.1.{K}": None})
    with pytest.raises(WeightsError, match=rf"tp 2: 1 of 19 .* missing: model\.layers\.1\.{K}"):
        NxdSource(tp4, fixture_config())
    change(
        tp4 / "model" / rank_name(2),
        **{f"model.layers.1.{K}": torch.zeros(4, 32).bfloat16(), "extra": torch.zeros(1)},
    )
    with pytest.raises(WeightsError, match=r"1 tensors are not part of the model .*: extra"):
        NxdSource(tp4, fixture_config())


def test_rank_files_of_different_dtypes(tp4: Path) -> None:
    change(tp4 / "model" / rank_name(2), **{"lm_head.weight": torch.zeros(16, 32)})
    with pytest.raises(
        WeightsError, match=r"lm_head.weight .*bfloat16 on \(tp 0\), \(tp 1\) .*float32 on \(tp 2\)"
    ):
        NxdSource(tp4, fixture_config())


def test_truncated_rank_file(tp4: Path) -> None:
    path = tp4 / "model" / rank_name(2)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(WeightsError, match=rf"{rank_name(2)} is cut off"):
        NxdSource(tp4, fixture_config())


def test_broken_xser(tmp_path: Path) -> None:
    folder = shutil.copytree(FIXTURE / "qkv_kv2_nxd_xser/step_0", tmp_path / "step_0")
    tensor = folder / "model" / f"{rank_name(1)}.tensors" / "tensor_3.pt"
    content = tensor.read_bytes()
    tensor.write_bytes(content[:-1])
    with pytest.raises(WeightsError, match=r"tensor_3\.pt is cut off"):
        NxdSource(folder, fixture_config())
    tensor.unlink()
    with pytest.raises(
        WeightsError, match=rf"{rank_name(1)} refers to tensor 3, but there is no .*tensor_3\.pt"
    ):
        NxdSource(folder, fixture_config())
    torch.save({}, tensor)
    with pytest.raises(WeightsError, match="holds a dict where a tensor is due"):
        NxdSource(folder, fixture_config())


def test_model_under_its_own_key_and_computed_buffers(tp4: Path) -> None:
    for tp in range(4):
        path = tp4 / "model" / rank_name(tp)
        buffers = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(2)}
        torch.save({"model": torch.load(path) | buffers, "epoch": 3}, path)
    assert_same(everything(NxdSource(tp4, fixture_config())), fixture_weights())


def test_file_that_is_no_model(tp4: Path) -> None:
    path = tp4 / "model" / rank_name(0)
    for value, message in (
        ([1], "holds no dict"),
        ({}, "holds no dict"),
        ({"lr": 0.1}, "lr is a float, not a tensor"),
    ):
        torch.save(value, path)
        with pytest.raises(WeightsError, match=message):
            NxdSource(tp4, fixture_config())
