from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from nxd_models import FIXTURES, LLAMA_8B, allowed, decoder_config, full_shapes, numbered, rank_state
from safetensors.torch import load_file

from kitae.checkpoint.hf import read_json
from kitae.checkpoint.nxd_format import NxdFormat, rank_file
from kitae.checkpoint.nxd_layout import nxd_layouts
from kitae.errors import WeightsError
from kitae.model.config import DecoderConfig
from kitae.parallel.assembly import full_box

REAL = {
    "qkv_kv2": NxdFormat(4, kv_multiplier=2),
    "qkv_kv2_xser": NxdFormat(4, kv_multiplier=2),
    "noqkv_tp2": NxdFormat(2, qkv="separate"),
}
ATTENTION = "model.layers.0.self_attn"


@pytest.mark.parametrize(("folder", "format"), REAL.items())
def test_table_gives_what_the_real_converter_wrote(folder, format):
    """Every rank's file: the same keys in the same order, the same values bit for bit."""
    config = DecoderConfig.from_hf(read_json(FIXTURES / "hf" / "config.json"))
    full = load_file(FIXTURES / "hf" / "model.safetensors")
    for rank in range(format.tp_size):
        real = torch.load(FIXTURES / folder / "model" / rank_file(rank, 0), weights_only=True)
        ours = rank_state(config, format, full, rank)
        assert list(ours) == list(real)
        for name, tensor in real.items():
            assert torch.equal(ours[name].bfloat16(), tensor), name


@settings(deadline=None, max_examples=80)
@given(allowed())
def test_ranks_hold_every_element_as_often_as_they_say(drawn):
    """Over all ranks, boxes cover each full tensor exactly `replicas` times."""
    config, tied, format = drawn
    seen = {name: torch.zeros(shape, dtype=torch.int64) for name, shape in full_shapes(config, tied).items()}
    said = {}
    table = nxd_layouts(config, tied, format)
    for tp_rank in range(format.tp_size):
        for pp_rank in range(format.pp_size):
            layouts = table(tp_rank, pp_rank)
            assert len({layout.name for layout in layouts}) == len(layouts)
            for piece in (piece for layout in layouts for piece in layout.pieces):
                seen[piece.tensor][full_box(piece).slices()] += 1
                assert said.setdefault(piece.tensor, piece.replicas) == piece.replicas
    for name, count in seen.items():
        assert (count == said[name]).all(), name


