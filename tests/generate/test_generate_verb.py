"""`kitae generate` as a person calls it, with a tiny model and a real tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from job_case import kitae
from tiny_language import VOCABULARY, write_language_model
from tiny_tokenizer import train_backend
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from kitae.backend.table import default_name
from kitae.backend.xla import XlaBackend
from kitae.generate.loop import _Rows
from kitae.stages.text_model import Opening

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with a tokenizer, without a chat template."""
    return write_language_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "tiny"))


def generated(capsys: pytest.CaptureFixture, folder: Path, *words: str) -> list[dict]:
    assert kitae("generate", folder, "--json", *words) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def failed(capsys: pytest.CaptureFixture, code: int, *words: object) -> str:
    assert kitae("generate", *words) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert len(lines) == 1
    return lines[0]


def test_the_prompt_and_what_follows_it(made: Path, capsys: pytest.CaptureFixture):
    (one,) = generated(capsys, made, "--prompt", "The quick", "--max-new-tokens", "9")
    assert one.keys() == {"prompt", "sample", "input", "text", "tokens", "ended", "ids"}
    assert (one["prompt"], one["sample"], one["input"]) == (0, 0, "The quick")
    assert (one["tokens"], one["ended"]) == (len(one["ids"]), "length")
    assert kitae("generate", made, "--prompt", "The quick", "--max-new-tokens", "9") == 0
    shown = capsys.readouterr()
    assert shown.out == f"The quick{one['text']}\n"
    assert "9 tokens; the first after" in shown.err
    assert "tokens/s" in shown.err


def test_a_stream_is_the_same_text_in_pieces(made: Path, capsys: pytest.CaptureFixture):
    words = ("--prompt", "Gravity", "--temperature", "1.5", "--seed", "3")
    (whole,) = generated(capsys, made, *words)
    *pieces, last = generated(capsys, made, *words, "--stream")
    assert "".join(one["piece"] for one in pieces) == whole["text"] == last["text"]
    assert last["ids"] == whole["ids"]
    assert kitae("generate", made, *words, "--stream") == 0
    assert capsys.readouterr().out == f"Gravity{whole['text']}\n"


def test_samples_and_prompts_are_told_apart(made: Path, capsys: pytest.CaptureFixture):
    words = ("--prompt", "a", "--prompt", "The lazy dog", "--num", "2", "--temperature", "1", "--seed", "1")
    found = generated(capsys, made, *words)
    assert [(one["prompt"], one["sample"]) for one in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len({tuple(one["ids"]) for one in found}) == 4
    assert [one["ids"] for one in generated(capsys, made, *words, "--batch-size", "1")] == [
        one["ids"] for one in found
    ]
    assert kitae("generate", made, *words) == 0
    shown = capsys.readouterr().out
    for place in ("prompt 1, sample 1", "prompt 1, sample 2", "prompt 2, sample 1", "prompt 2, sample 2"):
        assert f"--- {place}\n" in shown


def test_prompts_of_a_file(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / "prompts.jsonl").write_text('{"ask": "one"}\n{"ask": "two"}\n')
    found = generated(capsys, made, "--file", str(tmp_path / "prompts.jsonl"), "--text-field", "ask")
    assert [one["input"] for one in found] == ["one", "two"]


def test_ids_without_a_token_are_never_drawn(made: Path, capsys: pytest.CaptureFixture):
    """T-row of cases.md 20: the embedding has 420 rows, the tokenizer fewer tokens; at temperature 100."""
    tokens = train_backend().get_vocab_size()
    words = ("--prompt", "a", "--num", "40", "--temperature", "100", "--max-new-tokens", "30")
    ids = {token for one in generated(capsys, made, *words) for token in one["ids"]}
    assert max(ids) < tokens < VOCABULARY
    assert len(ids) > 0.9 * tokens


def test_a_stop_text_is_not_shown(made: Path, capsys: pytest.CaptureFixture):
    words = ("--prompt", "The quick", "--temperature", "2", "--seed", "8")
    (free,) = generated(capsys, made, *words)
    stop = free["text"][6:9]
    (cut,) = generated(capsys, made, *words, "--stop", stop, "--stop", "never there")
    assert cut["ended"] == "stop"
    assert cut["text"] == free["text"].partition(stop)[0]
    assert cut["tokens"] < free["tokens"]


def test_a_full_context_ends_the_text(made: Path, capsys: pytest.CaptureFixture):
    (one,) = generated(capsys, made, "--prompt", "a" * 40, "--max-new-tokens", "500", "--stop", "\x00")
    assert one["ended"] in ("context", "eos")
    assert one["tokens"] <= 64


def test_an_end_token_is_no_text(made: Path, capsys: pytest.CaptureFixture):
    words = ("--prompt", "a", "--num", "60", "--temperature", "9", "--max-new-tokens", "60")
    ended = [one for one in generated(capsys, made, *words) if one["ended"] == "eos"]
    assert ended
    assert all(one["ids"][-1] == 1 and "<e>" not in one["text"] for one in ended)


def test_end_tokens_of_the_generation_config_count_too(folder: Path, capsys: pytest.CaptureFixture):
    (free,) = generated(capsys, folder, "--prompt", "The quick")
    end = free["ids"][5]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, end]}))
    (one,) = generated(capsys, folder, "--prompt", "The quick")
    assert (one["ended"], one["ids"][-1]) == ("eos", end)
    assert one["tokens"] <= 6


