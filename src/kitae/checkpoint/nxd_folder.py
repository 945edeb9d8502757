"""Finds the rank files of a neuronx-distributed (NxD) checkpoint, whatever level of its folders is given.

A run's folder holds tags (`step_100`), a tag holds `model/` and perhaps `optim/`, and these hold a file per
rank. NxD marks a tag with a file `checkpoint` when it begins to save and with `done` when all is there, and
goes on from the tag whose `done` is newest. What the converter of NxD writes has no marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path

from kitae.checkpoint.coverage import listed
from kitae.checkpoint.torch_archive import WAY_OUT
from kitae.errors import WeightsError

MODEL, OPTIMIZER, BEGUN, DONE = "model", "optim", "checkpoint", "done"
RANK_NAMES = (
    re.compile(r"tp_rank_(?P<tp>\d+)_pp_rank_(?P<pp>\d+)(?:\.pt)?"),
    re.compile(r"dp_rank_(?P<dp>\d+)_tp_rank_(?P<tp>\d+)_pp_rank_(?P<pp>\d+)\.pt"),
    re.compile(r"dp_rank_(?P<dp>\d+)_ep_rank_(?P<ep>\d+)_tp_rank_(?P<tp>\d+)_pp_rank_(?P<pp>\d+)\.pt"),
)
"""Names of a rank's file, or of the folder that holds it as `checkpoint.pt`, in the order that NxD tries."""
_NO_EXPERTS = re.compile(RANK_NAMES[2].pattern.replace(r"(?P<ep>\d+)", "0+"))
_OPTIMIZER_NAMES = (*RANK_NAMES[:2], _NO_EXPERTS)
_OLD_OPTIMIZER_NAMES = (re.compile(r"optim\.dp_rank_(?P<dp>\d+)\.tp_rank_(?P<tp>\d+)"),)
"""Of NxD's older interface, whose ZeRO-1 files lie beside those of the model and know no stages."""
RANK_FOLDER_FILE = "checkpoint.pt"
_LISTED = 5


@dataclass(frozen=True, order=True)
class Rank:
    """Whose file it is."""

    pp: int
    tp: int
    dp: int = 0

    def __str__(self) -> str:
        return f"tp {self.tp}" + f" pp {self.pp}" * bool(self.pp) + f" dp {self.dp}" * bool(self.dp)


RankFiles = Mapping[Rank, Path]


@dataclass(frozen=True)
class NxdFolder:
    """A checkpoint that was found."""

    folder: Path
    """The tag, or what stands for it."""
    model: RankFiles
    """Of data-parallel rank 0: the others hold the same."""
    optimizer: RankFiles
    """As they were found, complete or not; empty when there are none."""
    notes: tuple[str, ...] = ()
    """What was passed over, and why."""

    @property
    def tp_size(self) -> int:
        """Tensor-parallel ranks."""
        return 1 + max(rank.tp for rank in self.model)

    @property
    def pp_size(self) -> int:
        """Pipeline stages."""
        return 1 + max(rank.pp for rank in self.model)

    @property
    def step(self) -> int | None:
        """The number in the name of the tag."""
        found = re.fullmatch(r"step_(\d+)", self.folder.name)
        return int(found[1]) if found else None


def is_nxd(path: Path) -> bool:
    """Whether the folder looks like a checkpoint of NxD at any level, complete or not."""
    return path.is_dir() and bool(_rank_files(path) or _rank_files(path / MODEL) or _tags(path))


def find_nxd(path: Path) -> NxdFolder:
    """The checkpoint in a folder: of a run the newest complete one; of a tag's `model` its weights alone.

    WeightsError when there is none, when its save was not finished, or when files of ranks are missing.
    """
    if not path.is_dir():
        raise WeightsError(f"{path} is not a folder")
    path = path.resolve()
    if _rank_files(path):
        return _open(path.parent if path.name == MODEL else path, path, with_optimizer=False)
    if _rank_files(path / MODEL):
        return _open(path, path / MODEL)
    tag, notes = _newest(path)
    return _open(tag, tag / MODEL, notes)


def stored_ranks(found: RankFiles) -> str:
    """The ranks of files in words."""
    return listed([f"({rank})" for rank in sorted(found)])


