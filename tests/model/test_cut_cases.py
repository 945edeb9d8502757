"""What a cut must not get wrong, in real processes: heads, gates, vocabulary, documents, memory, autocast."""

import pytest
import torch
from cut_decoders import batch, decoder_of, full_gradients, loss_and_gradients, values
from ranks import run_ranks

from kitae.backend.group import Group
from kitae.errors import RecipeError, WeightsError
from kitae.parallel.region import UNCUT, region_of


def numbered_heads(name, shape):
    """Weights with which the final hidden states are, for each query head, the number of its KV head."""
    if name.endswith("o_proj.weight"):
        return torch.eye(*shape)
    if name.endswith("v_proj.bias"):
        return torch.tensor([1.0, 2.0]).repeat_interleave(4)
    return torch.full(shape, 1.0 if "norm" in name else 0.0)


def numbered_gates(name, shape):
    kinds = {"gate_proj": 1.0, "up_proj": 2.0}
    constant = [value for kind, value in kinds.items() if kind in name]
    return torch.full(shape, constant[0]) if constant else values(name, shape)


def heads_met(region):
    ids, places, segments, _ = batch()
    return decoder_of("qwen2-tied", region, numbered_heads, num_hidden_layers=1)(ids, places, segments)


def gates(region):
    ids, places, segments, _ = batch()
    decoder = decoder_of("llama", region, numbered_gates)
    return decoder.layers[1].mlp.gate_up.weight, decoder(ids, places, segments)


def vocabulary(region):
    ids, places, segments, _ = batch()
    decoder = decoder_of("llama", region)
    parts = region.group.all_gather(decoder.logits(decoder(ids, places, segments))[None])
    return decoder.head_weight, decoder.vocabulary.real, torch.cat(list(parts), -1)


def documents(region):
    """T22's two rows, which differ in the first document; the hidden states of both."""
    decoder = decoder_of("llama", region)
    places, segments = torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1]]), torch.tensor([[1, 1, 1, 2, 2, 2, 3, 3]])
    rows = (torch.tensor([[*first, 8, 9, 10, 7, 7]]) for first in ((5, 6, 7), (50, 60, 70)))
    return torch.stack([decoder.logits(decoder(row, places, segments))[0] for row in rows])


def memory(region):
    """Bytes that are saved for the backward pass, by what is recomputed."""
    decoder = decoder_of("llama", region)
    ids, places, segments, _ = batch()
    saved = {}
    for decoder.recompute in ("none", "selective"):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda one, k=kept: k.append(one), lambda none: none):
            decoder(ids, places, segments)
        storages = (tensor.untyped_storage() for tensor in kept)
        saved[decoder.recompute] = sum({one.data_ptr(): one.nbytes() for one in storages}.values())
    return saved


def collectives(region):
    """Calls and bytes of one step, by what is recomputed."""
    decoder, meter, used = decoder_of("llama", region), region.group.meter, {}
    for decoder.recompute in ("none", "selective", "full"):
        calls, bytes_in = meter.calls.copy(), meter.bytes_in.copy()
        loss_and_gradients(decoder)
        used[decoder.recompute] = dict(meter.calls - calls), dict(meter.bytes_in - bytes_in)
    return used


def autocast(region):
    decoder = decoder_of("qwen3", region)
    with torch.autocast("cpu", torch.bfloat16):
        return loss_and_gradients(decoder)


def refusals(region):
    """What a cut decoder says about tokens that do not share out."""
    decoder = decoder_of("llama", region)
    messages = []
    for length in (16, 9):
        try:
            decoder(torch.zeros(1, length, dtype=torch.long), torch.arange(length)[None])
        except RecipeError as error:
            messages.append(str(error))
    return messages


QUESTIONS = {
    2: (heads_met, gates, vocabulary, documents, memory, collectives, autocast, refusals),
    8: (heads_met, gates, vocabulary, documents),
}
CUTS = [(size, flag) for size in (2, 8) for flag in (False, True)]


def answers(mesh):
    """In a rank: what every question of its size gives, with and without sequence parallelism."""
    found = {}
    for flag in (False, True):
        region = region_of(mesh.tensor, flag)
        for question in QUESTIONS[mesh.tensor.size]:
            with torch.set_grad_enabled(question in (memory, collectives, autocast)):
                found[flag, question.__name__] = question(region)
    return found


@pytest.fixture(scope="module")
def by_size():
    return {size: run_ranks(size, answers, tp_size=size) for size in QUESTIONS}


@pytest.fixture(params=CUTS)
def cut(request, by_size):
    """(size, sequence parallel, question) to the ranks' answers."""
    size, flag = request.param
    return size, flag, lambda question: [one[flag, question.__name__] for one in by_size[size]]


