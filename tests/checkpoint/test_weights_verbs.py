from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hf_case import all_tensors, hf_folder, rewrite
from job_case import kitae
from nxd_case import FIXTURE

HF = FIXTURE / "hf"


@pytest.fixture
def out(capsys):
    """Runs a command line; its code and its lines."""

    def run(*words):
        capsys.readouterr()
        code = kitae(*words)
        streams = capsys.readouterr()
        return code, [*streams.out.splitlines(), *streams.err.splitlines()]

    return run


def test_what_a_folder_is(out, tmp_path):
    folder = hf_folder(tmp_path / "model", "llama3", tie_word_embeddings=True)
    code, lines = out("weights", folder)
    assert code == 0
    shown = dict(line.strip().split(None, 1) for line in lines[1:])
    assert shown["format"] == "Hugging Face safetensors, 1 file"
    count = sum(tensor.numel() for tensor in all_tensors(folder).values())
    assert shown["parameters"] == f"{count / 1000:.3g}K ({count:,}), 20 tensors"
    assert shown["dtypes"] == "float32 (20 tensors)"
    assert shown["head"] == "tied to the embedding"
    assert shown["rope"].startswith("theta 500000, llama3 (factor 8, low_freq_factor 1, high_freq_factor 4")
    assert shown["vocabulary"] == "99 rows; no tokenizer beside it"
    assert "topology" not in shown


def test_json_of_an_nxd_folder(out):
    code, lines = out("weights", FIXTURE / "qkv_kv2_nxd_xser", "--config", HF / "config.json", "--json")
    facts = json.loads("".join(lines))
    assert code == 0
    assert facts["format"] == "nxd"
    assert facts["topology"] == {
        "tp_size": 4,
        "pp_size": 1,
        "kv_multiplier": 2,
        "order": "trn1",
        "qkv": "linear",
        "fused_gate_up": True,
    }
    tensors = all_tensors(HF)
    assert facts["parameters"] == sum(tensor.numel() for tensor in tensors.values())
    assert facts["bytes"] == sum(tensor.nbytes for tensor in tensors.values())
    assert facts["dtypes"] == {"bfloat16": 21}
    assert (facts["head"], facts["step"], facts["vocabulary"]["rows"]) == ("untied", 0, 64)
    assert facts["rope"]["theta"] == 10000.0


def test_equal_weights_of_two_formats(out):
    """The NxD folder carries no config, so the other's is taken."""
    for pair in ((FIXTURE / "noqkv_tp2", HF), (HF, FIXTURE / "noqkv_tp2")):
        code, lines = out("weights", *pair)
        assert (code, lines[-1]) == (0, "21 tensors: 21 equal to the bit")


def test_weights_that_differ(out, tmp_path):
    folder = hf_folder(tmp_path / "model")
    other = hf_folder(tmp_path / "other")
    tensors = all_tensors(other)
    tensors["model.norm.weight"][3] += 0.25
    rewrite(other, tensors)
    code, lines = out("weights", folder, other)
    assert code == 1
    assert "  model.norm.weight: 1 values differ, by at most 0.25" in lines
    assert lines[-1] == "21 tensors: 20 equal to the bit, 1 with other values"
    code, lines = out("weights", folder, other, "--json")
    found = json.loads("".join(lines))
    assert (code, found["equal"], found["counts"]) == (1, False, {"equal": 20, "values": 1})
    (one,) = [tensor for tensor in found["tensors"] if tensor["verdict"] == "values"]
    assert (one["name"], one["difference"], one["different"]) == ("model.norm.weight", 0.25, 1)


def test_missing_extra_and_another_dtype(out, tmp_path):
    folder, other = hf_folder(tmp_path / "model"), hf_folder(tmp_path / "other")
    tensors = all_tensors(other)
    tensors["mine"] = tensors.pop("model.norm.weight")
    rewrite(other, {name: tensor.double() for name, tensor in tensors.items()})
    code, lines = out("weights", folder, other)
    assert code == 1
    assert "  model.norm.weight: only in the first" in lines
    assert "  mine: only in the second" in lines
    assert "  ... and 10 more equal in value, of another dtype" in lines