def test_a_message_is_written_by_the_chat_template(folder: Path, capsys: pytest.CaptureFixture):
    """The template writes the begin token itself: it is not doubled."""
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (said,) = generated(capsys, folder, "--prompt", "Hello")
    (plain,) = generated(capsys, folder, "--prompt", "Hello", "--no-chat")
    (by_hand,) = generated(capsys, folder, "--no-chat", "--prompt", "<b><user>Hello<assistant>")
    assert said["ids"] == by_hand["ids"] != plain["ids"]
    assert kitae("generate", folder, "--prompt", "Hello") == 0
    shown = capsys.readouterr()
    assert shown.out == said["text"] + "\n"
    assert "the prompt is a message, by the tokenizer's chat template" in shown.err


def test_a_template_may_stand_in_the_tokenizers_settings(folder: Path, capsys: pytest.CaptureFixture):
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    wanted = generated(capsys, folder, "--prompt", "Hello")
    (folder / "chat_template.jinja").unlink()
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    for template in (
        TEMPLATE,
        [{"name": "tools", "template": "x"}, {"name": "default", "template": TEMPLATE}],
    ):
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": template}))
        assert generated(capsys, folder, "--prompt", "Hello") == wanted


def test_int8_and_bf16(made: Path, capsys: pytest.CaptureFixture):
    for words in (("--quantize", "int8"), ("--dtype", "bf16"), ("--quantize", "int8", "--dtype", "bf16")):
        (one,) = generated(capsys, made, "--prompt", "The quick", *words)
        assert one["tokens"] == len(one["ids"]) > 0


def test_an_interrupt_keeps_what_is_there(
    made: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Ctrl-C while streaming: the line is ended, the pace told, and the exit code is that of an interrupt."""
    (free,) = generated(capsys, made, "--prompt", "The quick")
    take, calls = _Rows.take, []

    def interrupted(rows: _Rows, logits: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return take(rows, logits)

    monkeypatch.setattr(_Rows, "take", interrupted)
    assert kitae("generate", made, "--prompt", "The quick", "--stream") == 130
    shown = capsys.readouterr()
    assert f"The quick{free['text']}".startswith(shown.out.rstrip("\n"))
    assert shown.out.endswith("\n")
    assert shown.err.splitlines()[0].startswith("5 tokens; ")
    assert shown.err.splitlines()[1] == "interrupted"
    calls.clear()
    assert kitae("generate", made, "--prompt", "The quick", "--stream", "--json") == 130
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["ended"], last["tokens"], last["ids"]) == ("interrupted", 5, free["ids"][:5])
    assert free["text"].startswith(last["text"])
    calls.clear()
    assert kitae("generate", made, "--prompt", "The quick") == 130
    assert capsys.readouterr().out == f"The quick{last['text']}\n"


def test_an_interrupt_leaves_texts_that_had_ended_as_they_ended(
    folder: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    (free,) = generated(capsys, folder, "--prompt", "The quick")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": free["ids"][0]}))
    take, calls = _Rows.take, []

    def interrupted(rows: _Rows, logits: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return take(rows, logits)

    monkeypatch.setattr(_Rows, "take", interrupted)
    assert kitae("generate", folder, "--json", "--prompt", "The quick", "--prompt", "a") == 130
    first, second = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (first["input"], first["ended"], first["tokens"]) == ("The quick", "eos", 1)
    assert (second["input"], second["ended"], second["tokens"]) == ("a", "interrupted", 3)


def test_memory_that_is_refused_is_told_of(
    made: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def refused(rows: _Rows, logits: torch.Tensor) -> torch.Tensor:
        return torch.empty(1 << 60)

    monkeypatch.setattr(_Rows, "take", refused)
    assert "not enough memory for 6 texts at once; lower --batch-size, --num" in failed(
        capsys, 2, made, "--prompt", "a", "--prompt", "b", "--num", "3"
    )


def test_a_closed_standard_output_is_no_bug(
    made: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdout", None)
    assert kitae("generate", made, "--prompt", "a", "--max-new-tokens", "2") == 0


def test_a_machine_that_compiles_each_shape_is_only_taken_when_it_is_named(
    made: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """A Trainium is one process' alone, and would compile every length: a text there is asked for."""
    monkeypatch.setattr(XlaBackend, "unasked", classmethod(lambda cls: True))
    monkeypatch.setattr(XlaBackend, "unavailable", classmethod(lambda cls: None))
    monkeypatch.setattr(XlaBackend, "__init__", lambda self: pytest.fail("taken"))
    assert default_name() == "xla"
    assert Opening(str(made)).backend_name() == "cpu"
    assert Opening(str(made), backend="xla").backend_name() == "xla"
    assert kitae("generate", made, "--prompt", "a", "--max-new-tokens", "2") == 0
    capsys.readouterr()
    monkeypatch.setattr(XlaBackend, "unavailable", classmethod(lambda cls: "it is not there"))
    assert "backend 'xla' cannot be used: it is not there" in failed(
        capsys, 2, made, "--prompt", "a", "--backend", "xla"
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "give the prompts with --prompt, or a file of them with --file, and not both"),
        (["--prompt", "a", "--file", "b"], 2, "and not both"),
        (["--prompt", ""], 3, "prompt '': the prompt has no tokens; give at least one character"),
        (["--prompt", "a " * 90], 3, "tokens, and the model has 64 positions (max_position_embeddings)"),
        (["--prompt", "a", "--max-new-tokens", "0"], 2, "max_new_tokens: 0 where"),
        (["--prompt", "a", "--num", "0"], 2, "num: 0 where"),
        (
            ["--prompt", "a", "--temperature", "-1"],
            2,
            "temperature: -1.0 where it must be 0 (greedy) or more",
        ),
        (["--prompt", "a", "--min-p", "2"], 2, "min_p: 2.0 where"),
        (["--prompt", "a", "--stop", ""], 2, "--stop: an empty text is in every text"),
        (["--prompt", "a", "--num", "2", "--stream"], 2, "--stream: 2 texts at once would be mixed"),
        (["--prompt", "a", "--chat"], 2, "--chat: the tokenizer in"),
        (["--prompt", "a", "--tp", "3"], 2, "--tp 3 does not fit this model of 4 heads and 2 KV heads; up"),
        (["--prompt", "a", "--tokenizer", "nothere"], 3, "--tokenizer: "),
        (["--prompt", "a", "--config", "nothere"], 4, "--config: "),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    made: Path, capsys: pytest.CaptureFixture, words: list[str], code: int, message: str
):
    assert message in failed(capsys, code, made, *words)


