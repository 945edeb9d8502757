"""Programs that are asked: found, failing, hanging."""

from __future__ import annotations

from pathlib import Path

from kitae.doctor.tools import ask


def program(folder: Path, text: str) -> Path:
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return folder


def test_not_found(tmp_path: Path):
    found = ask("no-such-tool", folders=[tmp_path])
    assert (found.text, found.trouble) == (None, "no-such-tool not found")


def test_found_in_a_folder_that_is_not_on_the_path(tmp_path: Path):
    assert ask("tool", "a", "b", folders=[program(tmp_path, 'echo "$2 $1"')]).text == "b a"


def test_one_that_fails_says_its_last_words(tmp_path: Path):
    found = ask("tool", folders=[program(tmp_path, "echo first >&2; echo no driver >&2; exit 3")])
    assert found.trouble == "tool failed (3): no driver"


def test_one_that_hangs_is_given_up_with_what_it_started(tmp_path: Path):
    """A broken driver never answers."""
    found = ask("tool", folders=[program(tmp_path, "sleep 600 & wait")], patience_s=0.3)
    assert found.trouble == "tool gave no answer in 0.3 s: the driver may hang"


def test_one_that_cannot_be_started(tmp_path: Path):
    (tmp_path / "tool").write_text("not a program")
    (tmp_path / "tool").chmod(0o755)
    assert "cannot be started" in ask("tool", folders=[tmp_path]).trouble


def test_bytes_that_are_no_text(tmp_path: Path):
    assert ask("tool", folders=[program(tmp_path, r"printf 'a\377b'")]).text == "a\ufffdb"
