import json

import numpy as np
import pytest

from kitae.data.examples import Sample
from kitae.data.masked_data import CHUNK_TOKENS, MaskedData
from kitae.data.masked_pack import FORMAT, MaskedMeta, MaskedWriter, RawRows
from kitae.data.masked_rows import MaskedRows
from kitae.data.masking import Hiding
from kitae.data.rows import IGNORED
from kitae.errors import DataError

SIZE = 50
HIDING = Hiding(0.15, 0.8, 0.1, 10, True, 3, 70_000, 4, (0, 1, 2, 4))


def raw_rows(count, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(10, SIZE + 1, count)
    firsts = rng.integers(3, lengths - 3)
    ids = np.where(np.arange(SIZE) < lengths[:, None], rng.integers(5, 70_000, (count, SIZE)), 0)
    ids[:, 0] = 1
    ids[np.arange(count), firsts - 1] = ids[np.arange(count), lengths - 1] = 2
    starts = (rng.random((count, SIZE)) < 0.7) | np.isin(ids, (1, 2))
    starts[:, 1] = starts[np.arange(count), firsts] = True
    shape = np.stack([lengths, firsts, rng.integers(0, 2, count)], axis=1)
    return RawRows(ids, shape, starts)


def write(folder, raw, hiding=HIDING, pieces=3):
    meta = MaskedMeta(FORMAT, 0, SIZE, "uint32", 10, hiding)
    writer = MaskedWriter(folder, meta)
    for part in np.array_split(np.arange(len(raw.ids)), pieces):
        columns = {name: None if value is None else value[part] for name, value in vars(raw).items()}
        writer.append(RawRows(**columns))
    written = writer.close()
    assert written.rows == len(raw.ids)
    assert writer.written_bytes == sum((folder / name).stat().st_size for name in meta.files())
    return MaskedData.open(folder)


def samples(numbers, epoch=0):
    return [Sample(int(number), epoch) for number in numbers]


def test_rows_come_back_with_their_parts(tmp_path):
    raw = raw_rows(40)
    data = write(tmp_path / "rows", raw)
    rows = data.read(samples(range(40)))
    lengths, firsts, following = raw.shape.T
    assert (len(data), data.sequence_length) == (40, SIZE)
    assert (rows.lengths == lengths).all()
    assert (rows.next_sentence == following).all()
    place = np.arange(SIZE)
    second = (place >= firsts[:, None]) & (place < lengths[:, None])
    assert (rows.token_type_ids == second).all()
    assert all(array.dtype == np.int64 for array in vars(rows).values())
    restored = rows.input_ids.copy()
    row, slot = np.nonzero(rows.labels != IGNORED)
    restored[row, rows.positions[row, slot]] = rows.labels[row, slot]
    assert (restored == raw.ids).all()
    assert rows.counts == ((rows.labels != IGNORED).sum(), 40)
    assert rows.real_tokens == lengths.sum()
    assert (data.originals(7) == raw.ids[7]).all()
    assert (data.word_starts([3]) == raw.starts[3]).all()


def test_any_order_and_any_piece_give_the_same_rows(tmp_path):
    """Also across the pieces in which many rows are made."""
    count = 2 * CHUNK_TOKENS // SIZE + 7
    data = write(tmp_path / "rows", raw_rows(count))
    order = np.random.default_rng(1).permutation(count)
    many = data.read(samples(order, epoch=2))
    for place in (0, 1, CHUNK_TOKENS // SIZE, count - 1):
        one = data.read(samples([order[place]], epoch=2))
        assert all(
            (got == want[place : place + 1]).all()
            for got, want in zip(vars(one).values(), vars(many).values(), strict=True)
        )
    first, other, again = (data.read(samples(range(count), epoch)) for epoch in (0, 1, 0))
    assert (first.positions == again.positions).all()
    assert (first.positions == other.positions).all(axis=1).mean() < 0.1


def test_given_masks_stay_as_they_are(tmp_path):
    raw = raw_rows(12)
    positions, labels = np.zeros((12, 10), int), np.full((12, 10), IGNORED)
    positions[:, 0], labels[:, 0] = 3, 69_999
    given = RawRows(raw.ids, raw.shape, None, positions, labels)
    data = write(tmp_path / "rows", given, hiding=None)
    for epoch in (0, 1):
        rows = data.read(samples(range(12), epoch))
        assert (rows.input_ids == raw.ids).all()
        assert (rows.positions == positions).all()
        assert (rows.labels == labels).all()
    assert data.originals(2)[3] == 69_999


def test_padding_teaches_nothing(tmp_path):
    """T47: static shapes; nothing of a padded row is counted."""
    rows = write(tmp_path / "rows", raw_rows(3)).read(samples(range(3)))
    padded = rows.pad(5)
    assert padded.input_ids.shape == (5, SIZE)
    assert (padded.lengths[3:] == 0).all()
    assert padded.counts == rows.counts
    assert padded.real_tokens == rows.real_tokens
    assert isinstance(padded.part(slice(0, 3)), MaskedRows)
    assert (padded.part(slice(0, 3)).labels == rows.labels).all()
    assert rows.pad(3).positions is rows.positions


@pytest.mark.parametrize("number", [-1, 40])
def test_a_row_that_is_not_there(tmp_path, number):
    data = write(tmp_path / "rows", raw_rows(40))
    with pytest.raises(IndexError, match=f"row {number}: there are rows 0 to 39"):
        data.read(samples([0, number]))


def test_damage_is_told(tmp_path):
    write(tmp_path / "rows", raw_rows(4))
    (tmp_path / "rows" / "starts.bin").write_bytes(b"x")
    with pytest.raises(DataError, match=r"starts\.bin: 1 bytes where 28 belong; delete the folder"):
        MaskedData.open(tmp_path / "rows")
    meta = tmp_path / "rows" / "masked.json"
    content = json.loads(meta.read_text())
    for changed, message in (
        ({**content, "format": 99}, "format 99, this kitae reads 1"),
        ({**content, "more": 1}, "more"),
        ({}, "format"),
    ):
        meta.write_text(json.dumps(changed))
        with pytest.raises(DataError, match=message):
            MaskedData.open(tmp_path / "rows")
    with pytest.raises(DataError, match="not rows for masked-lm"):
        MaskedData.open(tmp_path)
