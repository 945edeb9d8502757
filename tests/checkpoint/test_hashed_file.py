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
