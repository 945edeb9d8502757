"""Fields that are read beside the text, in every format."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kitae.data.documents import Field, Tally
from kitae.data.hashing import HashCache
from kitae.data.sources import open_source
from kitae.errors import DataError
from kitae.recipe.sources import SourceConfig

RECORDS = [{"text": "a", "stars": 1, "second": "x"}, {"text": "b", "stars": 5, "second": "y"}]


def small(raw):
    if raw == 9:
        raise ValueError("is 9, which is too much")
    return int(str(raw))


STARS, SECOND = (
    Field("stars", "data.labels.field", small),
    Field("second", "data.labels.text_pair_field", str),
)


def documents(folder, tally=None, fields=(STARS, SECOND), **options):
    return [
        (doc.text, doc.where, *doc.fields)
        for doc in open_source(SourceConfig(**options), folder, fields).documents(tally or Tally())
    ]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    datasets = pytest.importorskip("datasets")
    folder = tmp_path_factory.mktemp("files")
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    (folder / "a.csv").write_text("second,stars,text\nx,1,a\ny,5,b\n")
    table = pa.Table.from_pylist(RECORDS)
    pq.write_table(table, folder / "a.parquet")
    datasets.Dataset(table).save_to_disk(folder / "saved")
    return folder


@pytest.mark.parametrize("path", ["a.jsonl", "a.csv", "a.parquet", "saved"])
def test_every_format_gives_them(files, path):
    assert [(text, *fields) for text, _, *fields in documents(files, path=path)] == [
        ("a", 1, "x"),
        ("b", 5, "y"),
    ]
    assert [row[0] for row in documents(files, fields=(), path=path)] == ["a", "b"]


def test_the_hub_gives_them(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    load = lambda *args, **options: datasets.Dataset.from_list(RECORDS)  # noqa: E731
    monkeypatch.setattr(datasets, "load_dataset", load)
    assert documents(tmp_path, hub="o/n")[1] == ("b", "o/n row 2", 5, "y")
    sources = [open_source(SourceConfig(hub="o/n"), tmp_path, fields) for fields in ((), (STARS,))]
    marks = [source.identity(HashCache(None)) for source in sources]
    assert "fields" not in marks[0]
    assert marks[1]["fields"] == ["stars"]
    assert marks[0]["at"] != marks[1]["at"]


def test_a_plain_text_has_none(write, tmp_path):
    write("a.txt", "a")
    with pytest.raises(
        DataError, match=r"no field 'stars', which data\.labels\.field names; give JSON lines"
    ):
        documents(tmp_path, path="a.txt")


@pytest.mark.parametrize("path", ["a.jsonl", "a.parquet", "a.csv"])
def test_a_value_that_is_refused_is_a_bad_line(write, tmp_path, path):
    records = [{"text": "a", "stars": 9}, {"text": "b", "stars": 2}]
    write("a.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    write("a.csv", "text,stars\na,9\nb,2\n")
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
    nine = Field("stars", "data.labels.field", lambda raw: small(int(str(raw))))
    with pytest.raises(DataError, match=r"field 'stars' is 9, .* \(data\.labels\.field names it\); mend it"):
        documents(tmp_path, fields=[nine], path=path)
    tally = Tally("skip")
    assert [row[0] for row in documents(tmp_path, tally, [nine], path=path)] == ["b"]
    assert tally.bad_lines == 1


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"text": "a", "star": 1}, r"no field 'stars'; did you mean 'star'\?"),
        ({"text": "a", "stars": [1]}, r"field 'stars' is a JSON array"),
    ],
)
def test_a_json_line_without_the_field(write, tmp_path, record, message):
    write("a.jsonl", json.dumps(record))
    with pytest.raises(DataError, match=rf"a\.jsonl:1: .*{message}.*data\.labels\.field"):
        documents(tmp_path, fields=[STARS], path="a.jsonl")


def test_the_key_knows_which_fields_were_read(files):
    marks = [
        open_source(SourceConfig(path="a.jsonl"), files, fields).identity(HashCache(None))
        for fields in ((), (STARS,), (STARS, SECOND))
    ]
    assert marks[0]["files"][0][2] == {"text_field": "text"}
    assert marks[1]["files"][0][2] == {"text_field": "text", "fields": ["stars"]}
    assert marks[2] not in marks[:2]
