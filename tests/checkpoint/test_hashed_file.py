"""A file that knows its size and hash when it is written."""

import hashlib

from kitae.checkpoint.hashed_file import HashedFile


def test_hashed_file_knows_what_it_wrote(tmp_path):
    parts = [b"", b"a", bytes(range(256)), b"end"]
    file = HashedFile(tmp_path / "f")
    for part in parts:
        file.write(memoryview(part))
    stored = file.close()
    whole = b"".join(parts)
    assert (tmp_path / "f").read_bytes() == whole
    assert (stored.size_bytes, stored.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())


def test_short_writes_are_continued(tmp_path):
    file = HashedFile(tmp_path / "f")
    raw = file._file

    class Short:
        def write(self, data):
            return raw.write(data[:3])

    file._file = Short()
    file.write(memoryview(b"0123456789"))
    file._file = raw
    assert file.close().sha256 == hashlib.sha256(b"0123456789").hexdigest()
    assert (tmp_path / "f").read_bytes() == b"0123456789"


def test_what_another_process_wrote_is_kept(tmp_path):
    """It counts for size and hash; what came behind it is written over."""
    (tmp_path / "f").write_bytes(b"kept and lost")
    file = HashedFile(tmp_path / "f")
    file.keep(4)
    file.write(memoryview(b" and more than that"))
    stored = file.close()
    assert (tmp_path / "f").read_bytes() == b"kept and more than that"
    assert stored.sha256 == hashlib.sha256(b"kept and more than that").hexdigest()
    assert stored.size_bytes == 23


def test_more_than_fits_in_one_call(tmp_path):
    data = bytes(range(256)) * (3 << 12)
    file = HashedFile(tmp_path / "f")
    file.write(memoryview(data))
    assert file.close().sha256 == hashlib.sha256(data).hexdigest()
    again = HashedFile(tmp_path / "f")
    again.keep(len(data))
    assert again.close().sha256 == hashlib.sha256(data).hexdigest()
    assert (tmp_path / "f").read_bytes() == data
