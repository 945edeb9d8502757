import pytest
import torch
from tiny_decoders import CASES, reference, same_in_kitae

from kitae.errors import WeightsError
from kitae.model.config import DecoderConfig
from kitae.model.decoder import decoder_layouts
from kitae.parallel.assembly import assemble, pieces_of


def config_of(case, **changes):
    return DecoderConfig.from_hf({**reference(case).config.to_dict(), **changes})


@pytest.mark.parametrize(
    ("case", "tp_size"), [(case, tp) for case in CASES for tp in (1, 2, 4) if tp == 1 or case != "smollm2"]
)
def test_every_cut_gives_the_same_full_tensors_back(case, tp_size):
    model = reference(case)
    config = DecoderConfig.from_hf(model.config.to_dict())
    full = {name: parameter.detach() for name, parameter in model.named_parameters()}
    restored = {name: torch.full_like(tensor, float("nan")) for name, tensor in full.items()}
    for rank in range(tp_size):
        for layout in decoder_layouts(config, config.tie_word_embeddings)(tp_size, rank):
            local = assemble(layout, lambda name, box: full[name][box.slices()], torch.float32)
            for name, box, values in pieces_of(layout, local):
                restored[name][box.slices()] = values
    assert all(torch.equal(restored[name], tensor) for name, tensor in full.items())


def test_names_of_a_layer():
    layouts = decoder_layouts(config_of("qwen3-window"), False)(1, 0)
    names = [
        layout.name.removeprefix("layers.0.") for layout in layouts if layout.name.startswith("layers.0.")
    ]
    assert names == [
        "attention_norm.weight",
        "attention.qkv.weight",
        "attention.qkv.bias",
        "attention.q_norm.weight",
        "attention.k_norm.weight",
        "attention.out.weight",
        "attention.out.bias",
        "mlp_norm.weight",
        "mlp.gate_up.weight",
        "mlp.down.weight",
    ]
    assert [layouts[0].name, layouts[-2].name, layouts[-1].name] == [
        "embed.weight",
        "norm.weight",
        "head.weight",
    ]


def test_matrices_decay_and_start_normal_norms_and_biases_do_not():
    for case in CASES:
        for layout in decoder_layouts(config_of(case), False)(1, 0):
            kind = "ones" if "norm" in layout.name else "zeros" if layout.name.endswith("bias") else "normal"
            assert (layout.initial, layout.decay) == (kind, kind == "normal"), layout.name


def test_what_is_computed_by_token():
    """Norms of hidden states and biases of sums; norms of heads meet all tokens, but only the heads here."""
    for case in CASES:
        for tp_size in (1, 2) if case != "smollm2" else (1, 3):
            for layout in decoder_layouts(config_of(case), False)(tp_size, 0):
                kinds = ("attention_norm.weight", "mlp_norm.weight", "out.bias", "down.bias")
                by_token = layout.name == "norm.weight" or layout.name.endswith(kinds)
                assert layout.token_wise == by_token, layout.name


def test_explicit_head_dim():
    """T11: hidden 64, heads 4, head_dim 24: q_proj is (96, 64)."""
    layouts = {layout.name: layout for layout in decoder_layouts(config_of("llama-head-dim"), False)(1, 0)}
    qkv = layouts["layers.0.attention.qkv.weight"]
    assert qkv.pieces[0].full_shape == (96, 64)
    assert qkv.shape == (96 + 2 * 48, 64)
    assert layouts["layers.0.attention.out.weight"].shape == (64, 96)


def test_vocabulary_is_padded_inside_only():
    """T12: 99 rows on 8 ranks are 13 each."""
    config = config_of("llama2", num_attention_heads=8, num_key_value_heads=2, hidden_size=32)
    layout = decoder_layouts(config, True)(8, 7)[0]
    assert layout.shape == (13, 32)
    assert layout.pieces[0].box.shape == (8, 32)
    assert layout.pieces[0].full_shape == (99, 32)


def test_heads_that_do_not_divide_are_named():
    with pytest.raises(WeightsError, match=r"layers\.0\.self_attn.*9 query heads"):
        decoder_layouts(config_of("smollm2"), True)(2, 0)


def test_a_decoder_costs_no_initialisation():
    """On the meta device there is nothing to fill, and names and shapes are the same."""
    decoder = same_in_kitae(reference("qwen3"))
    empty = type(decoder)(decoder.config, tied=False, device="meta")
    assert {n: p.shape for n, p in empty.named_parameters()} == {
        n: p.shape for n, p in decoder.named_parameters()
    }