def test_query_heads_meet_their_kv_heads(cut):
    """T04: 8 query heads, 2 KV heads: query head h meets KV head h // 4."""
    for hidden in cut[2](heads_met):
        met = hidden.view(2, 12, 8, 4) * 2.5**0.5  # the norm has divided by the root of the mean of 1 and 4
        wanted = torch.tensor([1.0] * 4 + [2.0] * 4).view(8, 1).expand(2, 12, 8, 4)
        torch.testing.assert_close(met, wanted, rtol=1e-4, atol=1e-4)


def test_every_rank_holds_half_gate_half_up(cut):
    """T10: gate is ones and up is twos, and each rank holds as much of both."""
    size, _, ranks = cut
    whole_hidden = gates(UNCUT)[1]
    for gate_up, hidden in ranks(gates):
        gate, up = gate_up.chunk(2)
        assert gate.shape == up.shape == (48 // size, 32)
        assert (gate == 1).all()
        assert (up == 2).all()
        torch.testing.assert_close(hidden, whole_hidden, rtol=1e-5, atol=1e-5)


def test_vocabulary_is_padded_inside(cut):
    """T12: 99 rows are 100 on 2 ranks and 104 on 8; the real ids' logits are those of the whole model."""
    size, _, ranks = cut
    wanted = vocabulary(UNCUT)[2][0]
    parts = ranks(vocabulary)
    assert sum(len(weight) for weight, *_ in parts) == {2: 100, 8: 104}[size]
    assert sum(real for _, real, _ in parts) == 99
    for weight, real, logits in parts:
        assert not weight[real:].any()
        torch.testing.assert_close(logits[0, ..., :99], wanted, rtol=1e-5, atol=1e-5)


def test_other_documents_change_logits_by_exactly_zero(cut):
    """T22: the second document does not see the first at all."""
    for one, two in cut[2](documents):
        assert (one[3:] - two[3:]).abs().max() == 0
        assert (one[:3] - two[:3]).abs().max() > 0.01


def test_sequence_parallelism_keeps_the_ranks_own_tokens_only(by_size):
    """What layers keep of hidden size is cut by the ranks; gathered tokens are not kept."""
    tokens, hidden, layers = 24, 32, 2
    inputs = (2 * layers + 1) * (hidden + 1)  # of every norm, with its scale
    saved = {"none": inputs + 2 * layers * hidden, "selective": inputs}
    for one in by_size[2]:
        for mode, units in saved.items():
            assert one[False, "memory"][mode] - one[True, "memory"][mode] == units * tokens // 2 * 4, mode


def test_what_the_ranks_exchange(by_size):
    """Two sums a layer each way, 21 targets in 3 chunks; `full` repeats all but a layer's last."""
    layers, states, loss = 2, 24 * 32 * 4, ({"all_reduce": 6}, {"all_reduce": 21 * 3 * 4})
    sums = {"none": 4 * layers + 2, "selective": 4 * layers + 2, "full": 5 * layers + 2}
    gathers = {"none": 6 * layers + 2, "selective": 6 * layers + 2, "full": 8 * layers + 2}
    for one in by_size[2]:
        for mode, count in sums.items():
            calls, bytes_in = one[False, "collectives"][mode]
            assert calls == {"all_reduce": count + loss[0]["all_reduce"]}
            assert bytes_in == {"all_reduce": count * states + loss[1]["all_reduce"]}
            calls, bytes_in = one[True, "collectives"][mode]
            shared = {"reduce_scatter": count * states, "all_gather": gathers[mode] * states // 2}
            assert calls == {"reduce_scatter": count, "all_gather": gathers[mode], **loss[0]}
            assert bytes_in == {**shared, **loss[1]}


@pytest.mark.parametrize("flag", [False, True])
def test_autocast(by_size, flag):
    """Products in bf16, the weights' gradients in fp32, near those in fp32."""
    loss, exact = loss_and_gradients(decoder_of("qwen3"))
    wanted = full_gradients([exact], "qwen3", 1, False)
    losses, gradients = zip(*(one[flag, "autocast"] for one in by_size[2]), strict=True)
    assert all(one.dtype == torch.float32 for part in gradients for one in part.values())
    assert abs(losses[0] - loss) < 0.01 * loss
    found = full_gradients(gradients, "qwen3", 2, flag)
    for name, gradient in wanted.items():
        assert (found[name] - gradient).norm() < 0.05 * gradient.norm(), name


@pytest.mark.parametrize("flag", [False, True])
def test_what_a_cut_decoder_cannot_do_is_said(by_size, flag):
    for uneven in (one[flag, "refusals"] for one in by_size[2]):
        assert len(uneven) == flag
        assert all("9 tokens (rows x length) do not share out evenly over 2" in one for one in uneven)


def test_heads_that_do_not_divide_are_named():
    with pytest.raises(WeightsError, match=r"o_proj.weight: 8 query heads .* tensor-parallel size 3"):
        decoder_of("llama", region_of(Group(ranks=(0, 1, 2)), False))
