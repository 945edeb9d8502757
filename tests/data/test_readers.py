import gzip
import json
import os

import pytest
import zstandard

from kitae.data.documents import Tally
from kitae.data.hashing import HashCache
from kitae.data.sources import open_source
from kitae.errors import DataError
from kitae.recipe.sources import SourceConfig

BROKEN = '{"text": "one"}\n\n{"text": "tw\n{"text": "th\u2028ree"}\n'


def read(folder, path, tally=None, **options):
    source = open_source(SourceConfig(path=path, **options), folder)
    return [(document.text, document.where) for document in source.documents(tally or Tally())]


def test_lines_split_on_newline_only(write, tmp_path):
    """T28: good, blank, broken, good with U+2028 inside."""
    write("a.jsonl", BROKEN)
    tally = Tally("skip")
    assert read(tmp_path, "a.jsonl", tally) == [("one", "a.jsonl:1"), ("th\u2028ree", "a.jsonl:4")]
    assert (tally.documents, tally.blank_lines, tally.bad_lines) == (2, 1, 1)
    assert tally.bad_examples[0].startswith("a.jsonl:3: not valid JSON")


def test_broken_line_stops_with_file_and_line(write, tmp_path):
    write("a.jsonl", BROKEN)
    with pytest.raises(DataError, match=r"^a\.jsonl:3: not valid JSON .* set data.on_bad_line: skip"):
        read(tmp_path, "a.jsonl")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[1, 2]", "a JSON array where an object"),
        ('"text"', "a JSON string where an object"),
        ('{"txt": "x"}', "there is no field 'text'; did you mean 'txt'?"),
        ('{"text": 5}', "field 'text' is a JSON number, not a string"),
        ('{"text": null}', "field 'text' is a JSON null"),
        ('{"text": "\\ud83d"}', "holds half a surrogate pair at character 1"),
        ("[" * 100_000, "not valid JSON"),
        ('{"text": "x", "n": ' + "9" * 10_000 + "}", "holds a number of too many digits;"),
        (b'{"text": "\xff"}', r"not valid UTF-8 \(byte 0xff at column 11\)"),
    ],
)
def test_each_kind_of_bad_line_says_why(write, tmp_path, line, why):
    raw = line if isinstance(line, bytes) else line.encode()
    write("a.jsonl", b'{"text": "good"}\n' + raw + b"\n")
    with pytest.raises(DataError, match=r"a\.jsonl:2: .*" + why):
        read(tmp_path, "a.jsonl")


def test_text_that_looks_like_a_schema_stays_text(write, tmp_path):
    """T29."""
    texts = ['{"dtype": "string", "_type": "Value"}', "2024-01-01", "1.5", "null", "[1, 2]"]
    write("a.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert [text for text, _ in read(tmp_path, "a.jsonl")] == texts


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("file", [("a\nb\n\n \nc", "t.txt")]),
        ("line", [("a", "t.txt:1"), ("b", "t.txt:2"), ("c", "t.txt:5")]),
        ("paragraph", [("a\nb", "t.txt:1"), ("c", "t.txt:5")]),
    ],
)
def test_documents_of_a_text_file(write, tmp_path, document, expected):
    write("t.txt", b"\xef\xbb\xbfa\r\nb\r\n\r\n \nc")
    assert read(tmp_path, "t.txt", document=document) == expected


def test_line_separators_stay_inside_a_line_of_text(write, tmp_path):
    write("t.txt", "a\u2028b\x0bc\x85d\n")
    assert read(tmp_path, "t.txt", document="line") == [("a\u2028b\x0bc\x85d", "t.txt:1")]


def test_bad_utf8_in_text_is_a_bad_line(write, tmp_path):
    write("t.txt", b"good\nb\xe3\x81ad\nalso good\n")
    with pytest.raises(DataError, match=r"t\.txt:2: not valid UTF-8 \(byte 0xe3 at column 2\)"):
        read(tmp_path, "t.txt")
    tally = Tally("skip")
    assert read(tmp_path, "t.txt", tally) == [("good\nalso good", "t.txt")]
    assert tally.bad_lines == 1


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_compressed_files_with_several_members(write, tmp_path, ending):
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[ending]
    write(f"a.jsonl{ending}", pack(b'{"text": "one"}\n{"te') + pack(b'xt": "two"}'))
    write(f"b.txt{ending}", pack(b"three\n" * 200_000))
    got = read(tmp_path, ".", document="line")
    assert got[:2] == [("one", f"a.jsonl{ending}:1"), ("two", f"a.jsonl{ending}:2")]
    assert len(got) == 200_002
    assert got[-1] == ("three", f"b.txt{ending}:200000")


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_cut_off_compressed_file_is_an_error(write, tmp_path, ending):
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[ending]
    text = "".join(f"line {n}\n" for n in range(5000)).encode()
    write(f"a.txt{ending}", pack(text)[:-20])
    with pytest.raises(DataError, match=r"a\.txt.*cannot be read beyond line \d+"):
        read(tmp_path, f"a.txt{ending}", document="line")


