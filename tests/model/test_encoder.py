import pytest
import torch
from tiny_encoders import CASES, attention_mask, reference, rows, same_in_kitae

from kitae.errors import RecipeError, WeightsError
from kitae.model.encoder_config import EncoderConfig


def outputs(encoder, ids, types, lengths):
    """Every output that the encoder has: hidden states at real tokens, and the logits of its heads."""
    hidden = encoder(ids, types, lengths)
    real = attention_mask(ids, lengths).bool()
    found = {"hidden": hidden[real]}
    if encoder.head is not None:
        found["tokens"] = encoder.token_logits(hidden)[real]
    if encoder.pair is not None:
        found["pair"] = encoder.pair_logits(hidden)
    if encoder.classifier is not None:
        found["class"] = encoder.class_logits(hidden)
    return found


def reference_outputs(model, ids, types, lengths):
    mask = attention_mask(ids, lengths)
    out = model(ids, attention_mask=mask, token_type_ids=types, output_hidden_states=True)
    found = {"hidden": out.hidden_states[-1][mask.bool()]}
    for name, field in (
        ("tokens", "prediction_logits"),
        ("pair", "seq_relationship_logits"),
        ("class", "logits"),
    ):
        if hasattr(out, field):
            found[name] = out[field]
    if "class" in found and found["class"].dim() == 3:
        found["tokens"] = found.pop("class")
    if "tokens" in found:
        found["tokens"] = found["tokens"][mask.bool()]
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("count", "length"), [(1, 1), (3, 40), (2, 150)])
def test_outputs_equal_those_of_transformers(case, count, length):
    """fp32, at most 1e-5 apart: hidden states and every head, with token types and padding."""
    model = reference(case)
    batch = rows(count, length, types=model.config.type_vocab_size)
    with torch.no_grad():
        ours = outputs(same_in_kitae(model), *batch)
        theirs = reference_outputs(model, *batch)
    assert ours.keys() == theirs.keys()
    for name, wanted in theirs.items():
        assert wanted.std(correction=0) > 0.05, name
        torch.testing.assert_close(ours[name], wanted, rtol=0, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("case", CASES)
def test_parameters_are_those_of_the_layout_table_and_of_transformers(case):
    """Each parameter of transformers is a piece of one of ours, in the order of named_parameters()."""
    model = reference(case)
    encoder = same_in_kitae(model)
    declared = [(layout.name, layout.shape) for layout in encoder.layouts]
    assert declared == [(name, tuple(one.shape)) for name, one in encoder.named_parameters()]
    pieces = [piece.tensor for layout in encoder.layouts for piece in layout.pieces]
    assert len(pieces) == len(set(pieces))
    assert set(pieces) == {name for name, _ in model.named_parameters()}


def test_predictions_are_the_token_logits_at_their_positions():
    model = reference("mlm")
    encoder = same_in_kitae(model)
    ids, types, lengths = rows(3, 20)
    positions = torch.tensor([[4, 0, 19], [1, 1, 2], [0, 0, 0]])
    with torch.no_grad():
        hidden = encoder(ids, types, lengths)
        chosen = encoder.predictions(hidden, positions) @ encoder.head_weight.T + encoder.head_bias
        every = encoder.token_logits(hidden)
    wanted = torch.stack([every[row, place] for row in range(3) for place in positions[row]])
    assert chosen.shape == (9, 99)
    torch.testing.assert_close(chosen, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", ["pretraining", "classification"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_gradients_equal_those_of_transformers(case, recompute):
    """Every parameter's gradient, through the written-out backward passes."""
    model = reference(case)
    encoder = same_in_kitae(model)
    encoder.recompute = recompute
    batch = rows(3, 24)
    loss_of(outputs(encoder, *batch)).backward()
    loss_of(reference_outputs(model, *batch)).backward()
    theirs = {name: parameter.grad for name, parameter in model.named_parameters()}
    ours = dict(encoder.named_parameters())
    for layout in encoder.layouts:
        sizes = [piece.local_shape[0] for piece in layout.pieces]
        for piece, gradient in zip(layout.pieces, ours[layout.name].grad.split(sizes), strict=True):
            wanted = theirs[piece.tensor]
            assert (gradient - wanted).abs().max() <= 1e-5 * max(1e-2, wanted.abs().max()), piece.tensor


def loss_of(found):
    """A number that depends on all outputs, with other weights for each element."""
    return sum((one * torch.linspace(0.1, 1, one.numel()).view(one.shape)).mean() for one in found.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_fully_padded_row_is_finite_and_changes_nothing(dtype):
    """T47: a row of length 0 beside others: finite, no gradient from it, the others' bits as without it."""
    encoder = same_in_kitae(reference("classification"), dtype)
    ids, types, lengths = rows(2, 16)
    padded = [torch.cat((one, torch.zeros_like(one[:1]))) for one in (ids, types)]
    with_padding = encoder.class_logits(
        encoder(*padded, torch.cat((lengths, torch.zeros(1, dtype=torch.long))))
    )
    assert with_padding.isfinite().all()
    with_padding[:2].square().sum().backward()
    gradients = {name: one.grad.clone() for name, one in encoder.named_parameters()}
    assert all(one.isfinite().all() for one in gradients.values())
    encoder.zero_grad()
    alone = encoder.class_logits(encoder(ids, types, lengths))
    alone.square().sum().backward()
    tolerance = {"rtol": 0, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.05}
    torch.testing.assert_close(with_padding[:2], alone, **tolerance)
    for name, parameter in encoder.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, **tolerance)


def test_what_stands_at_padding_changes_nothing():
    encoder = same_in_kitae(reference("pretraining"))
    ids, types, lengths = rows(3, 30)
    hole = ~attention_mask(ids, lengths).bool()
    with torch.no_grad():
        before = outputs(encoder, ids, types, lengths)
        after = outputs(encoder, ids.masked_fill(hole, 7), types.masked_fill(hole, 0), lengths)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_rows_longer_than_the_positions_are_refused():
    encoder = same_in_kitae(reference("none"))
    with pytest.raises(RecipeError, match=r"data.sequence_length: 161 tokens .* 160 positions"):
        encoder(*rows(1, 161))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "gelu_new"}, r"hidden_act: 'gelu_new' is not supported; supported: 'gelu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type: 'relative_key'"),
        ({"is_decoder": True}, "is_decoder: True"),
        ({"problem_type": "regression"}, "problem_type: 'regression'"),
        ({"architectures": ["BertForQuestionAnswering"]}, "BertForQuestionAnswering.*BertForMaskedLM"),
        ({"num_attention_heads": 5}, "hidden_size: 32 is no multiple of num_attention_heads"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob: 1.0"),
        ({"layer_norm_eps": "small"}, "layer_norm_eps: 'small' where a number"),
        ({"hidden_size": None}, "hidden_size is missing"),
    ],
)
def test_unsupported_configurations_name_the_field(changes, message):
    config = {**reference("none").config.to_dict(), **changes}
    with pytest.raises(WeightsError, match=message):
        EncoderConfig.from_hf(config)


def test_configuration_takes_the_defaults_of_transformers():
    """A minimal config.json, as old BERT folders have it."""
    config = EncoderConfig.from_hf(
        {
            "model_type": "bert",
            "vocab_size": 10,
            "hidden_size": 8,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "classifier_dropout": None,
            "hidden_dropout_prob": 0.2,
        }
    )
    assert (config.head, config.pooler, config.num_labels) == ("none", True, 2)
    assert (config.max_position_embeddings, config.type_vocab_size) == (512, 2)
    assert config.layer_norm_eps == 1e-12
    assert (config.hidden_dropout, config.attention_dropout, config.classifier_dropout) == (0.2, 0.1, 0.2)
