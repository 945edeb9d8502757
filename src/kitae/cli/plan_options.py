"""Options of `kitae plan`: what they say, and which of them would have no effect."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from kitae.plan import MOST_NODES

if TYPE_CHECKING:
    from kitae.plan.money import Rent

MOST_GB = 10**9
"""Up to how much storage is paid for."""
_MOST_USD = Decimal(10**9)

_RENTED = ("--price", "--head", "--fsx", "--ebs", "--nat")
_LIMITS = ("--max-cost", "--until")
_HEEDED = {
    "": ("--set", "--scale-down"),
    "--instance": ("--set", "--scale-down", "--instance", "--nodes", "--mtbf-hours", *_LIMITS, *_RENTED),
    "--search": ("--set", "--scale-down", "--instance", "--nodes", *_LIMITS, *_RENTED),
    "--simulate": ("--set", "--scale-down", "--instance", "--weak", "--mtbf-hours", "--price"),
    "--compare": ("--set", "--scale-down", *_RENTED),
    "--accuracy": (),
}
"""Options that each kind of plan heeds; the first is that of this machine."""
_LONELY = "it needs --instance, the machine that it is about"


def refuse_idle(kinds: Mapping[str, bool], options: Mapping[str, object]) -> None:
    """Raise `RecipeError` for two kinds of plans, or an option that the wanted one does not heed."""
    from kitae.errors import RecipeError

    kind, *others = [
        *(name for name, wanted in kinds.items() if wanted),
        "",
    ]
    if len(others) > 1:
        raise RecipeError(f"{kind} and {others[0]} are two different plans; take one of them out")
    given = [option for option, value in options.items() if value]
    kind = kind or ("--instance" if "--instance" in given else "")
    for option in given:
        if option not in _HEEDED[kind]:
            raise RecipeError(f"{option}: {_way_out(option, kind)}")
    if kind == "--simulate" and "--instance" not in given:
        raise RecipeError(f"--simulate: {_LONELY}")


def _way_out(option: str, kind: str) -> str:
    heeding = [name for name, heeded in _HEEDED.items() if option in heeded]
    if not kind and "--instance" in heeding:
        return _LONELY
    here = kind in ("", "--instance")
    out = f"it is for {' and '.join(heeding)}" if here else f"take it, or {kind}, out"
    return f"it has no effect here; {out}"


def entries_of(text: str) -> list[tuple[str, int]]:
    """Machines to compare, of NAME:NODES,... Raises `RecipeError`."""
    from kitae.errors import RecipeError

    entries = []
    for part in text.split(","):
        name, colon, count = part.strip().rpartition(":")
        if not (colon and count.isdecimal() and 1 <= int(count) <= MOST_NODES):
            raise RecipeError(
                f"--compare: {part.strip()!r} is not NAME:NODES, such as trn1.32xlarge:4, of 1 to "
                f"{MOST_NODES:,} nodes"
            )
        entries.append((name, int(count)))
    return entries


def rent_of(price: list[str], head: str | None, fsx: int, fsx_type: str, ebs: int, nat: bool) -> Rent:
    """What is paid for beside the nodes, and given prices. Raises `RecipeError`."""
    from kitae.catalog import instance, instances, items
    from kitae.catalog.reading import unknown
    from kitae.errors import RecipeError
    from kitae.plan.money import Rent

    prices, known = {}, [*instances(), *items()]
    for text in price:
        item, equals, usd = (part.strip() for part in text.partition("="))
        if not equals:
            raise RecipeError(f"--price: {text!r} is not ITEM=USD, such as trn2.48xlarge=12.34")
        if item not in known:
            raise RecipeError(f"--price: {unknown('item', item, known)}")
        prices[item] = usd_of("--price", usd)
    if head is not None:
        instance(head)
    stores = [name for name in items() if name.startswith("fsx")]
    if fsx_type not in stores:
        raise RecipeError(f"--fsx-type: {unknown('file system', fsx_type, stores)}")
    return Rent(head=head, fsx_gb=fsx, fsx_type=fsx_type, ebs_gb=ebs, nat=nat, prices=prices)


def usd_of(option: str, text: str) -> Decimal:
    """US dollars that an option gives. Raises `RecipeError`."""
    from kitae.errors import RecipeError

    try:
        usd = Decimal(text.strip().removeprefix("$").replace(",", ""))
    except InvalidOperation:
        raise RecipeError(f"{option}: {text!r} is no number of US dollars") from None
    if not usd.is_finite() or not 0 < usd <= _MOST_USD:
        raise RecipeError(f"{option}: {text} is not above 0, or more than ${_MOST_USD:,}")
    return usd