@settings(deadline=None, max_examples=80)
@given(allowed())
def test_query_heads_meet_their_kv_heads_on_every_rank(drawn):
    """T04: query head h meets KV head h // (heads / KV heads), and its columns of o_proj are on its rank."""
    config, _, format = drawn
    for rank in range(format.tp_size):
        held = held_heads(config, format, rank)
        each = len(held["q"]) // len(held["k"])
        group = config.num_heads // config.num_kv_heads
        assert held["k"] == held["v"]
        assert held["o"] == held["q"]
        assert [held["k"][i // each] for i in range(len(held["q"]))] == [head // group for head in held["q"]]


def held_heads(config, format, rank):
    """Which heads of each projection are on a rank, in their order there."""
    own = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o"}
    result = {}
    for layout in nxd_layouts(config, False, replace(format, pp_size=1))(rank, 0):
        for piece in layout.pieces:
            kind = own.get(piece.tensor.split(".")[-2])
            if kind and piece.tensor.startswith(ATTENTION) and piece.tensor.endswith("weight"):
                box, dim = full_box(piece), kind == "o"
                first, count = box.start[dim] // config.head_dim, box.shape[dim] // config.head_dim
                result[kind] = list(range(first, first + count))
    return result


@pytest.mark.parametrize(
    ("order", "query", "kv"),
    [
        ("trn1", [[0], [4], [1], [5], [2], [6], [3], [7]], [[0], [1]] * 4),
        ("trn2", [[head] for head in range(8)], [[0]] * 4 + [[1]] * 4),
    ],
)
def test_eight_query_heads_two_kv_heads_on_eight_ranks(order, query, kv):
    """T04, and both orders written out."""
    format = NxdFormat(8, kv_multiplier=4, order=order)
    held = [held_heads(decoder_config(), format, rank) for rank in range(8)]
    assert [one["q"] for one in held] == query
    assert [one["k"] for one in held] == kv


@pytest.mark.parametrize(
    ("heads", "kv_heads", "tp_size", "multiplier"),
    [(32, 8, 32, 4), (32, 8, 8, 1), (32, 8, 16, 2), (64, 8, 32, 4), (64, 8, 16, 2)],
)
def test_order_trn1_is_the_converters_index_rule(heads, kv_heads, tp_size, multiplier):
    """Rank r holds query heads (r mod Hk) * (Hq / Hk) + (r div Hk) * p + j, p = Hq / (Hk * M)."""
    config = decoder_config(
        num_attention_heads=heads, num_key_value_heads=kv_heads, vocab_size=64, intermediate_size=64
    )
    each = heads // (kv_heads * multiplier)
    for rank in range(tp_size):
        held = held_heads(config, NxdFormat(tp_size, kv_multiplier=multiplier), rank)
        first = rank % kv_heads * (heads // kv_heads) + rank // kv_heads * each
        assert held["q"] == list(range(first, first + each))
        assert held["k"] == [rank % kv_heads]


def test_shapes_of_an_8b_on_32_ranks():
    """The shapes that NxD's documentation and code give for Llama 3.1 8B, tp 32, multiplier 4."""
    table = nxd_layouts(decoder_config(**LLAMA_8B), False, NxdFormat(32, kv_multiplier=4, qkv="fused"))
    shapes = {layout.name: layout.shape for layout in table(5, 0)}
    layer = "model.layers.31"
    assert shapes["model.embed_tokens.weight"] == shapes["lm_head.weight"] == (4008, 4096)
    assert shapes[f"{layer}.self_attn.qkv_proj.weight_qkv"] == (384, 4096)
    assert shapes[f"{layer}.self_attn.o_proj.weight"] == (4096, 128)
    assert shapes[f"{layer}.mlp.gate_up_proj.weight"] == (896, 4096)
    assert shapes[f"{layer}.mlp.down_proj.weight"] == (4096, 448)
    assert shapes[f"{layer}.input_layernorm.weight"] == (4096,)


@pytest.mark.parametrize("fused_gate_up", [True, False])
def test_each_rank_holds_its_half_of_gate_and_of_up(fused_gate_up):
    """T10: never gate on one rank and up on the other."""
    config = decoder_config()
    full = numbered(config)
    for name, value in (("gate", 1.0), ("up", 2.0)):
        full[f"model.layers.0.mlp.{name}_proj.weight"].fill_(value)
    for rank in (0, 1):
        state = rank_state(config, NxdFormat(2, fused_gate_up=fused_gate_up), full, rank)
        if fused_gate_up:
            gate, up = state["model.layers.0.mlp.gate_up_proj.weight"].chunk(2)
        else:
            gate, up = (state[f"model.layers.0.mlp.{name}_proj.weight"] for name in ("gate", "up"))
        assert gate.shape == up.shape == (8, 8)
        assert (gate == 1).all()
        assert (up == 2).all()


def test_norms_keep_their_places():
    """T09: each norm filled with its own constant."""
    config = decoder_config(model_type="qwen3")
    full = {name: torch.full(shape, float(i)) for i, (name, shape) in enumerate(full_shapes(config).items())}
    norms = {name: tensor for name, tensor in full.items() if "norm" in name}
    assert len(norms) == 9
    state = rank_state(config, NxdFormat(2), full, 1)
    for name, tensor in norms.items():
        assert torch.equal(state[name], tensor), name


def test_head_dim_of_its_own():
    """T11: hidden 64, heads 4, head_dim 24: q_proj is (96, 64), cut by heads of 24."""
    config = decoder_config(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=24, vocab_size=16
    )
    full = numbered(config)
    assert full[f"{ATTENTION}.q_proj.weight"].shape == (96, 64)
    state = rank_state(config, NxdFormat(4, kv_multiplier=2), full, 2)
    assert torch.equal(state[f"{ATTENTION}.qkv_proj.weight_q"], full[f"{ATTENTION}.q_proj.weight"][24:48])
    assert torch.equal(state[f"{ATTENTION}.o_proj.weight"], full[f"{ATTENTION}.o_proj.weight"][:, 24:48])


@pytest.mark.parametrize(
    ("qkv", "key", "kv_heads"),
    [("fused", "qkv_proj.weight_qkv", 4), ("coalesced", "qkv_proj.weight", 8)],
)
def test_one_key_for_three_is_last_and_need_not_be_of_thirds(qkv, key, kv_heads):
    """The converter pops the parts and adds the whole; 4 query heads and 2 KV heads a rank are no thirds."""
    config = decoder_config(num_key_value_heads=kv_heads)
    full = numbered(config)
    state = rank_state(config, NxdFormat(2, qkv=qkv), full, 1)
    assert list(state)[-3:] == ["lm_head.weight", *(f"model.layers.{i}.self_attn.{key}" for i in (0, 1))]
    parts = [full[f"{ATTENTION}.{name}_proj.weight"].chunk(2)[1] for name in "qkv"]
    assert torch.equal(state[f"{ATTENTION}.{key}"], torch.cat(parts))


def test_biases_of_separate_projections_follow_their_weights():
    config = decoder_config(model_type="qwen2")
    full = numbered(config)
    state = rank_state(config, NxdFormat(2, qkv="separate"), full, 1)
    names = [f"{ATTENTION}.{name}_proj.{kind}" for name in "qkv" for kind in ("weight", "bias")]
    assert list(state)[1:7] == names
    assert torch.equal(state[f"{ATTENTION}.k_proj.bias"], full[f"{ATTENTION}.k_proj.bias"][4:])


def test_stages_keep_global_layer_numbers_and_the_last_ones_are_longer():
    """5 layers in 3 stages: 1, 2, 2; the embedding is in the first, norm and head are in the last."""
    table = nxd_layouts(decoder_config(num_hidden_layers=5), False, NxdFormat(2, 3))
    stages = [[layout.name for layout in table(1, stage)] for stage in range(3)]
    layers = [Counter(name.split(".")[2] for name in names if ".layers." in name) for names in stages]
    assert [list(counter) for counter in layers] == [["0"], ["1", "2"], ["3", "4"]]
    assert stages[0][0] == "model.embed_tokens.weight"
    assert stages[2][-2:] == ["model.norm.weight", "lm_head.weight"]
    assert not any("embed" in name or name.endswith("model.norm.weight") for name in stages[1])


def test_tied_head_is_a_copy_of_the_embedding():
    config = decoder_config()
    full = numbered(config, tied=True)
    state = rank_state(config, NxdFormat(2), full, 1, tied=True)
    assert torch.equal(state["lm_head.weight"], full["model.embed_tokens.weight"][8:])


@pytest.mark.parametrize(
    ("changes", "format", "rule"),
    [
        ({}, {"tp_size": 3}, "8 do not divide by tp_size 3; choose a tp_size that divides 8"),
        (
            {"num_attention_heads": 12, "num_key_value_heads": 4},
            {"tp_size": 6},
            "4 do not spread over tp_size 6",
        ),
        ({}, {"tp_size": 4}, "2 x 1 with tp_size 4 is neither; choose kv_multiplier 2"),
        ({}, {"tp_size": 2, "kv_multiplier": 2}, "2 x 2 with tp_size 2 is neither; choose kv_multiplier 1"),
        ({}, {"tp_size": 4, "kv_multiplier": 2, "qkv": "separate"}, "only qkv linear and fused"),
        ({}, {"tp_size": 2, "qkv": "coalesced"}, "as many KV heads as query heads: there are 2 and 8"),
        ({"vocab_size": 99}, {"tp_size": 2}, "NxD does not pad: vocab_size 99 does not divide by tp_size 2"),
        ({"intermediate_size": 9}, {"tp_size": 2}, "intermediate_size 9 does not divide by tp_size 2"),
        ({}, {"tp_size": 1, "pp_size": 3}, "each pipeline stage has a layer: 2 are too few for pp_size 3"),
        ({"model_type": "qwen2"}, {"tp_size": 2}, "biases of q, k and v have a place in qkv separate only"),
        ({"mlp_bias": True}, {"tp_size": 2}, "no place for the biases of o_proj and the MLP"),
        ({}, {"tp_size": 0}, "tp_size: 0 where a whole number above 0 is needed"),
        ({}, {"tp_size": 2, "order": "trn3"}, "order: 'trn3' is none of"),
        ({}, {"tp_size": 2, "qkv": "off"}, "qkv: 'off' is none of"),
    ],
)
def test_what_the_format_does_not_allow_is_refused_with_the_rule(changes, format, rule):
    """T12: also that there is no padding of a vocabulary of 99."""
    with pytest.raises(WeightsError, match=rule):
        nxd_layouts(decoder_config(**changes), False, NxdFormat(**format))


@pytest.mark.parametrize("rank", [(2, 0), (0, 2), (-1, 0)])
def test_ranks_that_do_not_exist(rank):
    with pytest.raises(WeightsError, match="does not exist"):
        nxd_layouts(decoder_config(), False, NxdFormat(2, 2))(*rank)
