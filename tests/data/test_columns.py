import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kitae.data.documents import Tally
from kitae.data.hashing import HashCache
from kitae.data.sources import open_source
from kitae.errors import DataError
from kitae.recipe.sources import SourceConfig


def read(folder, tally=None, **options):
    source = open_source(SourceConfig(**options), folder)
    return [(document.text, document.where) for document in source.documents(tally or Tally())]


def test_parquet_by_row_group_with_nulls(tmp_path):
    table = pa.table({"text": ["a", "b", None, "d"], "other": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=2)
    tally = Tally("skip")
    got = read(tmp_path, tally, path="p.parquet")
    assert got == [("a", "p.parquet row 1"), ("b", "p.parquet row 2"), ("d", "p.parquet row 4")]
    assert tally.bad_examples == ["p.parquet row 3: the text is null"]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet_of_other_string_kinds(tmp_path, kind):
    pq.write_table(pa.table({"text": pa.array(["a", "b"]).cast(kind)}), tmp_path / "p.parquet")
    assert [text for text, _ in read(tmp_path, path="p.parquet")] == ["a", "b"]


def test_parquet_with_bytes_that_are_not_text(tmp_path):
    raw = pa.array([b"good", b"\xff\xfe", b"fine"]).view(pa.string())
    pq.write_table(pa.table({"text": raw}), tmp_path / "p.parquet")
    tally = Tally("skip")
    assert [text for text, _ in read(tmp_path, tally, path="p.parquet")] == ["good", "fine"]
    assert tally.bad_examples == ["p.parquet row 2: not valid UTF-8"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_field": "txet"}, r"no column 'txet'; did you mean 'text'\? there are: number, text"),
        ({"text_field": "number"}, "column 'number' holds int64, not strings"),
    ],
)
def test_wrong_column_names_the_right_ones(tmp_path, options, message):
    pq.write_table(pa.table({"text": ["a"], "number": [1]}), tmp_path / "p.parquet")
    with pytest.raises(DataError, match=message):
        read(tmp_path, path="p.parquet", **options)


def test_a_file_that_is_not_parquet(write, tmp_path):
    write("p.parquet", "not parquet at all")
    with pytest.raises(DataError, match=r"p\.parquet: cannot be read as Parquet"):
        read(tmp_path, path="p.parquet")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    datasets = pytest.importorskip("datasets")
    folder = tmp_path_factory.mktemp("saved")
    one = datasets.Dataset.from_dict({"text": [f"t{n}" for n in range(10)], "n": list(range(10))})
    one.save_to_disk(folder / "one", num_shards=3)
    both = datasets.DatasetDict({"train": one, "test": one.select([7, 2])})
    both.save_to_disk(folder / "both")
    return folder


def test_saved_dataset_in_the_order_of_its_state(saved):
    got = read(saved, path="one")
    assert [text for text, _ in got] == [f"t{n}" for n in range(10)]
    assert got[0][1] == "one/data-00000-of-00003.arrow row 1"


def test_saved_dataset_with_splits(saved):
    assert len(read(saved, path="both")) == 10
    assert [text for text, _ in read(saved, path="both", split="test")] == ["t7", "t2"]
    with pytest.raises(DataError, match=r"no split 'tset'; did you mean 'test'\? there are: test, train"):
        read(saved, path="both", split="tset")


def test_saved_dataset_needs_no_datasets_package(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert len(read(saved, path="one")) == 10


def test_saved_dataset_with_a_missing_file(saved, tmp_path):
    import shutil

    shutil.copytree(saved / "one", tmp_path / "one")
    (tmp_path / "one" / "data-00001-of-00003.arrow").unlink()
    with pytest.raises(
        DataError, match=r"data-00001-of-00003\.arrow is named in state\.json but is not there"
    ):
        read(tmp_path, path="one")


def test_hub_without_the_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"owner/name: .*pip install 'kitae\[hub\]'"):
        read(tmp_path, hub="owner/name")


def test_hub_that_cannot_be_reached_says_what_to_do(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")

    def fail(*args, **kwargs):
        raise ConnectionError("offline mode is enabled\nmore")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(DataError, match=r"ConnectionError: offline mode is enabled\).*save_to_disk"):
        read(tmp_path, hub="owner/name")


def test_hub_documents_and_identity(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    asked = []

    def load(path, name, *, split, revision, streaming):
        asked.append((path, name, split, revision, streaming))
        return datasets.Dataset.from_dict({"text": ["a", None, "c"], "n": [1, 2, 3]})

    monkeypatch.setattr(datasets, "load_dataset", load)
    tally = Tally("skip")
    got = read(tmp_path, tally, hub="owner/name", name="ja", split="test", revision="main")
    assert got == [("a", "owner/name row 1"), ("c", "owner/name row 3")]
    assert asked == [("owner/name", "ja", "test", "main", False)]
    assert tally.bad_lines == 1
    hashes = HashCache(None)
    moving = open_source(SourceConfig(hub="owner/name", revision="main"), tmp_path)
    pinned = open_source(SourceConfig(hub="owner/name", revision="0" * 40), tmp_path)
    count = len(asked)
    assert pinned.identity(hashes)["at"] == "0" * 40
    assert len(asked) == count, "a pinned commit needs no Hub to know what it is"
    assert len(moving.identity(hashes)["at"]) == 64
