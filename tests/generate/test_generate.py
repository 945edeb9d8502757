import pytest
import torch
from tiny_decoders import CASES, random_ids, reference, same_in_kitae

from kitae.errors import DataError, RecipeError, WeightsError
from kitae.generate import generate
from kitae.generate.cache import static_length
from kitae.generate.decoding import Decoding, padded_length
from kitae.generate.loop import Wish, continue_prompts
from kitae.generate.network import Network
from kitae.generate.sampling import Sampler
from kitae.generate.weights import live_weights

PROMPT = random_ids(12).tolist()
RAGGED = [random_ids(count, seed=count).tolist() for count in (1, 23, 9, 40)]


def network_of(decoder, dtype=torch.float32):
    weights = live_weights(dict(decoder.named_parameters()))
    return Network(decoder.config, weights, tied=decoder.tied, dtype=dtype)


def stock_tokens(model, prompts, count, **options):
    """What transformers generates greedily: rows padded on the left, with a mask."""
    longest = max(map(len, prompts))
    ids, mask = torch.zeros(len(prompts), longest, dtype=torch.long), torch.zeros(len(prompts), longest)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    found = model.generate(
        ids, attention_mask=mask.long(), max_new_tokens=count, do_sample=False, pad_token_id=0, **options
    )
    return found[:, longest:].tolist()


def without_cache(decoder, prompt, count):
    """The same tokens the slow way: the whole text through the model that trains, for each."""
    ids = list(prompt)
    for _ in range(count):
        row = torch.tensor([ids])
        with torch.no_grad():
            ids.append(int(decoder.logits(decoder(row, torch.arange(len(ids))[None])[0, -1]).argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("case", CASES)
def test_fifty_greedy_tokens_equal_those_of_transformers(case):
    """A ragged batch, prompts of several chunks, windows of 5 to 7 tokens long passed."""
    model = reference(case, seed=2)
    prompts = [PROMPT, *RAGGED]
    network = network_of(same_in_kitae(model))
    found = continue_prompts(network, prompts, Wish(50, chunk=16))
    assert [one.ids for one in found] == [stock_tokens(model, [prompt], 50)[0] for prompt in prompts]
    assert all(one.ended == "length" for one in found)


@pytest.mark.parametrize("case", ["llama3.1", "qwen3-window"])
def test_a_batch_equals_that_of_transformers(case):
    model = reference(case, seed=3)
    found = continue_prompts(network_of(same_in_kitae(model)), RAGGED, Wish(20))
    assert [one.ids for one in found] == stock_tokens(model, RAGGED, 20)


@pytest.mark.parametrize("case", ["llama3.1", "mistral-window", "qwen3-window"])
def test_cache_gives_what_the_whole_text_gives(case):
    decoder = same_in_kitae(reference(case))
    assert generate(decoder, PROMPT, 20) == without_cache(decoder, PROMPT, 20)


@pytest.mark.parametrize("case", ["llama3.1", "mistral-window", "qwen3"])
def test_bf16_chooses_what_is_likeliest_within_rounding(case):
    decoder = same_in_kitae(reference(case), torch.bfloat16)
    chosen = generate(decoder, PROMPT, 20)
    row = torch.tensor([PROMPT + chosen])
    with torch.no_grad():
        logits = decoder.logits(
            decoder(row, torch.arange(row.shape[1])[None])[0, len(PROMPT) - 1 : -1]
        ).float()
    short = logits.max(-1).values - logits.gather(1, torch.tensor(chosen)[:, None])[:, 0]
    assert short.max() < 0.05 * logits.std()


def test_penalty_is_that_of_transformers():
    model = reference("llama3", seed=4)
    theirs = stock_tokens(model, [PROMPT], 30, repetition_penalty=1.5)[0]
    assert generate(same_in_kitae(model), PROMPT, 30, repetition_penalty=1.5) == theirs
    assert generate(same_in_kitae(model), PROMPT, 30) != theirs


def test_samples_share_a_prompt_and_differ():
    network = network_of(same_in_kitae(reference("llama2")))
    wish = Wish(12, sampler=Sampler(1.5, seed=7), samples=3)
    together = [one.ids for one in continue_prompts(network, [PROMPT, RAGGED[1]], wish)]
    assert len({tuple(ids) for ids in together}) == 6
    alone = [one.ids for one in continue_prompts(network, [RAGGED[1]], wish)]
    assert together[3:] == alone
    single = continue_prompts(network, [PROMPT], Wish(12, sampler=wish.sampler))
    assert single[0].ids == together[0]


def test_it_stops_at_the_end_token():
    decoder = same_in_kitae(reference("llama2"))
    free = generate(decoder, PROMPT, 10)
    end = free[4]
    assert generate(decoder, PROMPT, 10, eos_ids=(end,)) == free[: free.index(end) + 1]
    assert generate(decoder, PROMPT, 1, eos_ids=(free[0],)) == free[:1]


def test_rows_of_a_batch_end_apart():
    network = network_of(same_in_kitae(reference("llama2")))
    free = [one.ids for one in continue_prompts(network, RAGGED, Wish(12))]
    end = free[1][3]
    found = continue_prompts(network, RAGGED, Wish(12, eos_ids={end}))
    for ids, one in zip(free, found, strict=True):
        assert one.ids == (ids[: ids.index(end) + 1] if end in ids else ids)
        assert one.ended == ("eos" if end in ids else "length")


def test_rows_that_have_ended_are_computed_no_longer_than_half_of_all_go_on(monkeypatch):
    """Each sample goes on as it would alone, whichever others end, also with what it has seen."""
    network = network_of(same_in_kitae(reference("llama2")))
    sizes, step = [], Decoding.step
    monkeypatch.setattr(Decoding, "step", lambda self, ids: sizes.append(len(ids)) or step(self, ids))
    ends, sampler = {2: 1, 5: 1, 0: 3, 7: 3, 3: 4, 6: 5, 1: 6}, Sampler(1.1, repetition_penalty=1.3, seed=2)
    wish = Wish(9, sampler=sampler, samples=2)
    free = [one.ids for one in continue_prompts(network, RAGGED, wish)]
    assert sizes == [8] * 8
    sizes.clear()
    counts = [0] * 8

    def taken(row, token):
        counts[row] += 1
        return counts[row] == ends.get(row)

    found = continue_prompts(network, RAGGED, wish, taken=taken)
    assert [one.ids for one in found] == [ids[: ends.get(row)] for row, ids in enumerate(free)]
    assert [one.ended for one in found] == ["length" if row == 4 else "stop" for row in range(8)]
    assert sizes == [8, 8, 4, 4, 2, 1, 1, 1]


def test_who_takes_a_token_can_end_its_row():
    network = network_of(same_in_kitae(reference("llama2")))
    heard = []

    def taken(row, token):
        heard.append((row, token))
        return row == 1 and len([one for one, _ in heard if one == 1]) == 3

    found = continue_prompts(network, RAGGED[:2], Wish(6), taken=taken)
    assert [(len(one.ids), one.ended) for one in found] == [(6, "length"), (3, "stop")]
    assert [token for row, token in heard if row == 0] == found[0].ids


def test_a_full_context_ends_the_row():
    network = network_of(same_in_kitae(reference("llama2")))
    long = random_ids(250).tolist()
    found = continue_prompts(network, [PROMPT, long], Wish(20))
    assert [(len(one.ids), one.ended) for one in found] == [(20, "length"), (6, "context")]
    assert found[0].ids == generate(same_in_kitae(reference("llama2")), PROMPT, 20)


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(1.0, top_p=0.9)])
def test_logits_that_are_no_numbers_are_told_of(sampler):
    """Weights of a training that diverged."""
    decoder = same_in_kitae(reference("llama2"))
    with torch.no_grad():
        decoder.norm.weight[0] = float("nan")
    with pytest.raises(WeightsError, match="the model gives NaN"):
        continue_prompts(network_of(decoder), [PROMPT], Wish(3, sampler=sampler))


