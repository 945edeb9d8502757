import torch
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
