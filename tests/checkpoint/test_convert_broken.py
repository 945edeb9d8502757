"""Sources that are broken, in every format, as a person meets them: one message, and no target.

Conversions that are ended by a signal are in `test_convert_kill.py`.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path

import pytest
import torch
from broken_case import (
    DOWN,
    EXTRA,
    RANK,
    Harm,
    call_tied,
    cut,
    edit_manifest,
    lie,
    make_sources,
    remove,
    values,
)
from convert_case import left_in
from hf_case import all_tensors, assert_same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_case import kitae
from nxd_case import fixture_weights

from kitae.checkpoint.wrapped import Counting
from kitae.errors import ProofError, StorageError, WeightsError

NAN = torch.full((32, 48), torch.nan).bfloat16()
PART_NAN = torch.full((32, 12), torch.nan).bfloat16()
ALL = ("safetensors", "sharded safetensors", "bin", "sharded bin", "kitae", "nxd", "xser")
INDEX = "names tensors that are not in their file: " + re.escape(DOWN)
CUT = r"is cut off"
COPY = r"; copy the checkpoint again from where it was made, or take an earlier one"
DOWNLOAD = r"; delete it and download it again"
OLDER = r"; use an older checkpoint of the run, or remove this folder"
# Fault, source, what is done to it, what the message says: where, what, and the way out.
MATRIX: list[tuple[str, str, Harm, str]] = [
    ("index lies", "sharded safetensors", lie("model.safetensors.index.json"), INDEX),
    ("index lies", "sharded bin", lie("pytorch_model.bin.index.json"), INDEX),
    ("index lies", "kitae", edit_manifest, r"manifest\.json is damaged: .* the digest it names" + OLDER),
    (
        "missing file",
        "sharded safetensors",
        remove("*.safetensors"),
        r"1 of 3 .* missing: model-00001.*; down",
    ),
    ("missing file", "sharded bin", remove("*2-of*.bin"), r"1 of 3 .* missing: pytorch_model-00002.*; down"),
    (
        "missing file",
        "safetensors",
        remove("*.safetensors"),
        "holds no weights that kitae knows; it reads Hug",
    ),
    ("missing file", "bin", remove("*.bin"), "holds no weights that kitae knows; it reads Hugging Face"),
    ("missing file", "kitae", remove("checkpoints/*/w*.safetensors"), r"weights-.* is missing, .*" + OLDER),
    ("missing file", "nxd", remove(RANK), r"1 rank files beside the 3 found .* \(tp 2\)" + COPY),
    (
        "missing file",
        "xser",
        remove(f"{RANK}.tensors/tensor_7.pt"),
        r"refers to tensor 7, but .*_7\.pt" + COPY,
    ),
    ("truncated file", "safetensors", cut("*.safetensors"), CUT + ": its header promises.*" + DOWNLOAD),
    ("truncated file", "sharded safetensors", cut("*2-of*s"), r"00002-of.* is cut off: its.*" + DOWNLOAD),
    ("truncated file", "bin", cut("*.bin"), r"pytorch_model\.bin is cut off .*" + COPY),
    ("truncated file", "sharded bin", cut("*3.bin", 7000), r"00003\.bin is cut off .*" + COPY),
    ("truncated file", "kitae", cut("checkpoints/*/w*.safetensors"), "is truncated: .* instead of.*" + OLDER),
    ("truncated file", "nxd", cut(RANK), r"tp_rank_02_pp_rank_00\.pt is cut off .*" + COPY),
    ("truncated file", "xser", cut(f"{RANK}.tensors/tensor_7.pt"), r"tensor_7\.pt is cut off .*" + COPY),
    *(
        ("wrong dtype", source, values(DOWN, torch.ones(32, 48, dtype=torch.int8)), message)
        for source, message in dict.fromkeys(
            ALL[:4], rf"quantised .* {re.escape(DOWN)} \(torch.int8\); dequantise"
        ).items()
    ),
    *(
        (
            "wrong dtype",
            source,
            values(DOWN, torch.ones(32, 12)),
            r"parts of different dtypes: .*float32 on \(tp 2\)",
        )
        for source in ("nxd", "xser")
    ),
    *(
        ("extra tensor", source, values(EXTRA, torch.ones(3)), message + re.escape(EXTRA))
        for source, message in {
            "safetensors": "1 tensors are not part of the model that config.json describes: ",
            "sharded safetensors": "files hold tensors that the index does not name .",
            "bin": "1 tensors are not part of the model that config.json describes: ",
            "sharded bin": "files hold tensors that the index does not name .",
            "nxd": "tp 2: 1 tensors are not part of the model that the configuration describes: ",
            "xser": "tp 2: 1 tensors are not part of the model that the configuration describes: ",
        }.items()
    ),
    *(
        ("missing tensor", source, values(DOWN, None), message + re.escape(DOWN))
        for source, message in {
            "safetensors": "1 of 21 tensors are missing: ",
            "bin": "1 of 21 tensors are missing: ",
            "nxd": "tp 2: 1 of 19 tensors that the configuration needs are missing: ",
            "xser": "tp 2: 1 of 19 tensors that the configuration needs are missing: ",
        }.items()
    ),
    *(
        ("NaN tensor", source, values(DOWN, NAN if source in ALL[:5] else PART_NAN), message)
        for source, message in dict.fromkeys(
            ALL, f"tensor {re.escape(DOWN)} holds values that are not finite .*: take another checkpoint"
        ).items()
    ),
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_sources(tmp_path_factory.mktemp("sources"))


def convert(source: Path, out: Path, to: str = "hf", proof: str = "values") -> int:
    """The command line; a kitae checkpoint and NxD files carry their configuration here."""
    return kitae("convert", source, out, "--to", to, "--proof", proof)


def one_message(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said on standard error: a line, and not that of a bug."""
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line