def test_unknown_ids_are_never_chosen_even_where_they_are_likeliest():
    network = network_of(same_in_kitae(reference("llama2")))
    free = continue_prompts(network, [PROMPT], Wish(20))[0].ids
    known = torch.ones(99, dtype=torch.bool)
    known[free[0]] = known[90:] = False
    for sampler in (Sampler(), Sampler(100.0, seed=2)):
        ids = continue_prompts(network, [PROMPT], Wish(60, sampler=sampler, known=known))[0].ids
        assert known[ids].all()


def test_one_likely_token_is_greedy():
    decoder = same_in_kitae(reference("llama2"))
    greedy = generate(decoder, PROMPT, 20)
    for narrow in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        assert generate(decoder, PROMPT, 20, temperature=1.0, **narrow) == greedy


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"prompt_ids": []}, DataError, "the prompt has no tokens"),
        ({"prompt_ids": [1, 99]}, DataError, "token id 99, but the model has rows 0 to 98"),
        ({"prompt_ids": [-1]}, DataError, "token id -1"),
        ({"prompt_ids": [1] * 256}, DataError, "256 tokens, and the model has 256 positions"),
        ({"max_new_tokens": 0}, RecipeError, "max_new_tokens: 0"),
        ({"top_p": 1.5}, RecipeError, "top_p: 1.5"),
    ],
)
def test_what_makes_no_sense_is_named(changes, error, message):
    decoder = same_in_kitae(reference("llama2"))
    with pytest.raises(error, match=message):
        generate(decoder, **{"prompt_ids": PROMPT, "max_new_tokens": 5, **changes})


def test_there_are_few_lengths_and_none_is_much_too_long():
    lengths = {static_length(count) for count in range(1, 8193)}
    assert len(lengths) <= 36
    for count in range(1, 8193):
        length = static_length(count)
        assert count <= length <= max(8 * -(-count // 8), 1.25 * count)
        assert static_length(length) == length


def test_rows_are_padded_to_whole_chunks_behind_a_first_one():
    assert [padded_length(count, 64) for count in (1, 9, 63, 64, 65, 130)] == [8, 16, 64, 64, 72, 136]
