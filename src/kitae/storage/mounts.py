"""Which file system a path lies on, as the kernel's table of mounts tells."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/mounts")

_NETWORK = re.compile(
    r"(nfs|lustre|efs|cifs|smb|afs|ceph|glusterfs|beegfs|gpfs|wekafs|ocfs2|9p|fuse\.(?!overlay|fuse-overlay)).*"
)
"""Kinds on which locks of several machines meet, or do not."""


@dataclass(frozen=True)
class Mount:
    """A mounted file system."""

    source: str
    """What is mounted: a device, or `server:/path`."""
    folder: Path
    """Where."""
    kind: str
    """What the kernel calls it, such as `ext4` or `nfs4`; empty where nobody tells."""

    @property
    def is_network(self) -> bool:
        """Whether other machines may see the same files."""
        return _NETWORK.fullmatch(self.kind) is not None


UNKNOWN = Mount("", Path("/"), "")


def mount_of(path: Path, table: Path | None = None) -> Mount:
    """The file system that `path`, or the nearest folder above it that exists, lies on.

    `table` is a file like /proc/mounts; where there is none, the mount is `UNKNOWN`.
    """
    place = path.absolute().resolve()
    try:
        lines = (table or MOUNTS).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return UNKNOWN
    found = [mount for line in lines if (mount := _read(line)) and place.is_relative_to(mount.folder)]
    # Of two on the same folder, the later one covers the earlier.
    return max(enumerate(found), key=lambda one: (len(one[1].folder.parts), one[0]))[1] if found else UNKNOWN


def shared_mount(path: Path, host: str, mounted: Callable[[Path], Mount] = mount_of) -> Mount | None:
    """The file system that `path` lies on, where other machines see the path; else None.

    A folder that is named after this machine, called `host`, is its own.
    """
    mount = mounted(path)
    return mount if mount.is_network and not any(host in part for part in path.parts) else None


def _read(line: str) -> Mount | None:
    words = [_unescaped(word) for word in line.split(" ")]
    return Mount(words[0], Path(words[1]), words[2]) if len(words) >= 3 else None


def _unescaped(word: str) -> str:
    """A word as it was: the kernel writes blanks and backslashes as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), word)
