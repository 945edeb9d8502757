"""Tasks of lm-evaluation-harness: kitae's side by itself, and through the harness where it is installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from job_case import kitae
from tiny_language import write_language_model
from transformers import AutoModelForCausalLM

from kitae.stages import harness
from kitae.stages.text_model import Opening, open_text_model

TASK = """
task: tiny_words
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: answer
metric_list: [{{metric: acc}}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("model") / "tiny", initializer_range=0.4)


@pytest.fixture(scope="module")
def model(folder: Path):
    return open_text_model(Opening(str(folder)))


def stock_score(folder: Path, context: list[int], rest: list[int]) -> tuple[float, bool]:
    stock = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        logits = stock(torch.tensor([(context + rest)[:-1]])).logits[0, -len(rest) :].log_softmax(-1)
    wanted = torch.tensor(rest)
    return float(logits.gather(1, wanted[:, None]).sum()), bool((logits.argmax(-1) == wanted).all())


def test_continuations_are_judged_as_transformers_does(model, folder):
    pairs = [([5, 6, 7], [8, 9]), ([5], [6]), (list(range(40)), list(range(30)))]
    found = list(harness.judged(model, pairs))
    for (context, rest), one in zip(pairs[:2], found[:2], strict=True):
        loglikelihood, greedy = stock_score(folder, context, rest)
        assert -one.nats == pytest.approx(loglikelihood, abs=1e-4)
        assert one.greedy == greedy
    # 70 tokens in a model of 64 positions: the context's beginning is cut off, no continuation is.
    assert found[2].tokens == 30
    assert -found[2].nats == pytest.approx(
        stock_score(folder, list(range(5, 40)), list(range(30)))[0], abs=1e-3
    )


def test_a_greedy_continuation_is_known_as_one(model):
    ids = harness.encoded(model, "The quick", None)
    answer = harness.answered(model, "The quick", {"until": [], "max_gen_toks": 5})
    rest = harness.encoded(model, "The quick" + answer, None)[len(ids) :]
    (one,) = harness.judged(model, [(ids, rest)])
    assert len(rest) > 0
    assert isinstance(one.greedy, bool)


def test_a_whole_text_is_judged_from_its_first_token_on(model, folder):
    text = "The quick brown fox."
    ids = harness.encoded(model, text, False)
    begin = model.words.tokenizer.bos_id
    assert harness.rolled(model, text) == pytest.approx(stock_score(folder, [begin], ids)[0], abs=1e-4)


def test_answers_end_before_what_they_are_to_stop_at(model):
    free = harness.answered(model, "The quick", {"max_gen_toks": 20, "until": "never there"})
    stop = free[3:6]
    assert (
        harness.answered(model, "The quick", {"max_gen_toks": 20, "until": [stop]}) == free.partition(stop)[0]
    )


def test_without_the_harness_it_is_said_what_to_install(
    folder: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert kitae("eval", folder, "--tasks", "arc_easy") == 2
    assert "pip install 'kitae[eval]'" in capsys.readouterr().err


def test_a_task_of_a_folder_through_the_harness(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("lm_eval")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    rows = [
        {"question": "The quick brown", "choices": [" fox", " text", " time"], "answer": number % 3}
        for number in range(6)
    ]
    data = tmp_path / "rows.json"
    data.write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "tiny.yaml").write_text(TASK.format(file=data))
    words = ("--tasks", "tiny_words", "--tasks-folder", tmp_path / "tasks")
    assert kitae("eval", folder, *words, "--json") == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    # Whichever choice is likeliest, it is the answer of two rows out of six.
    assert found["results"]["tiny_words"]["acc,none"] == pytest.approx(1 / 3)
    assert kitae("eval", folder, "--tasks", "no_such_task", "--tasks-folder", tmp_path / "tasks") == 2
    assert "no_such_task is not known to lm-evaluation-harness" in capsys.readouterr().err