def test_progress_counts_bytes_on_disk(write, tmp_path):
    size = write("a.txt.gz", gzip.compress(b"line\n" * 10_000)).stat().st_size
    seen: list[int] = []
    read(tmp_path, "a.txt.gz", Tally(advance=seen.append), document="line")
    assert sum(seen) == size


def test_folder_is_recursive_sorted_and_leaves_others_out(write, tmp_path):
    for name in ("d/b.txt", "d/a/z.txt", "d/.hidden/x.txt", "d/.x.txt", "d/image.png", "d/c.jsonl"):
        write(name, '{"text": "j"}' if name.endswith("jsonl") else name)
    assert [where for _, where in read(tmp_path, "d")] == ["d/a/z.txt", "d/b.txt", "d/c.jsonl:1"]
    assert [where for _, where in read(tmp_path, "d", format="jsonl")] == ["d/c.jsonl:1"]
    assert [where for _, where in read(tmp_path, "d/*.txt")] == ["d/b.txt"]
    assert [where for _, where in read(tmp_path, "d/**/*.txt")] == ["d/a/z.txt", "d/b.txt"]


def test_a_name_with_glob_characters_is_a_file_first(write, tmp_path):
    write("a[1].txt", "x")
    assert read(tmp_path, "a[1].txt") == [("x", "a[1].txt")]


def test_format_may_be_stated_for_a_file_with_any_ending(write, tmp_path):
    write("corpus.data", '{"body": "x"}')
    assert read(tmp_path, "corpus.data", format="jsonl", text_field="body") == [("x", "corpus.data:1")]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("corpsu.txt", r"no such file or folder .* did you mean 'corpus.txt'\?"),
        ("*.parquet", "no file matches"),
        ("empty", "no file here has an ending that is read"),
        ("shards", "files of format hdf5 in a folder are read when asked for; write format: hdf5"),
        ("image.png", r"ending is none of \.txt, \.jsonl"),
        ("pipe.txt", "neither a file nor a folder"),
        ("link.txt", "a link that leads nowhere"),
        ("links", r"links/a\.txt: a link that leads nowhere"),
    ],
)
def test_a_path_that_leads_nowhere_says_so(write, tmp_path, path, message):
    write("corpus.txt", "x")
    write("image.png", "x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "links").mkdir()
    write("shards/a.hdf5", "x")
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "link.txt").symlink_to("nowhere")
    (tmp_path / "links/a.txt").symlink_to("a.txt")
    with pytest.raises(DataError, match=message):
        read(tmp_path, path)


def test_a_file_that_changes_while_it_is_read_is_noticed(write, tmp_path):
    path = write("a.txt", "x")
    source = open_source(SourceConfig(path="a.txt"), tmp_path)
    source.check_unchanged()
    path.write_text("xy")
    with pytest.raises(DataError, match=r"a\.txt: changed while it was being read"):
        source.check_unchanged()


def test_hashes_are_remembered_until_a_file_changes(write, tmp_path, monkeypatch):
    import os

    import kitae.data.hashing as hashing

    path = write("a.txt", "x" * 100)
    os.utime(path, (1_000_000, 1_000_000))
    hashes = HashCache(tmp_path / "hashes")
    first = hashes.sha256(path)
    with monkeypatch.context() as patch:
        patch.setattr(hashing, "file_sha256", lambda path: pytest.fail("hashed twice"))
        assert hashes.sha256(path) == first
    path.write_text("y" + "x" * 99)
    assert hashes.sha256(path) != first
    just_written = hashes.sha256(path)
    path.write_text("z" + "x" * 99)
    assert hashes.sha256(path) != just_written, "a file within its clock's tick must not be believed"
