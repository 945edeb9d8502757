import gzip

import pytest

from kitae.data.documents import Field, Tally
from kitae.data.sources import open_source
from kitae.errors import DataError
from kitae.recipe.sources import SourceConfig

LABEL = Field("stars", "data.labels.field", str)


@pytest.fixture
def read(tmp_path):
    def run(name, tally=None, fields=(), **options):
        source = open_source(SourceConfig(path=name, **options), tmp_path, fields)
        return [(doc.text, doc.where, *doc.fields) for doc in source.documents(tally or Tally())]

    return run


def test_quotes_commas_and_line_breaks_inside_a_value(write, read):
    write("a.csv", 'text,stars\r\n"good, really",5\r\n"two\nlines ""quoted""",1\r\n\r\nplain,3\r\n')
    tally = Tally()
    assert read("a.csv", tally, [LABEL]) == [
        ("good, really", "a.csv:2", "5"),
        ('two\nlines "quoted"', "a.csv:3", "1"),
        ("plain", "a.csv:6", "3"),
    ]
    assert (tally.documents, tally.blank_lines) == (3, 1)


def test_tabs_marks_and_compression(write, read, tmp_path):
    write("a.tsv", b"\xef\xbb\xbftext\tn\na,b\t1\n")
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress("n\ttext\n1\t日本\u2028語\n".encode()))
    assert read("a.tsv") == [("a,b", "a.tsv:2")]
    assert read("b.tsv.gz") == [("日本\u2028語", "b.tsv.gz:2")]


def test_a_long_value_is_read(write, read):
    write("a.csv", f"text\n{'x' * 300_000}\n")
    assert len(read("a.csv")[0][0]) == 300_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text,stars\na,1\nb\nc,2\n", "a.csv:3: 1 values where the first line names 2 columns"),
        (b"text,stars\na,1\nb\xff,2\nc,2\n", "a.csv:3: not valid UTF-8"),
        (b"text,stars\na,1\nb,2,3\nc,2\n", "a.csv:3: 3 values where the first line names 2 columns"),
    ],
)
def test_a_bad_record_stops_or_is_counted(write, read, content, message):
    write("a.csv", content)
    with pytest.raises(DataError, match=message):
        read("a.csv")
    tally = Tally("skip")
    assert [row[0] for row in read("a.csv", tally)] == ["a", "c"]
    assert tally.bad_examples == [message]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('text\n"never closed\nb\n', r"a\.csv:2: not valid CSV from here on \(unexpected end of data\)"),
        ("text,text\na,b\n", "two columns are called 'text'"),
        ("body\na\n", r"there is no column 'text'; there are: body \(data\.\*\.text_field names it\)"),
        ("", r"there is no column 'text'; there are: none"),
        (
            "text;stars\na;1\n",
            r"a\.csv: the columns are separated by ';', and kitae reads ','; write the file anew",
        ),
    ],
)
def test_a_file_that_is_no_such_table(write, read, content, message):
    write("a.csv", content)
    with pytest.raises(DataError, match=message):
        read("a.csv")


def test_a_missing_column_of_a_further_field_names_its_option(write, read):
    write("a.csv", "text,star\na,1\n")
    with pytest.raises(DataError, match=r"no column 'stars'; did you mean 'star'\?.*data\.labels\.field"):
        read("a.csv", fields=[LABEL])