def test_a_model_that_kitae_does_not_train_is_described_all_the_same(out, tmp_path):
    folder = hf_folder(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "mamba"}))
    code, lines = out("weights", folder)
    assert code == 0
    assert any("note: " in line and "mamba is not supported" in line for line in lines)
    assert any(line.split()[0] == "parameters" for line in lines)


def test_a_folder_without_config_says_so(out, tmp_path):
    code, lines = out("weights", HF / "full_state.pt")
    assert code == 0  # a config.json lies beside it
    (tmp_path / "state.pt").write_bytes((HF / "full_state.pt").read_bytes())
    code, lines = out("weights", tmp_path / "state.pt")
    assert code == 0
    assert any("carries no config.json" in line for line in lines)
    code, lines = out("weights", FIXTURE / "qkv_kv2")
    assert code == 4
    assert "name the model's with --config FILE" in lines[0]


def test_convert_with_all_flags(out, tmp_path):
    flags = (
        "--to nxd --tp 4 --pp 2 --kv-multiplier 2 --order trn2 --fused-qkv --xser --dtype fp32 --proof values"
    )
    code, lines = out("convert", HF, tmp_path / "nxd", *flags.split())
    assert code == 0
    assert (
        "proof: 21 tensors used once and equal after reading back; copies on several ranks are equal" in lines
    )
    rank = torch.load(tmp_path / "nxd/model/dp_rank_00_tp_rank_01_pp_rank_01.pt.tensors/tensor_0.pt")
    assert rank.dtype == torch.float32
    code, lines = out("weights", tmp_path / "nxd", "--json")
    topology = json.loads("".join(lines))["topology"]
    assert [topology[name] for name in ("tp_size", "pp_size", "kv_multiplier", "order", "qkv")] == [
        4,
        2,
        2,
        "trn2",
        "fused",
    ]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["{hf}", "{tmp}/out"], 2, "say what it is to become"),
        (["{hf}", "{tmp}/out", "--to", "gguf"], 2, "'gguf' is not one of"),
        (["{hf}", "{tmp}/out", "--to", "nxd", "--tp", "0"], 2, "--tp"),
        (["{hf}", "{tmp}/out", "--to", "nxd", "--tp", "3"], 4, "choose a tp_size that divides 8"),
        (["{hf}/nothing", "{tmp}/out"], 4, "does not exist"),
        (["{hf}"], 2, "Missing argument 'DST'"),
        (["{hf}", "{hf}", "--to", "kitae"], 4, "left alone"),
    ],
)
def test_wrong_words(out, tmp_path, words, code, says):
    found, lines = out("convert", *(word.format(hf=HF, tmp=tmp_path) for word in words))
    assert found == code
    assert lines[-1].startswith("error: ")
    assert says in lines[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", ["convert model out --to kitae", "weights model", "weights model model"])
def test_files_that_may_not_be_read(out, tmp_path, monkeypatch, words):
    """Root may read all, so the system's word is given here."""
    file = hf_folder(tmp_path / "model") / "model.safetensors"
    usual = Path.open

    def refuse(path, *given, **named):
        if path.name == file.name:
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path, *given, **named)

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.chdir(tmp_path)
    code, lines = out(*words.split())
    assert code == 4
    assert lines[-1].startswith("error: cannot read model/model.safetensors: Permission denied; ")


def test_a_disk_that_fails_under_the_source(out, tmp_path, monkeypatch):
    """It is not the one of the result."""
    folder = hf_folder(tmp_path / "model")

    def fail(*given):
        raise OSError(5, "Input/output error")

    for reader, what in (("hf.HfSource", folder), ("wrapped.Cast", "tensor model.embed_tokens.weight")):
        with monkeypatch.context() as patch:
            patch.setattr(f"kitae.checkpoint.{reader}.read", fail)
            code, lines = out("convert", folder, tmp_path / "out", "--to", "kitae")
        assert code == 4
        assert lines[-1].startswith(f"error: cannot read {what}: Input/output error; ")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_step_that_is_not_there(out, tmp_path):
    code, lines = out("weights", tmp_path / "run/checkpoints/step-00000005")
    assert code == 4
    assert "does not exist" in lines[-1]


def test_help_imports_no_torch():
    code = (
        "import sys; from kitae.cli.main import main\n"
        "assert main(['convert', '--help']) == 0 and main(['weights', '--help']) == 0\n"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    )
    source = str(Path(__file__).parents[2] / "src")
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": source}, capture_output=True)
