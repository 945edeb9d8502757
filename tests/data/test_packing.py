import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.data.pack import PackWriter, token_dtype
from kitae.data.packed import PackedData, Span
from kitae.data.rows import IGNORED, build_rows, labels_by_length
from kitae.errors import DataError


def pack(folder, batches, *, sequence_length=8, mask=True, pad=False, dtype="uint16", shard_tokens=None):
    writer = PackWriter(folder, dtype, shard_tokens)
    for batch in batches:
        ids = np.concatenate([np.asarray(document, np.uint32) for document in batch])
        writer.append(ids, np.array([len(document) for document in batch]))
    meta = writer.close(sequence_length=sequence_length, document_mask=mask, pad_remainder=pad)
    assert PackedData.open(folder).meta == meta
    return PackedData.open(folder)


def test_remainder_is_carried_over_batches_and_reported(tmp_path):
    """T23: 100, 507 and 2,000 tokens, blocks of 1,024."""
    stream = np.arange(2607)
    packed = pack(tmp_path / "p", [[stream[:100]], [stream[100:607]], [stream[607:]]], sequence_length=1024)
    assert (len(packed), packed.meta.remainder, packed.num_tokens) == (2, 559, 2048)
    assert packed.rows([0, 1]).input_ids.ravel().tolist() == list(range(2048))


def test_positions_restart_and_targets_stop_at_documents(tmp_path):
    """T22: two documents of 3 tokens in one row."""
    rows = pack(tmp_path / "p", [[[5, 6, 7], [8, 9, 4]]], sequence_length=6).rows([0])
    assert rows.input_ids.tolist() == [[5, 6, 7, 8, 9, 4]]
    assert rows.position_ids.tolist() == [[0, 1, 2, 0, 1, 2]]
    assert rows.segment_ids.tolist() == [[1, 1, 1, 2, 2, 2]]
    assert rows.targets.tolist() == [[6, 7, IGNORED, 9, 4, IGNORED]]


def test_without_mask_a_row_is_one_run(tmp_path):
    rows = pack(tmp_path / "p", [[[5, 6, 7], [8, 9, 4]]], sequence_length=6, mask=False).rows([0])
    assert rows.position_ids.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert rows.segment_ids.tolist() == [[1] * 6]
    assert rows.targets.tolist() == [[6, 7, 8, 9, 4, IGNORED]]


def test_a_document_cut_at_the_end_of_a_row_goes_on_with_positions_from_0(tmp_path):
    packed = pack(tmp_path / "p", [[[1, 2], [3, 4, 5, 6, 7]], [[8]]], sequence_length=4)
    rows = packed.rows([1, 0])
    assert rows.input_ids.tolist() == [[5, 6, 7, 8], [1, 2, 3, 4]]
    assert rows.position_ids.tolist() == [[0, 1, 2, 0], [0, 1, 0, 1]]
    assert rows.segment_ids.tolist() == [[1, 1, 1, 2], [1, 1, 2, 2]]
    assert packed.spans(0) == [Span(0, 0, 0, 2), Span(1, 0, 2, 4)]
    assert packed.spans(1) == [Span(1, 2, 0, 3), Span(2, 0, 3, 4)]


def test_padding_is_known_by_length_when_pad_is_the_end_token():
    """T26: [5, 6, E, E, E] of true length 3, E = 2."""
    ids = np.array([[5, 6, 2, 2, 2]])
    assert labels_by_length(ids, np.array([3])).tolist() == [[5, 6, 2, IGNORED, IGNORED]]
    rows = build_rows(ids, np.array([3]), np.zeros((1, 5), bool))
    assert rows.targets.tolist() == [[6, 2, IGNORED, IGNORED, IGNORED]]
    assert rows.segment_ids.tolist() == [[1, 1, 1, 0, 0]]
    assert rows.position_ids.tolist() == [[0, 1, 2, 0, 0]]


def test_padded_remainder_is_one_more_row(tmp_path):
    packed = pack(tmp_path / "p", [[[1, 2, 3], [4, 5]]], sequence_length=4, pad=True)
    assert (len(packed), packed.meta.remainder, packed.meta.padding, packed.num_tokens) == (2, 0, 3, 5)
    last = packed.rows([1])
    assert last.segment_ids.tolist() == [[1, 0, 0, 0]]
    assert last.targets.tolist() == [[IGNORED] * 4]


def test_rows_are_filled_up_to_a_static_count(tmp_path):
    packed = pack(tmp_path / "p", [[[1, 2, 3, 4, 5, 6]]], sequence_length=3)
    rows = packed.rows([1]).pad(3)
    assert rows.input_ids.shape == (3, 3)
    assert rows.targets[1:].tolist() == [[IGNORED] * 3] * 2
    assert rows.segment_ids.tolist() == [[1, 1, 1], [0, 0, 0], [0, 0, 0]]
    full = packed.rows([0, 1])
    assert all(np.array_equal(getattr(full.pad(2), name), getattr(full, name)) for name in vars(full))