def _open(tag: Path, model: Path, notes: tuple[str, ...] = (), *, with_optimizer: bool = True) -> NxdFolder:
    if (tag / BEGUN).is_file() and not (tag / DONE).is_file():
        raise WeightsError(
            f"{tag}: the save was not finished (there is no file `{DONE}`); take another tag. NxD marks an "
            f"asynchronous save as done only at the next one: if you know it to be whole, create that file"
        )
    files = _rank_files(model)
    first = {rank: path for rank, path in files.items() if rank.dp == 0}
    require_grid(model, first)
    if len(first) < len(files):
        notes += (
            f"files of {len(files) - len(first)} more data-parallel ranks in {model.name}/ are not read",
        )
    optimizer = _rank_files(tag / OPTIMIZER, _OPTIMIZER_NAMES) if with_optimizer else {}
    optimizer = optimizer or _rank_files(model, _OLD_OPTIMIZER_NAMES)
    if with_optimizer and not optimizer and (tag / OPTIMIZER).is_dir():
        notes += (f"{OPTIMIZER}/ holds no rank files, so there is no optimizer state",)
    return NxdFolder(tag, first, optimizer, notes)


def _newest(path: Path) -> tuple[Path, tuple[str, ...]]:
    """The tag to read, and notes on those that were passed over."""
    tags = _tags(path)
    done = [tag for tag in tags if (tag / DONE).is_file()]
    unmarked = [tag for tag in tags if not (tag / DONE).is_file() and not (tag / BEGUN).is_file()]
    unfinished = [tag.name for tag in tags if tag not in done and tag not in unmarked]
    if not done and len(unmarked) != 1:
        raise WeightsError(_no_tag(path, unfinished, [tag.name for tag in unmarked]))
    # By name the last is not the newest: step_9000 stands after step_10000.
    newest = max(done or unmarked, key=lambda tag: ((tag / DONE).stat().st_mtime_ns if done else 0, tag.name))
    notes = [f"passed over {listed(unfinished)}: the save was not finished"] if unfinished else []
    if len(done) > 1:
        notes.append(f"took {newest.name}, whose file `{DONE}` is the newest of {len(done)}")
    if done and unmarked:
        notes.append(f"passed over {listed([tag.name for tag in unmarked])}: not marked as done")
    return newest, tuple(notes)


def _no_tag(path: Path, unfinished: list[str], unmarked: list[str]) -> str:
    if unmarked:
        return (
            f"{path} holds several checkpoints without a mark of time ({listed(unmarked)}); give one of them"
        )
    if unfinished:
        return f"{path}: no save was finished; {listed(unfinished)} lack the file `{DONE}`"
    return (
        f"{path} holds no NxD checkpoint: no tag with `{MODEL}/`, and no files such as "
        "dp_rank_00_tp_rank_00_pp_rank_00.pt"
    )


def _tags(path: Path) -> list[Path]:
    return sorted(
        entry for entry in path.iterdir() if (entry / MODEL).is_dir() and _rank_files(entry / MODEL)
    )


def _rank_files(folder: Path, patterns: Iterable[re.Pattern[str]] = RANK_NAMES) -> dict[Rank, Path]:
    """Files by rank; where an older name is there as well, NxD's own order of preference decides."""
    if not folder.is_dir():
        return {}
    names = sorted(entry.name for entry in folder.iterdir())
    for pattern in patterns:
        matches = [match for name in names if (match := pattern.fullmatch(name))]
        files = {_rank(folder, match): _file(folder / match[0]) for match in matches}
        if files:
            return files
    return {}


def _rank(folder: Path, match: re.Match[str]) -> Rank:
    numbers = {name: int(number) for name, number in match.groupdict().items()}
    if numbers.pop("ep", 0):
        raise WeightsError(f"{folder / match[0]}: checkpoints of expert parallelism are not supported")
    return Rank(**{"pp": 0, **numbers})


def _file(path: Path) -> Path:
    return path / RANK_FOLDER_FILE if path.is_dir() else path


def require_grid(folder: Path, ranks: Iterable[Rank]) -> None:
    """Raise WeightsError with the files that are missing between the first and the last rank."""
    found = set(ranks)
    if not found:
        raise WeightsError(f"{folder} lacks the files of data-parallel rank 0; {WAY_OUT}")
    sizes = [range(1 + max(numbers)) for numbers in zip(*((r.pp, r.tp, r.dp) for r in found), strict=True)]
    missing = prod(map(len, sizes)) - len(found)
    if missing:
        due = (Rank(pp, tp, dp) for pp in sizes[0] for tp in sizes[1] for dp in sizes[2])
        names = [f"({rank})" for rank in islice((rank for rank in due if rank not in found), _LISTED)]
        raise WeightsError(
            f"{folder}: {missing} rank files beside the {len(found)} found are missing: those of "
            f"{', '.join(names)}{' and others' * (missing > _LISTED)}; {WAY_OUT}"
        )
