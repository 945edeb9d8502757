"""`kitae cache`: compiled graphs, and what kitae keeps itself, listed, cleared and carried."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kitae.precompile.caches import Place
    from kitae.precompile.entries import Entry, State

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
KindOption = Annotated[
    list[str],
    typer.Option(
        "--kind",
        metavar="KIND",
        help="neuron, torchneuron, xla, data, imported or models; default: all, to clear: all of compilers.",
    ),
]
RootOption = Annotated[
    Path | None, typer.Option("--root", metavar="FOLDER", help="Where the cache is; needs one --kind.")
]
_COMPILERS = ("neuron", "torchneuron", "xla")
"""What is cleared where no kind is named: kitae's own text and weights only by name."""
YesOption = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would go.")]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    group = typer.Typer(no_args_is_help=True, help="List, clear and carry compiled graphs and other caches.")
    for name, verb in (
        ("list", list_entries),
        ("prune", prune),
        ("clear-failed", clear_failed),
        ("clear-locks", clear_locks),
        ("export", export_cache),
        ("import", import_cache),
    ):
        group.command(name)(verb)
    app.add_typer(group, name="cache")


def list_entries(
    kind: KindOption = [],  # noqa: B006
    root: RootOption = None,
    each: Annotated[bool, typer.Option("--entries", help="Show every entry, not only sums.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the caches of this machine with states and sizes."""
    found = [(place, place.entries()) for place in _places(kind, root)]
    if as_json:
        print(json.dumps([_facts(place, entries) for place, entries in found], indent=2))
        return
    if not found:
        print("there are no caches here")
    for place, entries in found:
        _show(place, entries, each)


def prune(
    kind: KindOption = [],  # noqa: B006
    root: RootOption = None,
    states: Annotated[
        list[str],
        typer.Option("--state", metavar="STATE", help="done, failed, locked, half-written or empty."),
    ] = [],  # noqa: B006
    older_than: Annotated[
        str | None, typer.Option(metavar="TIME", help="Last written before so long: 30d, 12h.")
    ] = None,
    max_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Oldest first, until each cache is below: 50GB.")
    ] = None,
    other_than: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Of all compilers but this one.")
    ] = None,
    yes: YesOption = False,
) -> None:
    """Remove entries by state, age, size or compiler; what is compiled or made now stays."""
    from kitae.errors import RecipeError
    from kitae.precompile.prune import Wanted

    if not states and older_than is None and max_size is None and other_than is None:
        raise RecipeError("say what is to go: --state, --older-than, --max-size or --other-than")
    wanted = Wanted(
        tuple(_state(one) for one in states),
        None if older_than is None else _seconds(older_than),
        other_than,
        None if max_size is None else _size_of(max_size),
    )
    _remove(_places(kind or _COMPILERS, root), wanted, yes)


def clear_failed(kind: KindOption = [], root: RootOption = None, yes: YesOption = False) -> None:  # noqa: B006
    """Remove entries that failed or are half-written, so that they are compiled again."""
    from kitae.precompile.prune import Wanted

    _remove(_places(kind or _COMPILERS, root), Wanted(("failed", "half-written")), yes)


def clear_locks(
    kind: KindOption = [],  # noqa: B006
    root: RootOption = None,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Also those of which nobody can tell who holds them.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Remove lock files that a killed compiler has left; others wait for them without end."""
    from kitae.precompile.answer import age_text
    from kitae.precompile.caches import all_entries
    from kitae.precompile.prune import left_locks, remove_lock

    entries = all_entries(_places(kind or _COMPILERS, root))
    locks = left_locks(entries, unknown=unknown)
    for lock in locks:
        if yes:
            remove_lock(lock)
        print(f"{'removed' if yes else 'would go'}: {lock.path} ({age_text(lock.age_s)} old, {lock.holder})")
    kept = sum(len(entry.locks) for entry in entries) - len(locks)
    held = f"; {kept} stay: held, or nobody can tell" if kept else ""
    print(f"{len(locks)} locks {'removed' if yes else 'would go (--yes removes them)'}{held}")


def export_cache(
    to: Annotated[Path, typer.Argument(metavar="FILE.tar", help="File to write.")],
    kind: Annotated[str, typer.Option("--kind", help="neuron, torchneuron or xla.")] = "neuron",
    root: RootOption = None,
) -> None:
    """Write the entries that are done into one file with hashes, for S3 or a shared disk."""
    from kitae.precompile.archive import export

    done = export(_compiler_place(kind, root), to)
    for line in done.left_out:
        print(f"left out: {line}")
    print(f"{done.entries} entries, {_size(done.size_bytes)}, in {to}")


def import_cache(
    file: Annotated[Path, typer.Argument(metavar="FILE.tar", help="What kitae cache export wrote.")],
    root: RootOption = None,
) -> None:
    """Take what is missing here out of such a file; what is good here is never overwritten."""
    from kitae.precompile.archive import import_archive
    from kitae.precompile.caches import CACHES, Place, check_root

    def place(kind: str) -> Place:
        found = _compiler_place(kind, None) if root is None else Place(CACHES[kind], root)
        check_root(found)
        return found

    done = import_archive(file, place, print)
    there = f"; {len(done.left_out)} were there already" if done.left_out else ""
    print(f"{done.entries} entries, {_size(done.size_bytes)}, came in{there}")


def _remove(places: Iterable[Place], wanted: Any, yes: bool) -> None:
    from kitae.precompile.prune import chosen, remove

    count = size = 0
    for place in places:
        for entry in chosen(place.entries(), wanted):
            if yes:
                remove(entry)
            what = "removed" if yes else "would go"
            why = f": {entry.why}" if entry.why else ""
            print(f"{what}: {place.cache.kind} {entry.label} ({entry.state}, {_size(entry.size_bytes)}{why})")
            count, size = count + 1, size + entry.size_bytes
    print(f"{count} entries, {_size(size)} {'removed' if yes else 'would go (--yes removes them)'}")


def _places(kinds: Sequence[str], root: Path | None) -> list[Place]:
    """The caches that are meant. Raises `RecipeError` for a kind that there is not."""
    from kitae.errors import RecipeError
    from kitae.precompile.caches import CACHES, Place, places
    from kitae.stages.house_cache import HOUSE, house_places

    known = {**CACHES, **HOUSE}
    for kind in kinds:
        if kind not in known:
            raise RecipeError(f"--kind {kind}: there is no such cache; there are {', '.join(known)}")
    if root is None:
        found = [*places(_environment()), *house_places()]
        return [place for place in found if not kinds or place.cache.kind in kinds]
    if len(kinds) != 1:  # also where none was named
        raise RecipeError("--root needs one --kind, which says how to read the folder")
    return [Place(known[kinds[0]], root)]


def _compiler_place(kind: str, root: Path | None) -> Place:
    from kitae.errors import RecipeError
    from kitae.precompile.caches import CACHES, place_of

    if kind not in CACHES:
        raise RecipeError(f"--kind {kind}: a compiler's cache is one of {', '.join(CACHES)}")
    return place_of(kind, root, _environment())


def _environment() -> dict[str, str]:
    """Variables as a training of this machine would have them, which say where its caches are."""
    from kitae.stages.precompiling import cache_environment

    return cache_environment()


def _facts(place: Place, entries: Sequence[Entry]) -> dict[str, Any]:
    return {
        "kind": place.cache.kind,
        "what": place.cache.what,
        "root": str(place.root),
        "size_bytes": sum(entry.size_bytes for entry in entries),
        "states": dict(Counter(entry.state for entry in entries)),
        "entries": [_entry_facts(entry) for entry in entries],
    }


def _entry_facts(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "version": entry.version,
        "state": entry.state,
        "size_bytes": entry.size_bytes,
        "age_s": round(entry.age_s),
        "why": entry.why,
        "locks": [
            {
                "path": str(lock.path),
                "age_s": round(lock.age_s),
                "holder": lock.holder,
                "process": lock.process,
            }
            for lock in entry.locks
        ],
    }


def _show(place: Place, entries: Sequence[Entry], each: bool) -> None:
    from kitae.precompile.answer import age_text, said_of_locks
    from kitae.storage.mounts import mount_of

    total = sum(entry.size_bytes for entry in entries)
    print(f"{place.cache.kind:11}  {place.root}  {place.cache.what}: {len(entries)} entries, {_size(total)}")
    mount = mount_of(place.root)
    if mount.is_network and not place.cache.shareable:
        print(f"             warning: on {mount.kind}, where its locks break; keep it on this machine's disk")
    for (version, state), group in _groups(entries).items():
        size = sum(entry.size_bytes for entry in group)
        print(f"             {state:12} {len(group):5}  {_size(size):>9}  {version}".rstrip())
        for entry in group if each else ():
            why = said_of_locks(entry) if entry.locks else entry.why
            line = f"{entry.name}  {_size(entry.size_bytes)}  {age_text(entry.age_s)} old  {why}"
            print(f"               {line.rstrip()}")


def _groups(entries: Sequence[Entry]) -> dict[tuple[str, State], list[Entry]]:
    groups: dict[tuple[str, State], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.version, entry.state), []).append(entry)
    return groups


def _size(size_bytes: int) -> str:
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return f"{size_bytes} B"


_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_BYTES = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3, "B": 1}


def _state(text: str) -> State:
    from kitae.errors import RecipeError
    from kitae.precompile.entries import STATES

    found = next((state for state in STATES if state == text), None)
    if found is None:
        raise RecipeError(f"--state {text}: there is no such state; there are {', '.join(STATES)}")
    return found


def _seconds(text: str) -> float:
    return _in_units("--older-than", text, _SECONDS, "30d, 12h or 90m")


def _size_of(text: str) -> int:
    return int(_in_units("--max-size", text, _BYTES, "50GB or 800MB"))


def _in_units(option: str, text: str, units: dict[str, int], example: str) -> float:
    from kitae.errors import RecipeError

    unit = next((unit for unit in units if text.endswith(unit)), None)
    number = text.removesuffix(unit or "")
    if unit is None or not number.replace(".", "", 1).isdecimal():
        raise RecipeError(f"{option} {text}: write it as {example}")
    return float(number) * units[unit]
