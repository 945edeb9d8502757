import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress

import numpy as np
import psutil
import pytest
from tiny_tokenizer import SENTENCES

from kitae.data.documents import Document
from kitae.data.tokenise import BATCH_CHARS, BATCH_DOCUMENTS, Batch, Encoder, EncoderSpec, batched
from kitae.data.workers import WORKERS_MIN_BYTES, available_cores, choose_workers, encoding
from kitae.errors import DataError


def documents(count=3000):
    return [Document(f"{n}: {SENTENCES[n % len(SENTENCES)]}", f"t.txt:{n}") for n in range(count)]


def as_lists(batch: Batch):
    return [
        getattr(batch, name) if name == "digests" else getattr(batch, name).tolist() for name in vars(batch)
    ]


def test_batches_are_bounded_and_in_order():
    stream = [*documents(5000), Document("x" * (3 * BATCH_CHARS), "long"), *documents(1)]
    batches = list(batched(stream))
    assert [document for batch in batches for document in batch] == stream
    assert all(len(batch) <= BATCH_DOCUMENTS for batch in batches)
    assert all(sum(len(d.text) for d in batch) <= BATCH_CHARS for batch in batches if len(batch) > 1)
    assert list(batched([])) == []


def test_workers_give_the_same_as_none(tokenizer):
    spec = EncoderSpec(tokenizer.to_json(), "nfkc", bos=(0,), eos=(1,))
    with encoding(spec, 0) as encode:
        alone = [(len(docs), as_lists(batch)) for docs, batch in encode(documents())]
    with encoding(spec, 2) as encode:
        together = [(len(docs), as_lists(batch)) for docs, batch in encode(documents())]
    assert alone == together
    assert sum(count for count, _ in alone) == 3000


def test_empty_documents_come_out_empty(tokenizer):
    """T30: no row of bare begin and end tokens."""
    spec = EncoderSpec(tokenizer.to_json(), bos=(0,), eos=(1,))
    batch = Encoder(spec)(["", "a", " \n\u3000\t", "\n", "b"])
    assert batch.lengths.tolist() == [0, 3, 0, 0, 3]
    assert batch.num_bytes.tolist() == [0, 1, 0, 0, 1]


def test_newlines_at_the_ends_change_no_id(tokenizer):
    """T36."""
    batch = Encoder(EncoderSpec(tokenizer.to_json()))(["\n\nfox\ndog\r\n", "fox\ndog"])
    half = len(batch.ids) // 2
    assert batch.ids[:half].tolist() == batch.ids[half:].tolist()
    assert batch.digests[0] == batch.digests[1]


def test_select_keeps_documents_whole(tokenizer):
    spec = EncoderSpec(tokenizer.to_json(), eos=(1,))
    batch = Encoder(spec)(SENTENCES)
    chosen = np.array([True, False, False, True, False, True])
    kept = [text for text, keep in zip(SENTENCES, chosen, strict=True) if keep]
    assert as_lists(batch.select(chosen)) == as_lists(Encoder(spec)(kept))


def test_a_long_document_gives_the_same_ids_as_its_parts(tokenizer):
    """T31: 5 MB on one line. Parts end where the tokenizer's own words end."""
    part = " ".join(SENTENCES).replace("\n", " ")
    count = 5_000_000 // len(part.encode()) + 1
    whole = Encoder(EncoderSpec(tokenizer.to_json()))([" " + " ".join([part] * count)])
    assert whole.num_bytes[0] >= 5_000_000
    assert whole.ids.tolist() == tokenizer.encode(" " + part) * count


def test_memory_for_a_long_document_is_bounded(tokenizer_folder, tmp_path):
    """T31: at most 160 bytes of memory for each byte of one 5 MB line, the reader included."""
    script = f"""
        import resource
        from pathlib import Path
        from kitae.data.tokenizer import TextTokenizer
        from kitae.data.tokenise import Encoder, EncoderSpec
        from kitae.data.documents import Tally
        from kitae.data.readers import read_jsonl
        from kitae.recipe.sources import SourceConfig
        encoder = Encoder(EncoderSpec(TextTokenizer.load(Path({str(tokenizer_folder)!r})).to_json()))
        path = Path({str(tmp_path / "long.jsonl")!r})
        path.write_text('{{"text": "' + "The quick brown fox jumps. " * 185_000 + '"}}')
        encoder(["warm"])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        (document,) = read_jsonl(path, "long.jsonl", SourceConfig(path="x"), Tally())
        encoder([document.text])
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / path.stat().st_size)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert float(result.stdout) < 160


def test_how_many_workers_and_why(monkeypatch):
    monkeypatch.setattr("kitae.data.workers.available_cores", lambda: 4)
    assert choose_workers(3, 10) == (3, "data.workers")
    assert choose_workers("auto", WORKERS_MIN_BYTES) == (4, "4 cores")
    assert choose_workers("auto", None) == (4, "4 cores")
    assert choose_workers("auto", 1 << 20) == (0, "1.0 MiB of text are done sooner than workers start")
    monkeypatch.setattr("kitae.data.workers.available_cores", lambda: 1)
    assert choose_workers("auto", 1 << 40) == (0, "one core")
    assert available_cores() >= 1


def test_a_dead_worker_is_a_clear_error(tokenizer):
    with encoding(EncoderSpec(tokenizer.to_json()), 1) as encode:
        stream = encode(documents(20_000))
        next(stream)
        for child in psutil.Process().children():
            with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):  # those that ended by themselves
                if "spawn_main" in " ".join(child.cmdline()):
                    child.kill()
        with pytest.raises(DataError, match="a tokeniser process died"):
            list(stream)


SCRIPT = """
    import sys, time
    from pathlib import Path
    from kitae.data.documents import Document
    from kitae.data.tokenise import EncoderSpec
    from kitae.data.tokenizer import TextTokenizer
    from kitae.data.workers import encoding
    def endless():
        while True:
            yield Document("The quick brown fox. " * 50, "x")
    if __name__ == "__main__":
        assert "torch" not in sys.modules
        spec = EncoderSpec(TextTokenizer.load(Path(sys.argv[1])).to_json())
        with encoding(spec, 2) as encode:
            for number, _ in enumerate(encode(endless())):
                if number == 5:
                    print("running", flush=True)
"""


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_when_the_parent_is_stopped(tokenizer_folder, write, stop):
    script = write("endless.py", textwrap.dedent(SCRIPT))
    command = [sys.executable, str(script), str(tokenizer_folder)]
    parent = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "running\n"
    children = psutil.Process(parent.pid).children(recursive=True)
    workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    assert len(workers) == 2
    assert not any("torch" in mapped.path for child in workers for mapped in child.memory_maps())
    # Ctrl-C goes to the whole group, as a terminal sends it; kill -9 to the parent only.
    (os.killpg if stop == signal.SIGINT else os.kill)(parent.pid, stop)
    _, errors = parent.communicate(timeout=30)
    assert errors.count("Traceback") <= 1, errors
    _, alive = psutil.wait_procs(children, timeout=10)
    deadline = time.monotonic() + 10
    while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in alive):
        assert time.monotonic() < deadline, f"left: {alive}"
        time.sleep(0.05)
