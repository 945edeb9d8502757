"""Archives of torch.save with damage anywhere: told, or no other value changes than the one that was hit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kitae.checkpoint.restricted import open_pickled
from kitae.checkpoint.torch_archive import TorchArchive
from kitae.errors import WeightsError

TENSORS = {"one": torch.arange(4.0), "other": torch.arange(4.0) + 7}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    torch.save(TENSORS, tmp_path / "x.pt")
    return tmp_path / "x.pt"


def read(path: Path) -> dict[str, torch.Tensor] | None:
    """The tensors, or None where the file is refused."""
    try:
        state = open_pickled(path)
        return {name: tensor.read() for name, tensor in state.items()}
    except WeightsError:
        return None


@pytest.mark.parametrize("bit", [0, 6])
def test_any_bit(archive: Path, bit: int) -> None:
    content, told = archive.read_bytes(), 0
    for place in range(len(content)):
        archive.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
        found = read(archive)
        told += found is None
        if found is not None:
            assert found.keys() == TENSORS.keys()
            assert sum(int((found[name] != TENSORS[name]).sum()) for name in TENSORS) <= 1, place
    # Directory, headers and pickle; not what fills the file up for alignment.
    assert told > 400


def test_any_length(archive: Path) -> None:
    content = archive.read_bytes()
    for length in range(2, len(content)):
        archive.write_bytes(content[:length])
        assert read(archive) is None, length


def test_archives_without_checksums_are_read(tmp_path: Path) -> None:
    """torch.serialization.set_crc32_options(False), and names that are not ASCII."""
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(TENSORS, tmp_path / "重み.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    found = read(tmp_path / "重み.pt")
    assert found is not None
    assert all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)


def test_what_is_no_record(archive: Path) -> None:
    with pytest.raises(WeightsError, match=r"x\.pt lacks its record data/2"):
        TorchArchive(archive).record("data/2")
