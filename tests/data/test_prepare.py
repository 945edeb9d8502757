import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from tiny_tokenizer import SENTENCES, write_tokenizer
from tokenizers import Tokenizer

import kitae.data.build as build_module
import kitae.data.reading as reading_module
from kitae.data.pack import PackWriter
from kitae.data.prepare import data_key, prepare
from kitae.data.tokenizer import TextTokenizer, tokenizer_fingerprint
from kitae.errors import DataError, StorageError

LINES = [f"{n}: {SENTENCES[n % len(SENTENCES)]}".replace("\n", " ") for n in range(200)]


@pytest.fixture
def go(tmp_path, tokenizer_folder):
    """Prepare with what most tests share; `made.card` and the rest come back."""

    def run(config, *, seed=0, folder=None, rows=400, **options):
        return prepare(
            config,
            base=tmp_path,
            tokenizer_folder=folder or tokenizer_folder,
            embedding_rows=rows,
            cache=tmp_path / "cache",
            seed=seed,
            **options,
        )

    return run


@pytest.fixture
def corpus(write):
    write("a.txt", "\n".join(LINES))
    return {"path": "a.txt", "source": {"document": "line"}}


def stream_of(packed):
    return packed.tokens(0, packed.meta.tokens).tolist()


def left_in(tmp_path):
    """All that lies in the cache but file hashes and locks."""
    folder = tmp_path / "cache" / "data"
    return sorted(p.name for p in folder.iterdir() if p.suffix != ".lock") if folder.exists() else []


def test_the_whole_text_is_there(go, corpus, make_config, tokenizer):
    made = go(make_config(**corpus, bos="always"))
    expected = [token for line in LINES for token in (0, *tokenizer.encode(line), 1)]
    assert stream_of(made.train) == expected
    split = made.card["splits"]["train"]
    assert split["documents"] == 200
    assert split["bytes"] == sum(len(line.encode()) for line in LINES)
    assert split["chars"] == sum(map(len, LINES))
    assert split["tokens"] == len(expected) == split["tokens_in_rows"] + split["tokens_left_over"]
    assert split["text_tokens"] + split["begin_and_end_tokens"] == len(expected)
    assert split["rows"] == len(expected) // 16 == len(made.train)
    assert made.heldout is None
    assert made.folder == made.folder.parent / made.key
    assert made.card["warnings"] == []


def test_second_time_tokenises_nothing(go, corpus, make_config, monkeypatch):
    """Case 44."""
    first = go(make_config(**corpus))
    monkeypatch.setattr(reading_module, "encoding", lambda *args: pytest.fail("tokenised again"))
    again = go(make_config(**corpus))
    assert (first.reused, again.reused) == (False, True)
    assert again.key == first.key
    assert len(again.train) == len(first.train)


def test_key_follows_content_and_options_not_names(write, tmp_path, make_config, tokenizer_folder):
    """Case 44: one byte of text or vocabulary is another key; a name, a time, a worker is not."""
    write("a.txt", "some text")
    write("b.txt", "some text")
    write("c.txt", "some texT")

    def key(path="a.txt", fingerprint="f", seed=0, **options):
        config = make_config(path, **options)
        return data_key(config, base=tmp_path, tokenizer_fingerprint=fingerprint, seed=seed)

    half = {"heldout": {"fraction": 0.5}}
    assert key() == key("b.txt") == key(seed=5) == key(workers=7) == key(str(tmp_path / "a.txt"))
    assert key(source={"text_field": "unused by text"}) == key()
    others = [
        key("c.txt"),
        key(fingerprint="g"),
        key(sequence_length=32),
        key(eos="never"),
        key(document_mask=False),
        key(normalisation="nfkc"),
        key(on_bad_line="skip"),
        key(remainder="pad"),
        key(source={"document": "line"}),
        key(**half),
        key(**half, seed=1),
        key(heldout={"sources": [{"path": "c.txt"}]}),
    ]
    assert len({key(), *others}) == len(others) + 1
    folder = tmp_path / "changed"
    shutil.copytree(tokenizer_folder, folder)
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace('"!"', '"¡"', 1))
    assert key(fingerprint=tokenizer_fingerprint(folder)) != key(
        fingerprint=tokenizer_fingerprint(tokenizer_folder)
    )


