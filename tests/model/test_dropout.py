import numpy as np
import pytest
import torch
from tiny_encoders import reference, rows, same_in_kitae

from kitae.model.dropout import Draws, Keep, drop, keep_of_rows, keep_of_scores, keep_of_tokens
from kitae.model.encoder_attention import attend_all, visible


def draws(count, first=0, step=3, seed=1):
    return Draws(seed, step, torch.arange(first, first + count))


def mask_in_numpy(first, second, width):
    """The hash in plain unsigned numbers, [lines, width] uint16."""
    words = np.arange(-(-width // 2), dtype=np.uint64) * 0x9E3779B9
    x = (first.astype(np.uint64)[:, None] + words) & 0xFFFFFFFF
    key = second.astype(np.uint64)[:, None]
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (((x ^ (x >> np.uint64(shift))) * np.uint64(factor)) + key) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(16)
    halves = np.stack((x & np.uint64(0xFFFF), x >> np.uint64(16)), -1).reshape(len(first), -1)
    return halves[:, :width].astype(np.uint16)


@pytest.mark.parametrize("width", [1, 7, 64])
def test_the_hash_is_what_it_says(width):
    random = np.random.default_rng(0)
    first, second = random.integers(0, 1 << 32, (2, 500), dtype=np.uint64)
    signed = [
        torch.from_numpy(one.astype(np.uint32).view(np.int32).copy())[:, None] for one in (first, second)
    ]
    kept = Keep(*signed, width, 6554).mask()
    wanted = mask_in_numpy(first, second, width).view(np.int16) >= 6554 - 32768
    assert np.array_equal(kept.numpy(), wanted)


def test_masks_never_change():
    """The bits of a run must be the same on any machine and in any later version."""
    keys = draws(2, seed=0, step=0).keys(2, torch.device("cpu"))
    assert keys.tolist()[1] == [[KEYS[0], KEYS[1]], [KEYS[2], KEYS[3]]]
    kept = keep_of_tokens(keys[1], 3, 6, 0.3).mask()
    assert ["".join(map(str, row.int().tolist())) for row in kept] == LINES


KEYS = (960427175, -70618478, -1522216619, -1871555409)
LINES = ["000111", "101110", "101100", "001111", "111101", "001101"]


@pytest.mark.parametrize("probability", [0.1, 0.5, 1 / 65536])
def test_the_share_that_stays(probability):
    """Of 4 million within 5 standard deviations; what stays is scaled so that the mean stays, too."""
    keep = keep_of_tokens(draws(64).keys(1, torch.device("cpu"))[0], 256, 256, probability)
    kept = keep.mask()
    spread = (probability * (1 - probability) / kept.numel()) ** 0.5
    assert abs(kept.double().mean() - (1 - probability)) < 5 * spread
    assert abs((kept * keep.scale).double().mean() - 1) < 5 * spread / (1 - probability)


def test_masks_are_independent():
    """Of sites, rows, steps, seeds, tokens and neighbours: no pair agrees more often than by chance."""
    keys = draws(2).keys(3, torch.device("cpu"))
    other_step = draws(2, step=4).keys(3, torch.device("cpu"))
    other_seed = draws(2, seed=2).keys(3, torch.device("cpu"))
    base = keep_of_tokens(keys[1], 128, 128, 0.5).mask().double().view(2, 128, 128)
    others = [keep_of_tokens(one, 128, 128, 0.5).mask().double().view(2, 128, 128)
              for one in (keys[0], keys[2], other_step[1], other_seed[1])]  # fmt: skip
    pairs = [(base, one) for one in others]
    pairs += [(base[0], base[1]), (base[:, 1:], base[:, :-1]), (base[..., 1:], base[..., :-1])]
    pairs += [(base[..., ::2], base[..., 1::2]), (base, base.mT)]
    for one, other in pairs:
        agreement = ((one - 0.5) * (other - 0.5)).mean() * 4
        assert abs(agreement) < 5 / one.numel() ** 0.5


def test_rows_and_heads_are_keyed_by_their_numbers():
    """Row 5 is row 5 in any micro-batch, and head 3 is head 3 on any rank."""
    cpu = torch.device("cpu")
    whole = keep_of_scores(draws(6).keys(4, cpu)[2], range(4), 9, 0.3).mask()
    part = keep_of_scores(draws(2, first=4).keys(4, cpu)[2], range(2, 4), 9, 0.3).mask()
    assert whole.shape == (6, 4, 9, 9)
    assert torch.equal(whole[4:, 2:], part)
    tokens = keep_of_tokens(draws(6).keys(4, cpu)[1], 5, 8, 0.3)
    assert torch.equal(
        tokens.mask().view(6, 5, 8)[4:],
        keep_of_tokens(draws(2, first=4).keys(4, cpu)[1], 5, 8, 0.3).mask().view(2, 5, 8),
    )
    assert torch.equal(tokens.on(lambda one: one[7:21]).mask(), tokens.mask()[7:21])
    assert keep_of_rows(draws(6).keys(4, cpu)[3], 8, 0.0) is None
    assert keep_of_rows(draws(6).keys(4, cpu)[3], 8, 0.9999999).scale == 65536


@pytest.mark.parametrize("recompute", [False, True])
def test_drop_and_its_gradient(recompute):
    keep = keep_of_rows(draws(8).keys(1, torch.device("cpu"))[0], 16, 0.25)
    x = torch.randn(8, 16, requires_grad=True)
    drop(x, keep, recompute).square().sum().backward()
    factor = keep.mask() * (1 / 0.75)
    torch.testing.assert_close(x.grad, 2 * x.detach() * factor.square())
    assert drop(x, None) is x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("probability", [0.0, 0.3])
@pytest.mark.parametrize("rows_together", [1, 100])
def test_attention_is_that_of_plain_formulas(monkeypatch, dtype, probability, rows_together):
    """Output and gradient, with keys that are not seen, with and without dropped probabilities."""
    monkeypatch.setattr("kitae.model.encoder_attention._SCORES", rows_together * 2 * 7 * 7)
    qkv = torch.randn(3, 7, 3, 2, 8).to(dtype).requires_grad_()
    seen = visible(torch.tensor([7, 3, 0]), 7)
    keep = keep_of_scores(draws(3).keys(1, torch.device("cpu"))[0], range(2), 7, probability)
    upstream = torch.randn(3, 7, 2, 8).to(dtype)
    ours = attend_all(qkv, seen, keep, False)
    (gradient,) = torch.autograd.grad(ours, qkv, upstream)
    wide = qkv.detach().double().requires_grad_()
    q, k, v = wide.permute(2, 0, 3, 1, 4)
    scores = (q @ k.mT / 8**0.5).masked_fill(~seen[:, None, None], float("-inf"))
    factor = 1 if keep is None else keep.mask() * keep.scale
    plain = (scores.softmax(-1) * factor @ v).transpose(1, 2)
    (wanted,) = torch.autograd.grad(plain, wide, upstream.double())
    limit = 1e-5 if dtype == torch.float32 else 0.05
    assert (ours - plain).abs().max() < limit
    assert (gradient - wanted).abs().max() < limit
    assert (gradient[1, 3:, 1:] == 0).all(), "no gradient for keys and values that nobody sees"


def gradients_of(encoder, batch, given):
    encoder.zero_grad()
    hidden = encoder(*batch, given)
    encoder.class_logits(hidden, given).square().sum().backward()
    return {name: one.grad.clone() for name, one in encoder.named_parameters()}


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_micro_batches_and_recomputation_change_nothing(recompute):
    """The gradient of an update is the sum over any cut of its rows; recomputed, it has the same bits."""
    encoder = same_in_kitae(reference("classification"))
    batch = rows(4, 10)
    plain = gradients_of(encoder, batch, draws(4))
    encoder.recompute = recompute
    again = gradients_of(encoder, batch, draws(4))
    assert all(torch.equal(again[name], plain[name]) for name in plain)
    parts = [
        gradients_of(encoder, [one[at : at + size] for one in batch], draws(size, first=at))
        for at, size in ((0, 1), (1, 3))
    ]
    for name, wanted in plain.items():
        torch.testing.assert_close(parts[0][name] + parts[1][name], wanted, rtol=1e-5, atol=1e-5)


def test_what_is_dropped_follows_the_probabilities_of_the_config():
    """Nothing without draws, nor with probabilities of 0; each of the three alone changes the logits."""
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
    batch = rows(2, 8)
    with torch.no_grad():
        found = []
        for changed in ({}, *({name: 0.5} for name in none)):
            encoder = same_in_kitae(reference("classification", **{**none, **changed}))
            given = draws(2)
            found.append(encoder.class_logits(encoder(*batch, given), given))
            plain = encoder.class_logits(encoder(*batch))
        assert torch.equal(found[0], plain)
        assert all((one - plain).abs().max() > 1e-3 for one in found[1:])
