import pytest
import torch
from cut_decoders import CASES, decoder_of, layouts_of
from tiny_decoders import SIZES

from kitae.model.config import DecoderConfig
from kitae.model.decoder import Decoder, decoder_layouts
from kitae.model.init import full_tensor, initialise, keyed_generator
from kitae.parallel.assembly import pieces_of

CONFIG = DecoderConfig.from_hf({"model_type": "qwen2", **SIZES, "hidden_size": 64, "initializer_range": 0.05})


def initialised(tp_size, rank, seed=7):
    layouts = decoder_layouts(CONFIG, False)(tp_size, rank)
    tensors = {layout.name: torch.full(layout.shape, float("nan")) for layout in layouts}
    initialise(tensors, layouts, seed=seed, std=CONFIG.initializer_range)
    return layouts, tensors


def test_every_cut_starts_from_the_same_weights():
    layouts, whole = initialised(1, 0)
    full = {name: values for layout in layouts for name, _, values in pieces_of(layout, whole[layout.name])}
    for tp_size in (2, 4):
        for rank in range(tp_size):
            layouts, cut = initialised(tp_size, rank)
            for layout in layouts:
                for name, box, values in pieces_of(layout, cut[layout.name]):
                    assert torch.equal(values, full[name][box.slices()]), name


@pytest.mark.parametrize("tp_size", [2, 4, 8])
@pytest.mark.parametrize("case", CASES)
def test_all_kinds_of_parameters_start_from_the_same_bits(case, tp_size):
    """Tied and not, biases, norms of heads, fewer KV heads than ranks, and a padded vocabulary (T12)."""
    whole = dict(decoder_of(case).named_parameters())
    initialise(whole, layouts_of(case, 1, 0), seed=3, std=0.1)
    full = {name: part for one in layouts_of(case, 1, 0) for name, _, part in pieces_of(one, whole[one.name])}
    seen = {name: torch.zeros(tensor.shape) for name, tensor in full.items()}
    for rank in range(tp_size):
        layouts = layouts_of(case, tp_size, rank)
        parameters = {layout.name: torch.full(layout.shape, float("nan")) for layout in layouts}
        initialise(parameters, layouts, seed=3, std=0.1)
        for layout in layouts:
            for name, box, part in pieces_of(layout, parameters[layout.name]):
                assert torch.equal(part, full[name][box.slices()]), name
                seen[name][box.slices()] += 1
        real = layouts[0].pieces[0].box.shape[0]
        assert len(parameters["embed.weight"]) == {2: 50, 4: 25, 8: 13}[tp_size]
        assert not parameters["embed.weight"][real:].any()
    assert all(tensor.all() for tensor in seen.values())


def test_statistics():
    layouts, tensors = initialised(1, 0)
    for layout in layouts:
        values = tensors[layout.name]
        if layout.initial == "normal":
            assert abs(values.mean()) < 0.005
            assert abs(values.std() - 0.05) < 0.003
        else:
            assert (values == {"ones": 1.0, "zeros": 0.0}[layout.initial]).all()


def test_seed_and_name_decide():
    one = full_tensor("a", (8,), "normal", 1, 1.0)
    assert torch.equal(one, full_tensor("a", (8,), "normal", 1, 1.0))
    assert not torch.equal(one, full_tensor("b", (8,), "normal", 1, 1.0))
    assert not torch.equal(one, full_tensor("a", (8,), "normal", 2, 1.0))


def test_global_generator_is_left_alone():
    before = torch.get_rng_state()
    initialised(1, 0)
    assert torch.equal(before, torch.get_rng_state())


def test_purposes_do_not_run_together():
    draws = [
        torch.rand(1, generator=keyed_generator(0, *purpose)).item()
        for purpose in (("a", 1), ("a1",), ("a", "1"))
    ]
    assert len(set(draws)) == 3


def test_it_fills_a_bf16_decoder():
    decoder = Decoder(CONFIG, tied=True, dtype=torch.bfloat16)
    initialise(dict(decoder.named_parameters()), decoder.layouts, seed=0, std=0.02)
    assert all(parameter.isfinite().all() for parameter in decoder.parameters())
