import pytest
import torch
from tiny_decoders import CASES, random_ids, reference, same_in_kitae

from kitae.errors import DataError, RecipeError
from kitae.generate import generate
from kitae.model.cache import KVCache

PROMPT = random_ids(12).tolist()


def without_cache(decoder, prompt, count, choose):
    """The same tokens the slow way: the whole text through the model for each."""
    ids = list(prompt)
    for number in range(count):
        row = torch.tensor([ids])
        with torch.no_grad():
            logits = decoder.logits(decoder(row, torch.arange(len(ids))[None])[0, -1])
        ids.append(choose(logits, number))
    return ids[len(prompt) :]


@pytest.mark.parametrize("case", CASES)
def test_fifty_greedy_tokens_equal_those_of_transformers(case):
    model = reference(case, seed=2)
    ids = torch.tensor([PROMPT])
    theirs = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=50, do_sample=False, pad_token_id=0
    )
    ours = generate(same_in_kitae(model), PROMPT, 50, eos_ids=())
    assert ours == theirs[0, len(PROMPT) :].tolist()
    assert len(ours) == 50


@pytest.mark.parametrize("case", ["llama3.1", "mistral-window", "qwen3-window"])
def test_cache_gives_what_the_whole_text_gives(case):
    decoder = same_in_kitae(reference(case))
    greedy = without_cache(decoder, PROMPT, 20, lambda logits, number: int(logits.argmax()))
    assert generate(decoder, PROMPT, 20, eos_ids=()) == greedy


@pytest.mark.parametrize("case", ["llama3.1", "mistral-window"])
def test_bf16_chooses_what_is_likeliest_within_rounding(case):
    decoder = same_in_kitae(reference(case), torch.bfloat16)
    chosen = generate(decoder, PROMPT, 20, eos_ids=())
    row = torch.tensor([PROMPT + chosen])
    with torch.no_grad():
        logits = decoder.logits(
            decoder(row, torch.arange(row.shape[1])[None])[0, len(PROMPT) - 1 : -1]
        ).float()
    short = logits.max(-1).values - logits.gather(1, torch.tensor(chosen)[:, None])[:, 0]
    assert short.max() < 0.05 * logits.std()


@pytest.mark.parametrize("case", ["llama2", "qwen2-window"])
def test_cached_hidden_states_equal_those_of_one_pass(case):
    """Filled in runs of 5, 1 and 150 tokens, with room to spare."""
    decoder = same_in_kitae(reference(case))
    ids = random_ids(2, 156)
    cache = KVCache(decoder.config, 2, 200, torch.float32, torch.device("cpu"))
    with torch.no_grad():
        whole = decoder(ids, torch.arange(156).expand_as(ids))
        parts = [
            decoder(part, cache.slots(part.shape[1]).expand_as(part), cache=cache)
            for part in ids.split([5, 1, 150], 1)
        ]
    assert cache.length == 156
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-5)


def test_it_stops_at_the_end_token():
    decoder = same_in_kitae(reference("llama2"))
    free = generate(decoder, PROMPT, 10, eos_ids=())
    end = free[4]
    assert generate(decoder, PROMPT, 10, eos_ids=(end,)) == free[: free.index(end) + 1]
    assert generate(decoder, PROMPT, 1, eos_ids=(free[0],)) == free[:1]


def test_sampling_depends_on_the_seed_only():
    decoder = same_in_kitae(reference("llama2"))
    sample = lambda seed: generate(decoder, PROMPT, 20, eos_ids=(), temperature=1.0, seed=seed)  # noqa: E731
    torch.manual_seed(1)
    first = sample(3)
    torch.manual_seed(2)
    assert sample(3) == first
    assert sample(4) != first


def test_one_likely_token_is_greedy():
    decoder = same_in_kitae(reference("llama2"))
    greedy = generate(decoder, PROMPT, 20, eos_ids=())
    assert generate(decoder, PROMPT, 20, eos_ids=(), temperature=1.0, top_k=1) == greedy
    assert generate(decoder, PROMPT, 20, eos_ids=(), temperature=1.0, top_p=1e-6) == greedy


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"prompt_ids": []}, DataError, "the prompt has no tokens"),
        ({"prompt_ids": [1, 99]}, DataError, "token id 99, but the model has rows 0 to 98"),
        ({"prompt_ids": [-1]}, DataError, "token id -1"),
        ({"max_new_tokens": 0}, RecipeError, "max_new_tokens: 0"),
        ({"temperature": -0.1}, RecipeError, "temperature: -0.1"),
        ({"top_k": 0}, RecipeError, "top_k: 0"),
        ({"top_p": 0.0}, RecipeError, "top_p: 0.0"),
        ({"top_p": 1.5}, RecipeError, "top_p: 1.5"),
    ],
)
def test_what_makes_no_sense_is_named(changes, error, message):
    decoder = same_in_kitae(reference("llama2"))
    with pytest.raises(error, match=message):
        generate(decoder, **{"prompt_ids": PROMPT, "max_new_tokens": 5, "eos_ids": (), **changes})
