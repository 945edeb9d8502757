"""The encoder's parameter table: a bijection with the full tensors, in every cut."""

from math import prod

import pytest
import torch
from cut_encoders import HEADS, config_of, encoder_of
from tiny_encoders import CASES, reference, rows, same_in_kitae

from kitae import catalog
from kitae.checkpoint.live import LiveSource
from kitae.checkpoint.model_folder import model_of
from kitae.errors import WeightsError
from kitae.model.architecture import architecture_of, parse_config, table_of
from kitae.model.encoder_layouts import encoder_layouts
from kitae.model.init import full_tensor, initialise
from kitae.model.memory import count_parameters
from kitae.parallel.assembly import pieces_of


@pytest.mark.parametrize("tp_size", [1, 2, 4])
@pytest.mark.parametrize("case", CASES)
def test_every_element_is_held_as_often_as_the_table_says(case, tp_size):
    counts = {}
    for rank in range(tp_size):
        for layout in encoder_layouts(config_of(case))(tp_size, rank):
            shapes = {piece.tensor: (piece.full_shape, piece.replicas) for piece in layout.pieces}
            for name, box, part in pieces_of(layout, torch.ones(layout.shape)):
                shape, replicas = shapes[name]
                held, _ = counts.setdefault(name, (torch.zeros(shape), replicas))
                held[box.slices()] += part
    assert counts.keys() == {name for name, _ in reference(case).named_parameters()}
    assert all((held == replicas).all() for held, replicas in counts.values())


@pytest.mark.parametrize("case", CASES)
def test_decay_spares_biases_and_norms(case):
    for layout in encoder_layouts(config_of(case))(2, 1):
        spared = layout.name.endswith(".bias") or "norm." in layout.name
        assert layout.decay != spared, layout.name
        wanted = "normal" if not spared else "ones" if layout.name.endswith("norm.weight") else "zeros"
        assert layout.initial == wanted, layout.name


def test_heads_and_widths_that_do_not_divide_are_refused():
    with pytest.raises(WeightsError, match=r"layer.0.*: 4 query heads do not divide by the tensor-par"):
        encoder_layouts(config_of("mlm"))(8, 0)
    with pytest.raises(WeightsError, match=r"4 query heads do not divide"):
        encoder_layouts(config_of("mlm"))(3, 0)


@pytest.mark.parametrize("case", HEADS)
def test_random_weights_depend_on_names_alone(case):
    """Each rank of 4 draws what the whole model has there; vocabulary padding is zero."""
    whole = {piece.tensor: (piece.full_shape, one.initial) for one in table_of(config_of(case), True)(1, 0)
             for piece in one.pieces}  # fmt: skip
    for rank in range(4):
        layouts = encoder_layouts(config_of(case))(4, rank)
        own = {layout.name: torch.full(layout.shape, torch.nan) for layout in layouts}
        initialise(own, layouts, seed=4, std=0.02)
        for layout in layouts:
            assert own[layout.name].isfinite().all()
            for name, box, part in pieces_of(layout, own[layout.name]):
                shape, initial = whole[name]
                assert torch.equal(part, full_tensor(name, shape, initial, 4, 0.02)[box.slices()])
    assert (own["embed.words.weight"][24:] == 0).all(), "99 rows on 4 ranks: the last has 24"


def test_parameters_of_a_rank():
    """Padding and replicas counted as they are held: bert-tiny's sizes by hand, on 2 ranks."""
    config = config_of("mlm")
    assert count_parameters(table_of(config, True)(1, 0)) == sum(
        one.numel() for one in reference("mlm").parameters()
    )
    rank = {layout.name: prod(layout.shape) for layout in table_of(config, True)(2, 1)}
    assert rank["embed.words.weight"] == 50 * 32
    assert rank["head.bias"] == 50
    assert rank["layers.0.attention.qkv.weight"] == 3 * 16 * 32
    assert rank["layers.0.mlp.up.bias"] == 24
    assert rank["transform.dense.weight"] == 32 * 32


@pytest.mark.parametrize(("name", "count"), [("bert-tiny", 4_385_920), ("bert-large", 335_141_888)])
def test_presets_have_the_published_number_of_parameters(name, count):
    """Of a BertModel; pre-training adds the transform, the vocabulary's bias and two rows."""
    config = dict(catalog.preset(name).config)
    bare = table_of({**config, "architectures": ["BertModel"]}, True)(1, 0)
    assert count_parameters(bare) == count
    hidden, rows = config["hidden_size"], config["vocab_size"]
    heads = hidden * hidden + 3 * hidden + rows + 2 * hidden + 2
    assert count_parameters(table_of(config, True)(1, 0)) == count + heads


def test_a_checkpoint_builds_its_model():
    """`model_of` with the tensors of a live encoder: the same outputs, whatever kind config.json names."""
    model = reference("classification")
    encoder = same_in_kitae(model)
    source = LiveSource(dict(encoder.named_parameters()), encoder.layouts)
    config = {**model.config.to_dict(), "architectures": ["BertForSequenceClassification"]}
    again = model_of(config, source)
    batch = rows(2, 9)
    with torch.no_grad():
        assert torch.equal(again.class_logits(again(*batch)), encoder.class_logits(encoder(*batch)))
    assert parse_config(config) == encoder.config
    with pytest.raises(WeightsError, match=r"tensors are missing: cls\.predictions"):
        model_of({**config, "architectures": ["BertForMaskedLM"]}, CutSource(source))


class CutSource:
    """Without what a masked language model does not have."""

    def __init__(self, source):
        self._source = source

    def tensors(self):
        left = ("bert.pooler.", "classifier.")
        return {name: info for name, info in self._source.tensors().items() if not name.startswith(left)}

    def read(self, name, box=None):
        return self._source.read(name, box)


def test_bf16_stays_near_fp32():
    """Weights and activations in bf16, attention in one fused call."""
    model = reference("pretraining")
    batch = rows(3, 30)
    with torch.no_grad():
        wide, narrow = (same_in_kitae(model, dtype) for dtype in (torch.float32, torch.bfloat16))
        exact, found = wide(*batch), narrow(*batch)
        assert found.dtype == torch.bfloat16
        real = torch.arange(30) < batch[2][:, None]
        assert (found.float() - exact)[real].abs().mean() < 0.02 * exact[real].abs().mean()
        assert (narrow.pair_logits(found) - wide.pair_logits(exact)).abs().max() < 0.05


def test_the_table_of_kinds():
    encoder, decoder = architecture_of({"model_type": "bert"}), architecture_of({"model_type": "qwen3"})
    config = config_of("mlm")
    assert encoder.embedding(config) == "bert.embeddings.word_embeddings.weight"
    assert encoder.embedding(config_of("none")) == "embeddings.word_embeddings.weight"
    assert encoder.head(config) == "cls.predictions.decoder.weight"
    assert encoder.head(config_of("classification")) is None
    assert [encoder.class_name(config_of(case)) for case in CASES] == [name for name, _ in CASES.values()]
    assert decoder.head(None) == "lm_head.weight"
    with pytest.raises(WeightsError, match=r"model_type: None is not supported; supported: llama, mistral"):
        architecture_of({})
    assert encoder_of("classification").table(2, 0)[0].shape == (50, 32)