def test_any_number_of_workers_writes_the_same_bytes(go, corpus, make_config, tmp_path):
    files = []
    for workers in (0, 2):
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        made = go(make_config(**corpus, workers=workers, heldout={"fraction": 0.2}))
        assert not made.reused
        found = sorted(path for side in ("train", "heldout") for path in (made.folder / side).iterdir())
        files.append([(path.name, path.read_bytes()) for path in found])
    assert files[0] == files[1]


def test_what_is_dropped_is_counted(go, write, make_config):
    """T30, T28 and T33 in one card."""
    texts = ["good text here, long enough", "", "\n \n", "ｆｕｌｌ width", "\u3000"]
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    write("a.jsonl", "\n".join([lines[0], "", "{broken", *lines[1:]]))
    said = []
    config = make_config("a.jsonl", normalisation="nfkc", on_bad_line="skip", sequence_length=4)
    made = go(config, report=said.append)
    source = made.card["sources"]["train"]
    assert (source["documents"], source["empty_documents_dropped"]) == (5, 3)
    assert (source["from"][0]["blank_lines"], source["from"][0]["bad_lines"]) == (1, 1)
    assert source["from"][0]["bad_line_examples"][0].startswith("a.jsonl:3: not valid JSON")
    assert made.card["splits"]["train"]["documents"] == 2
    assert made.card["splits"]["train"]["documents_changed_by_normalisation"] == 1
    assert made.card["warnings"] == ["1 bad lines were left out"]
    assert "warning: 1 bad lines were left out" in said
    assert "3 empty documents were dropped" in said


def test_heldout_by_fraction_shares_no_document(go, make_config, write, tokenizer):
    write("a.txt", "\n".join(LINES + LINES[:50]))
    made = go(make_config("a.txt", source={"document": "line"}, heldout={"fraction": 0.3}))
    sides = [set(split_documents(packed)) for packed in (made.train, made.heldout)]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 200
    assert 30 < len(sides[1]) < 90
    assert made.heldout.meta.remainder == 0, "each held-out token counts once"
    assert made.card["splits"]["train"]["documents"] + made.card["splits"]["heldout"]["documents"] == 250
    other = go(make_config("a.txt", source={"document": "line"}, heldout={"fraction": 0.3}), seed=1)
    assert set(split_documents(other.heldout)) != sides[1]


def split_documents(packed):
    stream = stream_of(packed)
    ends = [place + 1 for place, token in enumerate(stream) if token == 1]
    return [tuple(stream[a:b]) for a, b in zip([0, *ends], ends, strict=False)]


def test_heldout_sources_and_their_duplicates_are_reported(go, corpus, make_config, write):
    write("held.txt", "\n".join([LINES[3], "never trained on", LINES[150], "\n"]))
    heldout = {"sources": [{"path": "held.txt", "document": "line"}]}
    made = go(make_config(**corpus, heldout=heldout))
    assert made.card["heldout_duplicates_in_train"] == 2
    assert made.card["warnings"][0].startswith("2 training documents are also held out")
    assert made.card["splits"]["heldout"]["documents"] == 3
    assert made.card["splits"]["train"]["documents"] == 200


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, r"data\.train: there is no text: 1 documents, all empty"),
        (
            "one",
            {"heldout": {"fraction": 0.5}},
            r"heldout\.fraction: 0\.5 of 1 documents leaves (train|heldout) empty",
        ),
        ("", {"heldout": {"fraction": 0.5}}, r"data\.train: there is no text"),
        (
            "short",
            {"sequence_length": 512},
            r"data\.sequence_length: train text is \d+ tokens, less than one row",
        ),
        ("text", {"heldout": {"sources": [{"path": "void.txt"}]}}, r"data\.heldout: there is no text"),
    ],
)
def test_an_empty_side_is_a_clear_error_and_leaves_nothing(
    go, write, make_config, tmp_path, content, options, message
):
    write("a.txt", content)
    write("void.txt", "\n\n")
    with pytest.raises(DataError, match=message):
        go(make_config("a.txt", **{"sequence_length": 2, **options}))
    assert left_in(tmp_path) == []


