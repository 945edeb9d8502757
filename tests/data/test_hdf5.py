import sys

import numpy as np
import pytest
from tiny_wordpiece import IDS, write_wordpiece

from kitae.data.examples import Sample
from kitae.data.hdf5_rows import ROWS_AT_ONCE
from kitae.data.prepare import prepare
from kitae.data.rows import IGNORED
from kitae.errors import DataError

h5py = pytest.importorskip("h5py")

SIZE, WIDTH, VOCAB = 32, 5, len(IDS)
CLS, SEP, MASK = IDS["[CLS]"], IDS["[SEP]"], IDS["[MASK]"]


def shard(count, seed=0):
    """The arrays of a shard, as the vendor's create_datasets writes them, and the ids before masking."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(12, SIZE + 1, count)
    firsts = rng.integers(4, 9, count)
    place = np.arange(SIZE)
    real = place < lengths[:, None]
    originals = np.where(real, rng.integers(5, VOCAB, (count, SIZE)), 0)
    originals[:, 0] = CLS
    originals[np.arange(count), firsts - 1] = originals[np.arange(count), lengths - 1] = SEP
    ids, positions, labels = originals.copy(), np.zeros((count, WIDTH), int), np.zeros((count, WIDTH), int)
    for row in range(count):
        inside = np.setdiff1d(np.arange(1, lengths[row] - 1), [firsts[row] - 1])
        chosen = np.sort(rng.choice(inside, rng.integers(1, WIDTH + 1), replace=False))
        positions[row, : len(chosen)], labels[row, : len(chosen)] = chosen, originals[row, chosen]
        ids[row, chosen] = MASK
    arrays = {
        "input_ids": ids,
        "input_mask": real.astype(int),
        "segment_ids": (real & (place >= firsts[:, None])).astype(int),
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "next_sentence_labels": rng.integers(0, 2, count),
    }
    return arrays, originals


def write_shard(path, arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            kind = "i1" if name in ("input_mask", "segment_ids", "next_sentence_labels") else "i4"
            stored = array if array.dtype.kind == "f" else array.astype(kind)
            file.create_dataset(name, data=stored, compression="gzip" if stored.ndim else None)
    return path


@pytest.fixture
def go(tmp_path):
    folder = write_wordpiece(tmp_path / "bert")

    def run(make, path="shards", *, rows=VOCAB, objective="masked-lm", report=None, **options):
        options = {"sequence_length": SIZE, **options}
        return prepare(
            make(path, **options),
            base=tmp_path,
            tokenizer_folder=folder,
            embedding_rows=rows,
            cache=tmp_path / "cache",
            seed=0,
            objective=objective,
            report=report,
        )

    return run


FOLDER = {"source": {"format": "hdf5"}}


def test_rows_of_many_shards_come_back(go, make_config, tmp_path):
    """In the order of names, whatever is read with what; labels and masks as the shards have them."""
    parts = [shard(count, seed) for seed, count in enumerate((40, 7, 25))]
    for number, (arrays, _) in enumerate(parts):
        write_shard(tmp_path / "shards" / f"part_training_{number}.hdf5", arrays)
    said = []
    made = go(make_config, **FOLDER, report=said.append)
    assert said[0] == "unpacking shards"
    assert len(made.train) == 72
    rows = made.train.read([Sample(number, 3) for number in range(72)])
    whole = {name: np.concatenate([arrays[name] for arrays, _ in parts]) for name in parts[0][0]}
    assert (rows.input_ids == whole["input_ids"]).all()
    assert (rows.lengths == whole["input_mask"].sum(axis=1)).all()
    assert (rows.token_type_ids == whole["segment_ids"]).all()
    assert (rows.positions == whole["masked_lm_positions"]).all()
    given = np.where(whole["masked_lm_positions"] > 0, whole["masked_lm_ids"], IGNORED)
    assert (rows.labels == given).all()
    assert (rows.next_sentence == whole["next_sentence_labels"]).all()
    assert (made.train.originals(45) == parts[1][1][5]).all()
    split = made.card["splits"]["train"]
    assert (split["rows"], split["pairs"]) == (72, 72)
    assert split["random_pairs"] == whole["next_sentence_labels"].sum()
    tokens = whole["input_mask"].sum() - 3 * 72
    assert (split["tokens"], split["padding"]) == (tokens, 72 * SIZE - whole["input_mask"].sum())
    assert split["masked"]["predictions"] == (whole["masked_lm_positions"] > 0).sum()
    assert [source["documents"] for source in made.card["sources"]["train"]["from"]] == [72]
    assert made.card["masks"] == "as the shards have them"
    assert go(make_config, **FOLDER).reused


def test_a_shard_larger_than_a_piece(go, make_config, tmp_path):
    arrays, _ = shard(ROWS_AT_ONCE + 11)
    write_shard(tmp_path / "a.hdf5", arrays)
    made = go(make_config, "a.hdf5")
    rows = made.train.read([Sample(ROWS_AT_ONCE + 10), Sample(0), Sample(ROWS_AT_ONCE)])
    assert (rows.input_ids == arrays["input_ids"][[ROWS_AT_ONCE + 10, 0, ROWS_AT_ONCE]]).all()


def test_pairs_may_be_left_out_and_lists_be_wider(go, make_config, tmp_path):
    arrays, _ = shard(9)
    wider = {
        **arrays,
        **{name: np.pad(arrays[name], ((0, 0), (0, 4))) for name in ("masked_lm_positions", "masked_lm_ids")},
        "next_sentence_labels": arrays["next_sentence_labels"][:, None],
    }
    write_shard(tmp_path / "a.h5", wider)
    masking = {"next_sentence": False, "max_predictions": 7, "probability": 0.2, "dynamic": False}
    made = go(make_config, "a.h5", masking=masking)
    assert made.card["warnings"] == [
        "data.masking.probability: has no effect on shards, which have their own masks"
    ]
    rows = made.train.read([Sample(number) for number in range(9)])
    assert (rows.next_sentence == IGNORED).all()
    assert rows.positions.shape == (9, 7)
    assert (rows.positions[:, :WIDTH] == arrays["masked_lm_positions"]).all()
    assert (rows.labels[:, WIDTH:] == IGNORED).all()


def test_rows_are_held_out(go, make_config, tmp_path):
    write_shard(tmp_path / "a.hdf5", shard(300)[0])
    write_shard(tmp_path / "b.hdf5", {name: array[:20] for name, array in shard(300)[0].items()})
    made = go(make_config, "a.hdf5", heldout={"fraction": 0.2})
    assert len(made.train) + len(made.heldout) == 300
    assert 30 < len(made.heldout) < 90
    named = go(make_config, "a.hdf5", heldout={"sources": [{"path": "b.hdf5"}]})
    assert (len(named.train), len(named.heldout)) == (300, 20)
    assert named.card["heldout_duplicates_in_train"] == 20


def broken(name, value, row=2, place=0):
    arrays = shard(6)[0]
    arrays[name][row, place] = value
    return arrays


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        (broken("input_mask", 0), "input_mask is not ones and then zeros"),
        (broken("segment_ids", 2, place=3), "segment_ids are not zeros and then ones"),
        (broken("segment_ids", 1, place=1), "segment_ids are not zeros and then ones"),
        (broken("input_ids", VOCAB, place=3), f"an id is not one of the tokenizer's, 0 to {VOCAB - 1}"),
        (broken("masked_lm_ids", -4), "a masked_lm_id is not one of the tokenizer's"),
        (broken("masked_lm_positions", SIZE), "a masked_lm_position is behind its end"),
    ],
)
def test_a_bad_row_is_named_or_left_out(go, make_config, tmp_path, arrays, why):
    write_shard(tmp_path / "a.hdf5", arrays)
    with pytest.raises(
        DataError, match=rf"^a\.hdf5 row 3: .*{why}.*; mend it, or set data\.on_bad_line: skip"
    ):
        go(make_config, "a.hdf5")
    made = go(make_config, "a.hdf5", on_bad_line="skip")
    assert len(made.train) == 5
    assert made.card["warnings"] == ["1 bad lines were left out"]


def without(name):
    return {key: value for key, value in shard(6)[0].items() if key != name}


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        (
            shard(6)[0],
            {"sequence_length": 64},
            r"input_ids is \[6, 32\], but rows have data\.sequence_length 64",
        ),
        (
            shard(30)[0],
            {"masking": {"max_predictions": 2}},
            "has more than the 2 predictions of data.masking.max_predictions",
        ),
        (without("segment_ids"), {}, "no data set 'segment_ids'; did you mean 'input_ids'"),
        (
            {**shard(6)[0], "next_sentence_labels": np.zeros(5)},
            {},
            "next_sentence_labels holds no whole numbers",
        ),
        ({**shard(6)[0], "next_sentence_labels": np.zeros(5, int)}, {}, r"is \[5\], but there are 6 rows"),
        ({name: array[:0] for name, array in shard(6)[0].items()}, {}, "no rows in the shards"),
    ],
)
def test_a_shard_of_another_shape(go, make_config, tmp_path, arrays, options, message):
    write_shard(tmp_path / "a.hdf5", arrays)
    with pytest.raises(DataError, match=message):
        go(make_config, "a.hdf5", **options)
    assert [path for path in (tmp_path / "cache" / "data").glob("*") if path.suffix != ".lock"] == []


def test_a_model_that_lacks_an_id(go, make_config, tmp_path):
    """T25."""
    write_shard(tmp_path / "a.hdf5", shard(30)[0])
    with pytest.raises(DataError, match=r"^a\.hdf5 row \d+: token '.+' has id \d+, but the embedding has 20"):
        go(make_config, "a.hdf5", rows=20)


def test_damage_and_text_and_the_missing_package(go, make_config, tmp_path, monkeypatch):
    write_shard(tmp_path / "a.hdf5", shard(30)[0])
    with pytest.raises(
        DataError, match=r"an HDF5 shard holds masked rows, not text; .* objective: masked-lm"
    ):
        go(make_config, "a.hdf5", objective="causal-lm")
    (tmp_path / "b.txt").write_text("One. Two.")
    with pytest.raises(DataError, match="some sources are HDF5 shards of rows and others are text"):
        go(make_config, "a.hdf5", heldout={"sources": [{"path": "b.txt"}]})
    content = (tmp_path / "a.hdf5").read_bytes()
    (tmp_path / "c.hdf5").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"c\.hdf5: cannot be read as HDF5"):
        go(make_config, "c.hdf5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DataError, match=r"needs the package h5py; pip install 'kitae\[hdf5\]'"):
        go(make_config, "a.hdf5")


def test_a_folder_of_text_does_not_mind_shards(go, make_config, tmp_path):
    write_shard(tmp_path / "mixed" / "a.hdf5", shard(4)[0])
    (tmp_path / "mixed" / "b.txt").write_text("A good film. A bad book.\nThe film. The book.")
    made = go(make_config, "mixed", source={"document": "line"})
    assert made.card["splits"]["train"]["sentences"] == 4
    assert len(go(make_config, "mixed", **FOLDER).train) == 4