def nothing_looks_complete(folder: Path, *there: str) -> None:
    """No target: whatever is left beside it is hidden."""
    assert {name for name in left_in(folder) if not name.startswith(".")} == set(there)


@pytest.mark.parametrize(("fault", "source", "harm", "message"), MATRIX, ids=lambda value: str(value)[:24])
def test_broken(
    tmp_path: Path,
    sources: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    fault: str,
    source: str,
    harm: Harm,
    message: str,
) -> None:
    folder = Path(shutil.copytree(sources[source], tmp_path / "in" / source))
    harm(folder)
    (tmp_path / "to").mkdir()
    assert convert(folder, tmp_path / "to/out") == WeightsError.exit_code
    assert re.search(message, one_message(capsys)), fault
    nothing_looks_complete(tmp_path / "to")


@pytest.mark.parametrize(
    "source", ["safetensors", "sharded safetensors", "bin", "sharded bin", "nxd", "xser"]
)
def test_a_tied_flag_with_a_head_of_its_own(tmp_path, sources, capsys, source):
    """Tensors decide: the head is kept, and it is said."""
    folder = Path(shutil.copytree(sources[source], tmp_path / source))
    call_tied(folder)
    assert convert(folder, tmp_path / "out", proof="logits") == 0
    assert "lm_head.weight differs from the embedding: untied, against config.json" in capsys.readouterr().out
    assert_same(all_tensors(tmp_path / "out"), fixture_weights())
    assert json.loads((tmp_path / "out/config.json").read_text())["tie_word_embeddings"] is False


TARGETS = {
    "hf": [],
    "kitae": [],
    "nxd": ["--tp", "4"],
    "xser": ["--tp", "2", "--xser"],
}


@pytest.mark.parametrize("target", TARGETS)
def test_a_disk_that_fills_up(tmp_path, sources, capsys, mount_small, monkeypatch, target):
    """Something else takes the room after it was looked at."""
    disk, read = mount_small(tmp_path / "disk", 4 * 1024), Counting.read

    def filling(self: Counting, *given: object) -> torch.Tensor:
        with (disk / "filler").open("ab") as file:
            file.write(bytes(disk_free(disk)))
        return read(self, *given)

    monkeypatch.setattr(Counting, "read", filling)
    words = ["--to", "nxd" if target == "xser" else target, *TARGETS[target], "--proof", "values"]
    assert kitae("convert", sources["safetensors"], disk / "out", *words) == StorageError.exit_code
    message = one_message(capsys)
    assert f"error: cannot save to {disk / 'out'}: No space left on device; needed are" in message
    assert ".tmp-" not in message
    nothing_looks_complete(disk, "filler")


def disk_free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


FUZZED = ("safetensors", "bin", "sharded bin", "kitae", "nxd", "xser")
ENDS = {0, WeightsError.exit_code, ProofError.exit_code, 2}


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    source=st.sampled_from(FUZZED),
    file=st.integers(0, 999),
    how=st.sampled_from(["flip", "flip", "cut", "zero"]),
    where=st.integers(0, 2**31),
    near=st.sampled_from([None, 0, -1]),
    seed=st.integers(0, 999),
)
def test_any_damage_is_told_or_does_no_harm(
    tmp_path_factory, sources, capsys, source, file, how, where, near, seed
):
    """Property: a clear error, or a proven result in which no more than the changed bytes is different."""
    folder = tmp_path_factory.mktemp("fuzzed")
    damaged = Path(shutil.copytree(sources[source], folder / source))
    files = sorted(path for path in damaged.rglob("*") if path.is_file() and path.stat().st_size)
    changed = damage(files[file % len(files)], how, where, near, random.Random(seed))
    capsys.readouterr()
    code = convert(damaged, folder / "out")
    assert code in ENDS
    if code:
        one_message(capsys)
        nothing_looks_complete(folder, source)
        return
    found, due = all_tensors(folder / "out"), fixture_weights()
    assert {n: (t.shape, t.dtype) for n, t in found.items()} == {
        n: (t.shape, t.dtype) for n, t in due.items()
    }
    assert sum(int((found[n].view(torch.int16) != due[n].view(torch.int16)).sum()) for n in due) <= changed


def damage(path: Path, how: str, where: int, near: int | None, draw: random.Random) -> int:
    """Change bytes of a file, of its first or last ones where `near` says so; how many."""
    content = bytearray(path.read_bytes())
    where %= min(len(content), 2500) if near is not None else len(content)
    where = len(content) - 1 - where if near == -1 else where
    if how == "cut":
        path.write_bytes(content[:where])
        return 0
    count = 1 if how == "flip" else min(draw.randrange(1, 40), len(content) - where)
    for place in range(where, where + count):
        content[place] = 0 if how == "zero" else content[place] ^ 1 << draw.randrange(8)
    path.write_bytes(content)
    return count