def test_a_short_text_may_be_padded(go, write, make_config):
    write("a.txt", "short")
    made = go(make_config("a.txt", sequence_length=512, remainder="pad"))
    assert len(made.train) == 1
    assert made.card["splits"]["train"]["padding"] == 512 - made.train.num_tokens


def test_an_id_beyond_the_embedding_stops_with_the_place(go, write, make_config, tokenizer_json, tmp_path):
    """T25: the token, its id, the rows and the file; also when the data was prepared for a larger model."""
    backend = Tokenizer.from_str(tokenizer_json)
    backend.add_tokens(["<added>"])
    folder = write_tokenizer(tmp_path / "tok", backend.to_str())
    write("a.txt", "\n".join([*LINES[:40], "it holds <added> here"]))
    config = make_config("a.txt", source={"document": "line"})
    message = r"^a\.txt:41: token '<added>' has id 400, but the embedding has 400 rows"
    with pytest.raises(DataError, match=message):
        go(config, folder=folder, rows=400)
    assert left_in(tmp_path) == []
    assert go(config, folder=folder, rows=401).card["largest_token"]["where"] == "a.txt:41"
    with pytest.raises(DataError, match=message):
        go(config, folder=folder, rows=400)


def test_an_end_token_beyond_the_embedding_stops_at_once(go, corpus, make_config, tokenizer_json, tmp_path):
    backend = Tokenizer.from_str(tokenizer_json)
    backend.add_special_tokens(["<end>"])
    folder = write_tokenizer(tmp_path / "tok", backend.to_str(), {"eos_token": "<end>"})
    with pytest.raises(DataError, match=r"data\.eos\): token '<end>' has id 400"):
        go(make_config(**corpus), folder=folder, rows=400)
    unused = go(make_config(**corpus, eos="never"), folder=folder, rows=400)
    assert "the tokenizer knows ids up to 400, the model 400 rows" in unused.card["warnings"][0]


def test_special_tokens_inside_the_text_are_told(go, write, make_config):
    write("a.txt", "before <e> after <e> and <b> once more, to be long enough")
    warnings = go(make_config("a.txt", bos="always")).card["warnings"]
    assert warnings == [
        "the begin token stands 1 times inside the text itself",
        "the end token stands 2 times inside the text itself",
    ]


def test_no_disk_space_names_path_and_need_and_leaves_nothing(go, corpus, make_config, tmp_path, monkeypatch):
    append = PackWriter.append

    def full(self, ids, lengths):
        append(self, ids, lengths)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PackWriter, "append", full)
    with pytest.raises(
        StorageError,
        match=r"cannot save to .*cache/data/\w+: No space left on device; needed are \d+,\d+ bytes",
    ):
        go(make_config(**corpus))
    assert left_in(tmp_path) == []
    monkeypatch.undo()
    assert not go(make_config(**corpus)).reused


def test_a_full_disk_for_real(go, write, make_config, tmp_path, mount_small):
    """A file system of 64 KiB; needs the right to mount one."""
    mount_small(tmp_path / "cache", 64)
    rng = np.random.default_rng(0)
    write("a.txt", "".join(map(chr, rng.integers(33, 127, 100_000))))
    with pytest.raises(
        StorageError, match=r"No space left.*; needed are [\d,]{6,7} bytes, free are [\d,]{1,6} bytes"
    ):
        go(make_config("a.txt"))
    assert left_in(tmp_path) == []


def test_a_cache_that_cannot_be_made(go, corpus, make_config, tmp_path):
    (tmp_path / "cache").write_text("a file where the cache should be")
    with pytest.raises(StorageError, match="cannot save to"):
        go(make_config(**corpus))