documents = st.lists(st.lists(st.integers(1, 60_000), min_size=1, max_size=30), min_size=1, max_size=25)


@settings(deadline=None, max_examples=60)
@given(
    batches=st.lists(documents, min_size=1, max_size=4),
    sequence_length=st.integers(2, 40),
    mask=st.booleans(),
    pad=st.booleans(),
    shard_tokens=st.integers(1, 50),
)
def test_every_token_is_in_a_row_or_in_the_remainder(
    tmp_path_factory, batches, sequence_length, mask, pad, shard_tokens
):
    folder = tmp_path_factory.mktemp("packed") / "p"
    options = {"sequence_length": sequence_length, "mask": mask, "pad": pad, "shard_tokens": shard_tokens}
    packed = pack(folder, batches, dtype="uint16", **options)
    flat = [document for batch in batches for document in batch]
    stream = [token for document in flat for token in document]
    rows = packed.rows(range(len(packed)))
    real = rows.segment_ids > 0

    assert rows.input_ids.shape == (len(packed), sequence_length)
    assert {array.dtype.name for array in vars(rows).values()} == {"int64"}
    assert rows.input_ids[real].tolist() == stream[: packed.num_tokens]
    assert len(stream) == int(real.sum()) + packed.meta.remainder
    assert packed.meta.padding == int((~real).sum())
    assert packed.meta.remainder == (0 if pad else len(stream) % sequence_length)

    owner = np.repeat(np.arange(len(flat)), [len(document) for document in flat])
    inside = np.concatenate([np.arange(len(document)) for document in flat])
    for row in range(len(packed)):
        check_row(rows, row, sequence_length, stream, owner, inside, mask)
        spans = packed.spans(row)
        start = row * sequence_length
        assert [token for span in spans for token in range(span.start, span.end)] == list(
            range(real[row].sum())
        )
        for span in spans:
            assert set(owner[start + span.start : start + span.end]) == {span.document}
            assert inside[start + span.start] == span.offset


def check_row(rows, row, sequence_length, stream, owner, inside, mask):
    """The definition, token by token, against what the vectorised code made."""
    begin = row * sequence_length
    segment = position = 0
    for place in range(sequence_length):
        here, following = begin + place, begin + place + 1
        if here >= len(stream):
            assert (rows.segment_ids[row, place], rows.targets[row, place]) == (0, IGNORED)
            continue
        starts = place == 0 or (mask and inside[here] == 0)
        segment, position = (segment + 1, 0) if starts else (segment, position + 1)
        assert (rows.segment_ids[row, place], rows.position_ids[row, place]) == (segment, position)
        in_row = place + 1 < sequence_length and following < len(stream)
        has_target = in_row and (not mask or owner[here] == owner[following])
        assert rows.targets[row, place] == (stream[following] if has_target else IGNORED)


def test_type_goes_by_the_vocabulary(tmp_path):
    assert [token_dtype(size) for size in (400, 65_536, 65_537)] == ["uint16", "uint16", "uint32"]
    packed = pack(tmp_path / "p", [[[70_000, 65_535, 3, 4]]], sequence_length=4, dtype="uint32")
    assert packed.rows([0]).input_ids.tolist() == [[70_000, 65_535, 3, 4]]
    assert (tmp_path / "p" / "tokens-00000.bin").read_bytes()[:4] == (70_000).to_bytes(4, "little")


def test_rows_that_are_not_there(tmp_path):
    packed = pack(tmp_path / "p", [[[1, 2, 3, 4]]], sequence_length=2)
    for row in (-1, 2):
        with pytest.raises(IndexError, match="there are rows 0 to 1"):
            packed.rows([row])


def test_finding_a_row_touches_few_documents(tmp_path, monkeypatch):
    """O(log documents): rows are found in an index of 100,000 documents by binary search alone."""
    packed = pack(tmp_path / "p", [[[1, 2]] * 100_000], sequence_length=10)
    read = []

    class Counting(np.ndarray):
        def __getitem__(self, item):
            read.append(item)
            return super().__getitem__(item)

    packed._starts = packed._starts.view(Counting)
    assert packed.rows([19_999]).position_ids.tolist() == [[0, 1] * 5]
    assert read == [slice(99_995, 100_000)]


def test_a_truncated_or_foreign_folder_is_refused(tmp_path):
    pack(tmp_path / "p", [[[1, 2, 3, 4]]], sequence_length=2)
    meta = json.loads((tmp_path / "p" / "packed.json").read_text())
    (tmp_path / "p" / "tokens-00000.bin").write_bytes(b"123")
    with pytest.raises(DataError, match=r"tokens-00000\.bin: 3 bytes where 8 belong; delete the folder"):
        PackedData.open(tmp_path / "p")
    (tmp_path / "p" / "packed.json").write_text(json.dumps({**meta, "format": 99}))
    with pytest.raises(DataError, match="format 99, this kitae reads 1"):
        PackedData.open(tmp_path / "p")
    with pytest.raises(DataError, match="not packed data"):
        PackedData.open(tmp_path)
