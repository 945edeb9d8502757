"""A cache as a file: only what is done goes in, only what was not changed comes out (T51)."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from neuron_cache import VERSION, write_entry

from kitae.errors import PrecompileError
from kitae.precompile.archive import MANIFEST, Done, export, import_archive
from kitae.precompile.caches import CACHES, Place
from kitae.precompile.entries import STATES
from kitae.storage import files as storage_files

NAMES = [f"MODULE_{number}+aaaa" for number in ("111", "222", "333")]


def place(root: Path) -> Place:
    return Place(CACHES["neuron"], root)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        write_entry(tmp_path / "from", name, neff=bytes([number]) * 3000)
    export(place(tmp_path / "from"), tmp_path / "cache.tar")
    return tmp_path / "cache.tar"


def brought(archive: Path, root: Path, said: list[str] | None = None) -> Done:
    return import_archive(archive, lambda kind: place(root), (said if said is not None else []).append)


def tree(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".kitae"))
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def repacked(archive: Path, change) -> Path:
    """The archive with its members changed by a function of (name, content), which gives what replaces it."""
    to = archive.with_name("changed.tar")
    with tarfile.open(archive) as old, tarfile.open(to, "w") as new:
        for member in old:
            source = old.extractfile(member)
            assert source is not None
            for name, content in change(member.name, source.read()):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                new.addfile(info, io.BytesIO(content))
    return to


def test_what_is_exported_comes_in_the_same(archive: Path, tmp_path: Path):
    done = brought(archive, tmp_path / "to")
    assert done.entries == 3
    assert tree(tmp_path / "to") == tree(tmp_path / "from")
    assert [entry.state for entry in place(tmp_path / "to").entries()] == ["done"] * 3


def test_only_what_is_done_goes_in_and_locks_never(tmp_path: Path):
    for state in STATES:
        write_entry(tmp_path / "from", f"MODULE_{state.replace('-', '')}+aaaa", state)
    (tmp_path / f"from/{VERSION}/MODULE_done+aaaa/model.hlo_module.pb.lock").touch()
    done = export(place(tmp_path / "from"), tmp_path / "cache.tar")
    assert done.entries == 1
    assert len(done.left_out) == 4
    with tarfile.open(tmp_path / "cache.tar") as tar:
        names = tar.getnames()
    assert names[0] == MANIFEST
    assert all("MODULE_done+aaaa/" in name and not name.endswith(".lock") for name in names[1:])


def test_a_second_import_brings_nothing_and_overwrites_nothing(archive: Path, tmp_path: Path):
    own = write_entry(tmp_path / "to", NAMES[0], neff=b"my own")
    done = brought(archive, tmp_path / "to")
    assert (done.entries, done.left_out) == (2, [f"{VERSION}/{NAMES[0]}: there already"])
    assert (own / "model.neff").read_bytes() == b"my own"
    assert brought(archive, tmp_path / "to").entries == 0


def test_of_several_imports_at_once_one_brings_an_entry_and_all_succeed(archive: Path, tmp_path: Path):
    """T51."""
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: brought(archive, tmp_path / "to"), range(4)))
    assert sorted(one.entries for one in done) == [0, 0, 0, 3]
    assert tree(tmp_path / "to") == tree(tmp_path / "from")


@pytest.mark.parametrize("state", ["failed", "half-written", "empty"])
def test_what_is_not_good_here_is_replaced_and_that_is_said(archive: Path, tmp_path: Path, state: str):
    write_entry(tmp_path / "to", NAMES[1], state)
    said: list[str] = []
    assert brought(archive, tmp_path / "to", said).entries == 3
    assert said == [f"{VERSION}/{NAMES[1]}: {state} here, replaced by the archive's"]
    assert tree(tmp_path / "to") == tree(tmp_path / "from")


def test_a_changed_byte_is_refused_and_what_came_before_stays(archive: Path, tmp_path: Path):
    def flip(name: str, content: bytes):
        return [(name, content[:-1] + b"!" if name.endswith(f"{NAMES[1]}/model.neff") else content)]

    with pytest.raises(PrecompileError, match=r"model\.neff is not what the archive's manifest says"):
        brought(repacked(archive, flip), tmp_path / "to")
    assert [entry.name for entry in place(tmp_path / "to").entries()] == NAMES[:1]
    assert brought(archive, tmp_path / "to").entries == 2


def test_an_archive_that_ends_too_early_is_gone_on_with(archive: Path, tmp_path: Path):
    """Interrupted half-way, like a copy from S3: what is whole is used, the same command goes on."""
    part = tmp_path / "part.tar"
    part.write_bytes(archive.read_bytes()[:12_000])
    with pytest.raises(PrecompileError, match=r"cannot be read to its end .*; [12] entries are in the cache"):
        brought(part, tmp_path / "to")
    there = place(tmp_path / "to").entries()
    assert {entry.state for entry in there} == {"done"}
    assert brought(archive, tmp_path / "to").entries == 3 - len(there)
    assert tree(tmp_path / "to") == tree(tmp_path / "from")


def test_a_killed_import_leaves_nothing_under_a_good_name(archive: Path, tmp_path: Path, monkeypatch):
    write_entry(tmp_path / "to", NAMES[0])
    left = tmp_path / f"to/{VERSION}/.tmp-{NAMES[1]}-999999999-0123abcd"
    left.mkdir()
    (left / "model.neff").touch()
    assert brought(archive, tmp_path / "to").entries == 2
    assert not left.exists()


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", f"{VERSION}/other/model.neff"])
def test_a_file_outside_of_its_entry_is_refused_before_anything_is_written(archive, tmp_path, name: str):
    def leave(member: str, content: bytes):
        if member != MANIFEST:
            return [(member, content)]
        value = json.loads(content)
        value["entries"][0]["files"][name] = {"bytes": 1, "sha256": "0"}
        return [(member, json.dumps(value).encode())]

    with pytest.raises(PrecompileError, match="lies outside of its entry"):
        brought(repacked(archive, leave), tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_a_file_that_the_manifest_does_not_name_is_refused(archive: Path, tmp_path: Path):
    def add(name: str, content: bytes):
        more = [(f"{VERSION}/{NAMES[0]}/evil", b"x")] if name == MANIFEST else []
        return [(name, content), *more]

    with pytest.raises(PrecompileError, match="this archive was changed"):
        brought(repacked(archive, add), tmp_path / "to")


def test_what_is_no_archive_is_told(tmp_path: Path):
    with pytest.raises(PrecompileError, match="is not there"):
        brought(tmp_path / "none.tar", tmp_path / "to")
    (tmp_path / "text.tar").write_text("hello" * 500)
    with pytest.raises(PrecompileError, match="cannot be read to its end"):
        brought(tmp_path / "text.tar", tmp_path / "to")
    with tarfile.open(tmp_path / "other.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("readme"))
    with pytest.raises(PrecompileError, match="is no archive of kitae cache export"):
        brought(tmp_path / "other.tar", tmp_path / "to")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"format": 2}, "format 2 is unknown"),
        ({"format": 1, "kind": "x"}, "cache 'x' is unknown"),
        ({"format": 1, "kind": "neuron"}, "cannot be read"),
        ({"format": 1, "kind": "neuron", "entries": [3]}, "cannot be read"),
    ],
)
def test_a_manifest_of_another_kind_is_told(archive: Path, tmp_path: Path, value: dict, text: str):
    def replace(name: str, content: bytes):
        return [(name, json.dumps(value).encode() if name == MANIFEST else content)]

    with pytest.raises(PrecompileError, match=text):
        brought(repacked(archive, replace), tmp_path / "to")


def test_an_entry_that_changes_while_it_is_exported_is_no_archive(tmp_path: Path, monkeypatch):
    folder = write_entry(tmp_path / "from", NAMES[0])
    right = storage_files.file_sha256

    def then_change(path: Path) -> str:
        digest = right(path)
        if path.name == "model.neff":
            path.write_bytes(b"y" * path.stat().st_size)
        return digest

    monkeypatch.setattr("kitae.precompile.archive.file_sha256", then_change)
    with pytest.raises(PrecompileError, match="changed while it was written"):
        export(place(tmp_path / "from"), tmp_path / "cache.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["from"]
    assert folder.exists()


def test_caches_of_single_files_travel_too(tmp_path: Path):
    root = tmp_path / "from"
    for name in ("ab/cd/abcd1234.neff", "ef/01/ef01.neff"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_bytes(name.encode())
    (root / "ab/cd/x.tmp").touch()
    done = export(Place(CACHES["torchneuron"], root), tmp_path / "cache.tar")
    assert done.entries == 2
    there = Place(CACHES["torchneuron"], tmp_path / "to")
    assert import_archive(tmp_path / "cache.tar", lambda kind: there, print).entries == 2
    (root / "ab/cd/x.tmp").unlink()
    assert tree(tmp_path / "to") == tree(root)
    shutil.rmtree(root)


def test_what_is_no_file_is_told(tmp_path: Path):
    with pytest.raises(PrecompileError, match=r"cannot be read \(Is a directory\); name another file"):
        brought(tmp_path, tmp_path / "to")


@pytest.mark.parametrize(
    "entry",
    [
        {"path": "../x", "files": {}},
        {"path": "a", "files": {"a/b": 3}},
        {"path": "a", "files": {"a/b": {"bytes": 1}}},
        {"path": "a", "files": {"a/b": {"bytes": "x", "sha256": ""}}},
        {"path": 3, "files": {"a": {"bytes": 1, "sha256": ""}}},
    ],
)
def test_a_manifest_of_another_form_is_told_before_anything_is_taken(archive: Path, tmp_path: Path, entry):
    def change(name: str, content: bytes):
        if name == MANIFEST:
            content = json.dumps({"format": 1, "kind": "neuron", "entries": [entry]}).encode()
        yield name, content

    with pytest.raises(PrecompileError, match=r"kitae-cache.json cannot be read .*; export it again"):
        brought(repacked(archive, change), tmp_path / "to")
    assert not (tmp_path / "to").exists()
