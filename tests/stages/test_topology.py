"""T58: what cannot be spread is refused before anything is started, and what is wasted is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_case import kitae, recipe_values

from kitae.backend.cpu import CpuBackend
from kitae.backend.cuda import CudaBackend
from kitae.errors import RecipeError
from kitae.model.config import DecoderConfig
from kitae.recipe.resolve import resolve
from kitae.recipe.schema import Recipe
from kitae.stages.topology import allowed_degrees, check_cut, check_devices, world_size

SHAPES = {
    # heads, KV heads, inner size
    "llama-8b": (32, 8, 14336),
    "qwen2-7b": (28, 4, 18944),
    "smollm2-135m": (9, 3, 1536),
    "seven": (28, 7, 7 * 512),
}
DEGREES = {
    "llama-8b": [1, 2, 4, 8, 16, 32],
    "qwen2-7b": [1, 2, 4],
    "smollm2-135m": [1, 3],
    "seven": [1, 7, 14, 28],
}


def hf_config(name: str) -> dict[str, object]:
    heads, kv_heads, inner = SHAPES[name]
    return {
        "model_type": "llama",
        "vocab_size": 1000,
        "hidden_size": heads * 64,
        "intermediate_size": inner,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
    }


def recipe(rows: int = 2, length: int = 32, **parallel: object) -> Recipe:
    values = recipe_values(parallel=parallel)
    values["data"]["sequence_length"] = length
    values["training"] = {"duration": "1 steps", "global_batch_size": 4, "micro_batch_size": rows}
    return resolve(Recipe.model_validate(values), backend="cpu").recipe


@pytest.mark.parametrize("name", SHAPES)
def test_allowed_degrees(name: str):
    """Query heads and inner size are multiples; KV heads are a multiple or divide (7 KV splits)."""
    assert allowed_degrees(DecoderConfig.from_hf(hf_config(name))) == DEGREES[name]


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("llama-8b", 3, "32 query heads do not divide.* allows 1, 2, 4, 8, 16, 32$"),
        ("llama-8b", 24, "32 query heads do not divide.* allows 1, 2, 4, 8, 16, 32$"),
        ("qwen2-7b", 7, "4 KV heads do not spread evenly over 7.* allows 1, 2, 4$"),
        ("qwen2-7b", 28, "18944 entries of dimension 0 do not divide.* allows 1, 2, 4$"),
        ("smollm2-135m", 2, "9 query heads do not divide.* allows 1, 3$"),
    ],
)
def test_a_degree_that_does_not_fit_names_those_that_do(name: str, size: int, message: str):
    start = rf"parallel\.tensor_parallel_size: {size} does not fit this model: .*"
    with pytest.raises(RecipeError, match=start + message):
        check_cut(recipe(tensor_parallel_size=size), hf_config(name))


def test_every_degree_that_is_named_is_accepted():
    for name, degrees in DEGREES.items():
        for size in degrees:
            check_cut(recipe(tensor_parallel_size=size), hf_config(name))


def test_tokens_that_cannot_be_shared_out():
    given = {"tensor_parallel_size": 8, "sequence_parallel": True}
    check_cut(recipe(rows=2, length=4, **given), hf_config("llama-8b"))
    with pytest.raises(RecipeError, match=r"micro_batch_size \(2\) x data.sequence_length \(6\) = 12 tokens"):
        check_cut(recipe(rows=2, length=6, **given), hf_config("llama-8b"))
    check_cut(recipe(rows=2, length=6, tensor_parallel_size=8), hf_config("llama-8b"))


def test_processes_are_counted():
    assert world_size(recipe()) == 1
    assert world_size(recipe(data_parallel_size=2, tensor_parallel_size=4)) == 8


@pytest.mark.parametrize(
    ("processes", "devices", "warnings"),
    [
        (32, 32, []),
        (8, 32, ["24 of 32 devices idle"]),
        (1, 8, ["7 of 8 devices idle"]),
    ],
)
def test_idle_devices_are_said(
    monkeypatch: pytest.MonkeyPatch, processes: int, devices: int, warnings: list[str]
):
    monkeypatch.setattr(CudaBackend, "devices", classmethod(lambda cls: devices))
    found = list(check_devices(processes, CudaBackend))
    assert len(found) == len(warnings)
    assert all(part in line for part, line in zip(warnings, found, strict=True))


def test_more_processes_than_devices_are_refused_and_more_than_cores_are_slow(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(CudaBackend, "devices", classmethod(lambda cls: 4))
    with pytest.raises(RecipeError, match=r"8 processes .* need as many cuda devices, and there are 4"):
        list(check_devices(8, CudaBackend))
    monkeypatch.setattr(CpuBackend, "devices", classmethod(lambda cls: 4))
    assert list(check_devices(4, CpuBackend)) == []
    assert list(check_devices(2, CpuBackend)) == []
    (warning,) = check_devices(8, CpuBackend)
    assert "8 processes share 4 cores" in warning


def test_a_run_is_refused_before_its_text_is_read(case: Path, capsys: pytest.CaptureFixture):
    assert kitae("run", "recipe.yaml", "--set", "parallel.tensor_parallel_size=3") == 2
    error = capsys.readouterr().err
    assert "3 does not fit this model" in error
    assert error.endswith("up to 64 it allows 1, 2, 4\n")
    assert not list((case.parent / "cache").glob("data/*"))
