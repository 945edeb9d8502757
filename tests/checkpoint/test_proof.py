from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hf_case import FAMILIES, PROMPTS, all_tensors, edit_json, hf_folder, rewrite, through_kitae

from kitae.checkpoint import proof
from kitae.checkpoint.proof import prove_folder
from kitae.errors import ProofError


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_passes(tmp_path: Path, family: str, tied: bool) -> None:
    """T05, T06: logits of the exported folder against stock transformers, rope scaling included."""
    folder = hf_folder(tmp_path / "in", family, tie_word_embeddings=tied)
    result = prove_folder(through_kitae(folder, tmp_path / "out"), PROMPTS, 1e-5)
    assert len(result.differences) == 3
    assert max(result.differences) == result.max_difference <= 1e-5
    assert result.rounding == (0, 0, 0)
    assert [len(tokens) for tokens in result.generated] == [5, 5, 5]
    kept = json.loads(json.dumps(result.as_dict()))
    assert kept["prompts"] == PROMPTS
    assert kept["limit"] == 1e-5


def swap_rotary(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """The row order of the original Llama release instead of Hugging Face's."""
    return tensor.reshape(heads, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)


def test_permutation_that_cancels_in_the_round_trip_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T05: kitae reads q and k in a wrong order and writes it back right: only the logits tell."""
    folder = through_kitae(hf_folder(tmp_path / "in"), tmp_path / "out")
    tensors = all_tensors(folder)
    heads = {".q_proj.": 4, ".k_proj.": 2}
    wrong = {
        name: next((swap_rotary(tensor, n) for part, n in heads.items() if part in name), tensor)
        for name, tensor in tensors.items()
    }
    misread = rewrite(hf_folder(tmp_path / "misread"), wrong)
    kitae_logits = proof._kitae_logits
    monkeypatch.setattr(proof, "_kitae_logits", lambda _, prompts: kitae_logits(misread, prompts))
    with pytest.raises(
        ProofError, match=r"differ by [0-9.]+, allowed is 0.0001 .*worst of 3 prompts: number [12]"
    ):
        prove_folder(folder, PROMPTS, 1e-4)


def test_values_that_are_not_numbers_fail(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "in")
    rewrite(folder, {**all_tensors(folder), "model.norm.weight": torch.full((32,), torch.nan)})
    with pytest.raises(ProofError, match=r"are not finite \(worst of 3 prompts: number 1"):
        prove_folder(folder, PROMPTS)


def test_rounding_of_the_reference_is_added_where_needed(tmp_path: Path) -> None:
    """Logits of some 1e5 round by more than 1e-4 in fp32: that is no fault of the folder."""
    folder = hf_folder(tmp_path / "in")
    rewrite(folder, {n: t * (1e5 if n == "lm_head.weight" else 1) for n, t in all_tensors(folder).items()})
    result = prove_folder(folder, PROMPTS, 1e-9)
    assert result.max_difference > 1e-9
    assert all(d <= 1e-9 + 2 * r for d, r in zip(result.differences, result.rounding, strict=True))


def test_keys_that_do_not_match_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = hf_folder(tmp_path / "in")
    kept = {n: t for n, t in all_tensors(folder).items() if n != "model.layers.1.mlp.up_proj.weight"}
    rewrite(folder, kept)
    monkeypatch.setattr(proof, "_kitae_logits", lambda *_: [])
    with pytest.raises(ProofError, match=r"missing_keys.*layers.1.mlp.up_proj"):
        prove_folder(folder, PROMPTS)


def test_folder_that_transformers_cannot_load_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = hf_folder(tmp_path / "in")
    edit_json(folder / "config.json", model_type="nonesuch")
    monkeypatch.setattr(proof, "_kitae_logits", lambda *_: [])
    with pytest.raises(ProofError, match=r"cannot load .*nonesuch"):
        prove_folder(folder, PROMPTS)
