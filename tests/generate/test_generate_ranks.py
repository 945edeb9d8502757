"""The same text on one rank and on several; two KV heads, so that four ranks hold copies."""

from pathlib import Path

import pytest
import torch
from ranks import run_ranks
from tiny_decoders import random_ids, reference
from transformers import AutoModelForCausalLM

from kitae.checkpoint.opened import open_weights
from kitae.generate.loop import Wish, continue_prompts
from kitae.generate.sampling import Sampler
from kitae.generate.weights import Keeping
from kitae.parallel.mesh import Mesh
from kitae.stages.text_model import open_network

CASES = ["llama3.1", "qwen3", "mistral-window"]
FIRST = CASES[0]
PROMPTS = [random_ids(count, seed=count).tolist() for count in (3, 21)]
WISHES = {
    "greedy": Wish(8, chunk=16),
    "drawn": Wish(8, sampler=Sampler(1.2, top_p=0.9, min_p=0.01, seed=4), samples=2),
}
HOT = Wish(6, sampler=Sampler(100.0, seed=5), samples=40)
NXD = Path(__file__).parents[1] / "fixtures" / "nxd"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folders of all cases; 99 ids, which no number of ranks divides."""
    place = tmp_path_factory.mktemp("models")
    for case in CASES:
        reference(case, seed=6).save_pretrained(place / case)
    return place


def answers(mesh, folder):
    """In a rank: the ids of every case and wish, and the bytes of the weights."""
    torch.set_num_threads(1)
    found = {}
    for case in CASES:
        network = open_network(open_weights(folder / case).model(), Keeping(), mesh)
        found[case, "bytes"] = network.weights.nbytes
        for name, wish in WISHES.items():
            found[case, name] = [one.ids for one in continue_prompts(network, PROMPTS, wish)]
    model = open_weights(folder / FIRST).model()
    hot = continue_prompts(open_network(model, Keeping(), mesh), PROMPTS[:1], HOT)
    int8 = open_network(model, Keeping(quantize="int8"), mesh)
    found["hot"] = [one.ids for one in hot]
    found["int8"] = [one.ids for one in continue_prompts(int8, PROMPTS, Wish(4))]
    found["int8 bytes"] = int8.weights.nbytes
    return found


@pytest.fixture(scope="module")
def alone(folder):
    return answers(Mesh(), folder)


@pytest.fixture(scope="module")
def cut(folder):
    return {size: run_ranks(size, answers, folder, tp_size=size) for size in (2, 4)}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_greedy_and_drawn_ids_are_those_of_one_rank(case, size, alone, cut):
    for rank in cut[size]:
        for name in WISHES:
            assert rank[case, name] == alone[case, name]


@pytest.mark.parametrize("case", CASES)
def test_greedy_ids_equal_those_of_transformers(case, alone):
    model = reference(case, seed=6)
    for prompt, ids in zip(PROMPTS, alone[case, "greedy"], strict=True):
        row = torch.tensor([prompt])
        found = model.generate(
            row, attention_mask=torch.ones_like(row), max_new_tokens=8, do_sample=False, pad_token_id=0
        )
        assert found[0, len(prompt) :].tolist() == ids


@pytest.mark.parametrize("size", [2, 4])
def test_rows_that_pad_the_vocabulary_are_never_drawn_at_temperature_100(size, alone, cut):
    """T-row of cases.md 20; 99 ids are 100 rows on 2 and on 4 ranks."""
    for rank in cut[size]:
        ids = [one for row in rank["hot"] for one in row]
        assert max(ids) < 99
        assert len(set(ids)) > 80
        assert rank["hot"] == alone["hot"]


@pytest.mark.parametrize("size", [2, 4])
def test_int8_scales_are_those_of_one_rank(size, alone, cut):
    """What several ranks hold columns of is rounded by the largest of them all."""
    for rank in cut[size]:
        assert rank["int8"] == alone["int8"]


def test_ranks_hold_their_part_alone(alone, cut):
    for case in CASES:
        parts = [rank[case, "bytes"] for rank in cut[2]]
        assert parts[0] == parts[1] < 0.62 * alone[case, "bytes"]
    assert all(rank["int8 bytes"] < 0.62 * alone["int8 bytes"] for rank in cut[2])


@pytest.mark.parametrize("name", ["qkv_kv2", "qkv_kv2_xser", "qkv_kv2_nxd_xser", "noqkv_tp2"])
def test_nxd_rank_files_are_read_without_a_conversion(name):
    """The ids that transformers gets from the folder that the rank files were made of."""
    prompt = [1, 2, 3, 60]
    network = open_network(open_weights(NXD / name, NXD / "hf").model(), Keeping())
    stock = AutoModelForCausalLM.from_pretrained(NXD / "hf", dtype=torch.float32)
    row = torch.tensor([prompt])
    found = stock.generate(
        row, attention_mask=torch.ones_like(row), max_new_tokens=16, do_sample=False, eos_token_id=None
    )
    assert continue_prompts(network, [prompt], Wish(16))[0].ids == found[0, 4:].tolist()
