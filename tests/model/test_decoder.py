import pytest
import torch
from tiny_decoders import CASES, positions, random_ids, reference, same_in_kitae

from kitae.model.config import DecoderConfig
from kitae.model.decoder import Decoder


@pytest.mark.parametrize("case", CASES)
def test_parameters_are_those_of_the_layout_table(case):
    decoder = same_in_kitae(reference(case))
    declared = [(layout.name, layout.shape) for layout in decoder.layouts]
    assert declared == [(name, tuple(parameter.shape)) for name, parameter in decoder.named_parameters()]


def test_every_tensor_of_transformers_is_declared_once():
    for case in CASES:
        model = reference(case)
        decoder = same_in_kitae(model)
        declared = [piece.tensor for layout in decoder.layouts for piece in layout.pieces]
        names = {name for name, _ in model.named_parameters()}
        assert len(declared) == len(set(declared))
        assert set(declared) == names


def test_tied_is_decided_by_the_caller_not_by_the_config():
    """T02: a head of its own is kept although the configuration says that it is tied."""
    config = DecoderConfig.from_hf(reference("smollm2").config.to_dict())
    assert config.tie_word_embeddings
    untied, tied = Decoder(config, tied=False), Decoder(config, tied=True)
    assert untied.head_weight is dict(untied.named_parameters())["head.weight"]
    assert tied.head_weight is tied.embed.weight
    assert "head.weight" not in dict(tied.named_parameters())


def test_other_documents_change_logits_by_exactly_zero():
    """T22: positions 0,1,2,0,1,2; the second document does not see the first at all."""
    decoder = same_in_kitae(reference("llama3"))
    first = torch.tensor([[5, 6, 7, 8, 9, 10]])
    second = torch.tensor([[50, 60, 70, 8, 9, 10]])
    places = torch.tensor([[0, 1, 2, 0, 1, 2]])
    segments = torch.tensor([[1, 1, 1, 2, 2, 2]])
    one, two = (decoder.logits(decoder(ids, places, segments))[0] for ids in (first, second))
    assert (one[3:] - two[3:]).abs().max() == 0
    assert (one[:3] - two[:3]).abs().max() > 0.01
    crossing = [decoder(ids, places, torch.ones_like(segments))[0, 3:] for ids in (first, second)]
    assert (crossing[0] - crossing[1]).abs().max() > 0.01


def test_long_documents_see_nothing_of_the_one_before():
    """T22 where whole runs of keys are masked: a change far back changes nothing, nothing is NaN."""
    decoder = same_in_kitae(reference("llama3"))
    ids = random_ids(1, 1300)
    changed = ids.clone()
    changed[:, :650] = random_ids(1, 650, seed=9)
    segments = (torch.arange(1300) >= 650).long()[None] + 1
    with torch.no_grad():
        one, two = (decoder(x, positions(ids), segments) for x in (ids, changed))
    assert one.isfinite().all()
    assert torch.equal(one[:, 650:], two[:, 650:])


def test_windows_hide_what_is_further_back():
    """In one layer with a window of 7, token t is changed by tokens t-6 to t only."""
    config = {**reference("mistral-window").config.to_dict(), "num_hidden_layers": 1}
    decoder = Decoder(DecoderConfig.from_hf(config), tied=True)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.normal_()
    ids = random_ids(1, 300)
    changed = ids.clone()
    changed[0, 130] = (ids[0, 130] + 1) % 99
    with torch.no_grad():
        different = (decoder(ids, positions(ids)) != decoder(changed, positions(ids))).any(-1)[0]
    assert different.nonzero().flatten().tolist() == list(range(130, 137))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_is_finite_and_gives_no_gradient(dtype):
    """T47: a fully padded row, and padding behind a document, are finite and add no gradient."""
    decoder = same_in_kitae(reference("llama3.1"), dtype)
    ids = random_ids(3, 30, vocab_size=98)
    ids[2] = 98
    segments = torch.ones_like(ids)
    segments[1, 12:] = 0
    segments[2] = 0
    gradients = []
    for rows in (2, 3):
        decoder.zero_grad()
        hidden = decoder(ids[:rows], positions(ids[:rows]), segments[:rows])
        assert hidden.isfinite().all()
        real = (segments[:rows] > 0).unsqueeze(-1)
        (decoder.logits(hidden).float() * real).square().sum().backward()
        assert (decoder.embed.weight.grad[98] == 0).all()
        gradients.append([parameter.grad.clone() for parameter in decoder.parameters()])
    for without, padded in zip(*gradients, strict=True):
        assert padded.isfinite().all()
        torch.testing.assert_close(padded, without, rtol=1e-5 if dtype == torch.float32 else 1e-2, atol=1e-4)


def test_bf16_stays_near_fp32():
    model = reference("llama3.1")
    ids = random_ids(2, 50)
    with torch.no_grad():
        exact = same_in_kitae(model).logits(same_in_kitae(model)(ids, positions(ids)))
        decoder = same_in_kitae(model, torch.bfloat16)
        rounded = decoder.logits(decoder(ids, positions(ids)))
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).norm() / exact.norm() < 0.02


def test_no_step_looks_at_values():
    """Forward and backward run on tensors without data, so a lazy compiler can trace them, in every mode."""
    config = DecoderConfig.from_hf(reference("qwen3-window").config.to_dict())
    decoder = Decoder(config, tied=True, device="meta")
    ids = torch.zeros(2, 140, dtype=torch.long, device="meta")
    for decoder.recompute in ("none", "selective", "full"):
        decoder.zero_grad()
        decoder.logits(decoder(ids, ids, ids)).sum().backward()
        assert all(parameter.grad.shape == parameter.shape for parameter in decoder.parameters())