def test_a_broken_source_leaves_nothing(go, write, make_config, tmp_path):
    write("a.jsonl", '{"text": "good"}\n{"text": 1}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:2"):
        go(make_config("a.jsonl"))
    assert left_in(tmp_path) == []


SCRIPT = """
    import sys, time
    from pathlib import Path
    import kitae.data.build as build
    from kitae.data.prepare import prepare
    from kitae.recipe.sources import DataConfig
    base, tokenizer, slow = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    add = build.Side.add
    def slowly(self, batch):
        add(self, batch)
        print("writing", flush=True)
        time.sleep(slow) if slow >= 0 else sys.stdin.readline()
    build.Side.add = slowly
    config = DataConfig(train=[{"path": "a.txt", "document": "line"}], sequence_length=16, workers=0)
    options = {"tokenizer_folder": tokenizer, "embedding_rows": 400, "cache": base / "cache", "seed": 0}
    made = prepare(config, base=base, **options)
    print("reused" if made.reused else "made", len(made.train), flush=True)
"""


FOR_A_LINE = -1
"""How slow a process is that waits for a line of its input."""


def start(tmp_path, tokenizer_folder, slow):
    # Not by way of a file: a second start would empty it while the first process reads it.
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path), str(tokenizer_folder), str(slow)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_many_at_once_prepare_once(tmp_path, tokenizer_folder, corpus):
    runs = [start(tmp_path, tokenizer_folder, 0.3) for _ in range(3)]
    outputs = [run.communicate(timeout=60)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    answers = sorted(output.splitlines()[-1].split()[0] for output in outputs)
    assert answers == ["made", "reused", "reused"]
    assert len(left_in(tmp_path)) == 1


def test_killed_half_way_leaves_nothing_that_is_used(tmp_path, tokenizer_folder, corpus, go, make_config):
    run = start(tmp_path, tokenizer_folder, 60)
    assert run.stdout.readline() == "writing\n"
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    (rest,) = left_in(tmp_path)
    assert rest.startswith(".")
    begin = time.monotonic()
    made = go(make_config(**corpus))
    assert time.monotonic() - begin < 30, "the lock of a dead process does not hold"
    assert not made.reused
    assert left_in(tmp_path) == [made.key]


def test_waiting_for_another_process_is_said(tmp_path, tokenizer_folder, corpus, go, make_config):
    run = start(tmp_path, tokenizer_folder, FOR_A_LINE)
    assert run.stdout.readline() == "writing\n"
    said = []

    def hear(line):
        said.append(line)
        if "another process prepares" in line:
            run.stdin.write("go on\n")
            run.stdin.flush()

    assert go(make_config(**corpus), report=hear).reused
    assert any("another process prepares" in line for line in said)
    run.communicate()


def test_a_source_that_changes_meanwhile_is_refused(go, corpus, make_config, tmp_path, monkeypatch):
    add = build_module.Side.add

    def touch(self, batch):
        add(self, batch)
        (tmp_path / "a.txt").write_text("something else")

    monkeypatch.setattr(build_module.Side, "add", touch)
    with pytest.raises(DataError, match=r"a\.txt: changed while it was being read"):
        go(make_config(**corpus))
    assert left_in(tmp_path) == []


def test_a_damaged_folder_says_how_to_go_on(go, corpus, make_config):
    made = go(make_config(**corpus))
    (made.folder / "card.json").unlink()
    with pytest.raises(DataError, match=r"not prepared data .* delete the folder and prepare again"):
        go(make_config(**corpus))


def test_a_folder_without_a_tokenizer_is_told_before_anything_is_written(go, corpus, make_config, tmp_path):
    (tmp_path / "void").mkdir()
    with pytest.raises(DataError, match="no tokenizer here"):
        go(make_config(**corpus), folder=tmp_path / "void")
    assert left_in(tmp_path) == []


def test_nothing_imports_torch():
    code = (
        "import sys, kitae.data.prepare, kitae.data.inspect, kitae.data.cursor; print('torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_tokenizer_is_loaded_once_for_a_build(go, corpus, make_config, monkeypatch):
    loads = []
    load = TextTokenizer.load.__func__
    monkeypatch.setattr(
        TextTokenizer, "load", classmethod(lambda cls, folder: loads.append(folder) or load(cls, folder))
    )
    go(make_config(**corpus))
    go(make_config(**corpus))
    assert len(loads) == 1


def test_settings_without_effect_are_told(go, write, make_config):
    write("a.jsonl", '{"text": "long enough to be a row of text"}')
    made = go(make_config("a.jsonl", source={"document": "line", "split": "test", "text_field": "text"}))
    assert made.card["warnings"] == [
        "train: document of source a.jsonl has no effect",
        "train: split of source a.jsonl has no effect",
    ]