def test_what_is_broken_or_missing_is_named(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    ask = ("--prompt", "a")
    assert "does not exist" in failed(capsys, 4, tmp_path / "nothere", *ask)
    template = folder / "chat_template.jinja"
    template.write_text("{{ raise_exception('no') }}")
    assert "the chat template fails: no; use --no-chat" in failed(capsys, 3, folder, *ask)
    template.unlink()
    (folder / "tokenizer_config.json").write_text("{")
    assert "not valid JSON" in failed(capsys, 3, folder, *ask)
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer.json").write_text("{}")
    assert "not a tokenizer that `tokenizers` can read" in failed(capsys, 3, folder, *ask)
    (folder / "tokenizer.json").unlink()
    assert "there is no tokenizer beside the weights; name its folder with --tokenizer" in failed(
        capsys, 3, folder, *ask
    )
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    assert "model.safetensors" in failed(capsys, 4, folder, *ask)


def test_a_token_that_the_model_has_no_row_for_is_named(folder: Path, capsys: pytest.CaptureFixture):
    config = LlamaConfig.from_pretrained(folder, vocab_size=100)
    LlamaForCausalLM(config).save_pretrained(folder)
    capsys.readouterr()
    found = failed(capsys, 3, folder, "--prompt", "The quick brown fox")
    assert "the prompt: token " in found
    assert "but the embedding has 100 rows" in found


def test_a_tokenizer_from_elsewhere(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    wanted = generated(capsys, folder, "--prompt", "The quick")
    other = tmp_path / "words"
    other.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).rename(other / name)
    assert generated(capsys, folder, "--prompt", "The quick", "--tokenizer", str(other)) == wanted


def test_characters_without_a_token_are_told_of(folder: Path, capsys: pytest.CaptureFixture):
    """A tokenizer of words has one token for all that it does not know."""
    words = Tokenizer(models.WordLevel({"the": 0, "<e>": 1, "dog": 2, "<unk>": 3}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(folder / "tokenizer.json"))
    assert kitae("generate", folder, "--prompt", "the cat the mouse", "--max-new-tokens", "2") == 0
    assert "2 tokens of the prompts are <unk>" in capsys.readouterr().err
    assert kitae("generate", folder, "--prompt", "the dog", "--max-new-tokens", "2") == 0
    assert "<unk>" not in capsys.readouterr().err
