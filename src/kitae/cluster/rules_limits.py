"""Rules of storage, scripts, money and the end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from kitae.catalog import price_of
from kitae.cluster.findings import Case, Said
from kitae.cluster.moments import end_of, shown
from kitae.cluster.money import dollars, tariff

_SMALL_ITEMS = ("ebs-gp3", "public-ipv4")
"""Items whose share is small: where their price is unknown they are left out, and that is said."""
_LONGEST_DAYS = 30
_TAKEN = ("/", "/home", "/opt", "/usr", "/var", "/etc", "/tmp", "/root", "/boot", "/dev", "/proc", "/sys")


def fsx_size(case: Case) -> Iterator[Said]:
    """FSx comes in sizes."""
    fsx = case.file.fsx
    if fsx is not None and fsx.size_gb != 1200 and fsx.size_gb % 2400:
        nearest = max(1200, round(fsx.size_gb / 2400) * 2400)
        yield Said(
            ("fsx", "size_gb"),
            f"{fsx.size_gb} is no size of it; write 1200, or a multiple of 2400 such as {nearest}",
        )


def fsx_throughput(case: Case) -> Iterator[Said]:
    """Only PERSISTENT_2 has a throughput to choose, and needs it."""
    fsx = case.file.fsx
    if fsx is None:
        return
    if fsx.type == "PERSISTENT_2" and fsx.throughput is None:
        yield Said(
            ("fsx", "type"), "PERSISTENT_2 needs its throughput; add throughput: 125, 250, 500 or 1000"
        )
    if fsx.type == "SCRATCH_2" and fsx.throughput is not None:
        yield Said(("fsx", "throughput"), "SCRATCH_2 has none to choose; take it out, or write PERSISTENT_2")


def fsx_mount(case: Case) -> Iterator[Said]:
    """It is not mounted over the system."""
    fsx = case.file.fsx
    if fsx is not None and fsx.mount.rstrip("/") in (*_TAKEN, ""):
        yield Said(("fsx", "mount"), f"{fsx.mount} belongs to the system; write another, such as /fsx")


def fsx_s3(case: Case) -> Iterator[Said]:
    """Export goes where import comes from."""
    fsx = case.file.fsx
    if fsx is None or fsx.export_to is None:
        return
    bucket = _bucket(fsx.export_to)
    if fsx.import_from is None or _bucket(fsx.import_from) != bucket:
        yield Said(
            ("fsx", "export_to"),
            f"FSx exports to the bucket that it imports from; add import_from: s3://{bucket}",
        )


def fsx_keep(case: Case) -> Iterator[Said]:
    """What stays goes on billing."""
    fsx = case.file.fsx
    if fsx is not None and fsx.at_down == "keep":
        rate = next(rate for rate in tariff(case.file).rates if rate.what == "FSx for Lustre")
        usd = "at an unknown price" if rate.idle_usd is None else f"at {dollars(rate.idle_usd * 730)} a month"
        yield Said(("fsx", "at_down"), f"it stays after the cluster has gone, and bills {usd}", "warning")


def scripts(case: Case) -> Iterator[Said]:
    """Bootstrap scripts lie where a node can fetch them."""
    for kind in ("head", "nodes"):
        for index, script in enumerate(getattr(case.file.bootstrap, kind)):
            if not re.fullmatch(r"(s3|https)://[^\s/]+/\S+", script):
                yield Said(
                    ("bootstrap", kind, index),
                    f"{script!r}: a node cannot fetch it; write s3://bucket/script.sh or https://...",
                )


def save_from(case: Case) -> Iterator[Said]:
    """What is saved lies on a disk that outlives its node."""
    mounts = ["/home", *([case.file.fsx.mount.rstrip("/")] if case.file.fsx is not None else [])]
    for index, save in enumerate(case.file.save):
        if not any(save.from_folder == mount or save.from_folder.startswith(f"{mount}/") for mount in mounts):
            yield Said(
                ("save", index, "from_folder"),
                f"{save.from_folder} is on no shared disk; those are {' and '.join(mounts)}",
            )


def until(case: Case) -> Iterator[Said]:
    """The end is a time, ahead, and not for ever."""
    text, where = case.file.limits.until, ("limits", "until")
    try:
        end = end_of(text, case.now)
    except ValueError:
        yield Said(where, f"{text!r} is no time; write one such as 2026-12-24T18:00Z, or 12 hours")
        return
    if end <= case.now:
        yield Said(where, f"{shown(end)} has passed; write a later end, or a length such as 12 hours")
    elif (end - case.now).days >= _LONGEST_DAYS:
        yield Said(
            where, f"{(end - case.now).days} days is long for what bills by the hour; check it", "warning"
        )


def price_unknown(case: Case) -> Iterator[Said]:
    """Money that is not known cannot be limited."""
    found = tariff(case.file).unknown
    large = [item for item in found if item not in _SMALL_ITEMS]
    for item in large:
        yield Said(
            ("limits", "max_cost_usd"),
            f"the price of {item} is not known, so the limit cannot be kept; "
            f"write it under prices: {{{item}: ...}} (kitae cluster quota asks AWS)",
        )
    small = [item for item in found if item in _SMALL_ITEMS]
    if small:
        yield Said(("prices",), f"not counted, as their prices are not known: {', '.join(small)}", "note")


def price_region(case: Case) -> Iterator[Said]:
    """Prices are of some region and day."""
    known = (price_of(rate.item) for rate in tariff(case.file).rates if rate.item not in case.file.prices)
    other = [one for one in known if one is not None and one.region != case.file.region]
    if other:
        texts = dict.fromkeys(f"{one.item} ({one.region}, {one.date})" for one in other)
        yield Said(("prices",), f"prices of other regions are taken: {', '.join(texts)}", "note")


def cost(case: Case) -> Iterator[Said]:
    """All of it, with every queue full until the end, is below the limit."""
    limits, rates = case.file.limits, tariff(case.file)
    try:
        hours = (end_of(limits.until, case.now) - case.now).total_seconds() / 3600
    except ValueError:
        return  # another rule's
    most = rates.full_usd * Decimal(str(max(hours, 0.0)))
    if most > Decimal(str(limits.max_cost_usd)):
        yield Said(
            ("limits", "max_cost_usd"),
            f"with every queue full it costs {dollars(rates.full_usd)} an hour, "
            f"{dollars(most)} until the end; write an earlier end, fewer machines, or a higher limit",
        )


def _bucket(url: str) -> str:
    return url.removeprefix("s3://").partition("/")[0]
