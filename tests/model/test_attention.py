import pytest
import torch

from kitae.model.attention import attend, attention_mask, causal, fused

CPU = torch.device("cpu")


def inputs(batch, length, heads, groups, size=8, dtype=torch.float32):
    generator = torch.Generator().manual_seed(6)
    joint = torch.randn(batch, length, heads + 2 * groups, size, generator=generator, dtype=torch.float32)
    return [part.to(dtype).detach().requires_grad_() for part in joint.split((heads, groups, groups), 2)]


def plain(q, k, v, seen):
    """Expanded KV heads, all scores at once."""
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2).transpose(1, 2) for x in (k, v))
    scores = q.transpose(1, 2) @ k.mT / q.shape[-1] ** 0.5
    return (scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v).transpose(1, 2)


def documents(batch, length):
    """A different cut in every row, and padding at the end of the first."""
    segments = torch.stack([torch.arange(length) // (30 + 50 * row) + 1 for row in range(batch)])
    segments[0, -20:] = 0
    return segments


@pytest.mark.parametrize("window", [None, 1, 7, 200])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("length", [1, 127, 128, 300])
def test_blocks_give_what_the_plain_formula_gives(length, heads, groups, packed, window):
    """Output and all gradients, for lengths around a block, GQA, packed documents and windows."""
    tensors = inputs(2, length, heads, groups)
    segments = documents(2, length) if packed else None
    bias = attention_mask(segments, length, window, torch.float32, CPU)
    ours = attend(*tensors, bias, window)
    theirs = plain(*tensors, bias == 0)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    upstream = torch.randn(ours.shape, generator=torch.Generator().manual_seed(7))
    pairs = zip(*(torch.autograd.grad(one, tensors, upstream) for one in (ours, theirs)), strict=True)
    for gradient, expected in pairs:
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)


def test_bf16_takes_the_fused_call_with_booleans():
    tensors = inputs(2, 140, 4, 2, dtype=torch.bfloat16)
    seen = attention_mask(documents(2, 140), 140, 9, torch.bfloat16, CPU)
    assert seen.dtype == torch.bool
    exact = plain(*(x.float() for x in tensors), seen)
    torch.testing.assert_close(attend(*tensors, seen, 9).float(), exact, rtol=2e-2, atol=2e-2)


def test_plain_causal_rows_need_no_mask_outside_the_blocks():
    assert attention_mask(None, 64, None, torch.bfloat16, CPU) is None
    q, k, v = inputs(1, 64, 4, 2)
    index = torch.arange(64)
    expected = plain(q, k, v, causal(index, index, None))
    flag = fused(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), None).transpose(1, 2)
    torch.testing.assert_close(flag, expected, rtol=1e-5, atol=1e-5)


def test_windows_count_the_token_itself():
    index = torch.arange(4)
    assert causal(index, index, 2).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
