"""What the parts of a chip test found, judged: pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kitae.doctor.chip.recorded import difference, tolerance

Verdict = Literal["passed", "failed", "left out", "not reached"]
KERNEL_APART = 2e-2
"""Of bf16, which holds 8 bits, through a softmax and two products."""
SIGMAS = 6.0
"""So far from its expectation a mean of many draws may be."""


@dataclass(frozen=True)
class Result:
    """A part of the test, as it stands on the page."""

    verdict: Verdict
    text: str
    """In one sentence."""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """A table of what was measured."""
    found: Any = field(default=None, compare=False)
    """All of it, as the JSON has it."""
    seconds: float = 0.0


def judge_collectives(found: Mapping[str, Any]) -> Result:
    """Whether every sum was right, and the bandwidths."""
    header = ("collective", "bytes", "microseconds", "bus GB/s")
    rows = tuple(
        (one["collective"], f"{one['bytes']:,}", f"{one['seconds'] * 1e6:,.0f}", f"{one['bus_gb_per_s']:.2f}")
        for one in found["times"]
    )
    ranks = found["ranks"]
    if found["wrong"]:
        text = f"wrong values over {ranks} ranks: {', '.join(found['wrong'])}"
        return Result("failed", text, header, rows, found)
    best = max(one["bus_gb_per_s"] for one in found["times"] if one["collective"] == "all_reduce")
    text = f"all right over {ranks} ranks; all_reduce reaches {best:.2f} GB/s of bus bandwidth"
    return Result("passed", text, header, rows, found)


def judge_losses(found: Mapping[str, Any], expected: Mapping[str, Sequence[float]], stack: str) -> Result:
    """The losses of small trainings against those of a CPU in fp32."""
    rows, bad = [], []
    for name, one in found.items():
        case, _, precision = name.rpartition(" ")
        if "trouble" in one:
            bad.append(name)
            rows.append((name, one["trouble"], "", ""))
            continue
        apart, allowed = difference(one["losses"], list(expected[case])), tolerance(stack, precision)
        if apart > allowed:
            bad.append(name)
        rows.append((name, f"{one['losses'][-1]:.4f}", f"{apart:.1e}", f"{allowed:.0e}"))
    header = ("training", "last held-out loss", "largest difference", "allowed")
    text = f"not as on a CPU: {', '.join(bad)}" if bad else f"{len(rows)} trainings have the losses of a CPU"
    return Result("failed" if bad else "passed", text, header, tuple(rows), found)


def judge_rounding(found: Mapping[str, Any], chip: bool) -> Result:
    """Whether the device rounds by chance (a chip told so must), and whether kitae's own rounding does."""
    count = found["count"]
    ways: dict[str, list[str]] = {"device": [], "keyed": []}
    rows = []
    for one in found["rows"]:
        if "trouble" in one:
            rows.append((one["way"], f"{one['part']:g}", one["trouble"], ""))
            ways[one["way"]].append("trouble")
            continue
        rows.append((one["way"], f"{one['part']:g}", f"{one['mean']:.4f}", f"{one['variance']:.4f}"))
        ways[one["way"]].append(kind_of(one["part"], one["mean"], one["variance"], count))
    device, keyed = (_one(kinds) for kinds in (ways["device"], ways["keyed"]))
    header = ("rounded by", "place between two numbers", "mean", "variance")
    text = f"the device rounds {device}; kitae's keyed rounding {keyed}"
    good = (
        device == "by chance" if chip else keyed == "by chance" and device in ("to the nearest", "by chance")
    )
    return Result("passed" if good else "failed", text, header, tuple(rows), found)


def kind_of(part: float, mean: float, variance: float, count: int) -> str:
    """How values at `part` of the way between two numbers were rounded, by mean and variance of `count`."""
    nearest = 0.0 if part <= 0.5 else 1.0  # a tie goes to the even one, which is the lower here
    if variance == 0.0 and mean == nearest:
        return "to the nearest"
    spread = part * (1 - part)
    off = abs(mean - part) / math.sqrt(spread / count)
    # The variance of a share is known as well as the share itself.
    wide = abs(variance - spread) <= SIGMAS * math.sqrt(spread / count) + spread / count
    return "by chance" if off <= SIGMAS and wide else "in another way"


def _one(kinds: Sequence[str]) -> str:
    return kinds[0] if len(set(kinds)) == 1 else " or ".join(sorted(set(kinds)))


def judge_attention(found: Mapping[str, Any]) -> Result:
    """The device's own kernel against the plain form in fp32, relative to the largest number."""
    if "missing" in found:
        return Result("left out", found["missing"], found=found)
    rows = tuple(
        (name, f"{apart:.1e}", f"{KERNEL_APART:.0e}") for name, apart in found["differences"].items()
    )
    bad = [name for name, apart in found["differences"].items() if not apart <= KERNEL_APART]
    header = ("of rows of " + f"{found['length']:,} tokens", "largest difference", "allowed")
    text = f"not as the plain form: {', '.join(bad)}" if bad else "the kernel gives what the plain form gives"
    return Result("failed" if bad else "passed", text, header, rows, found)


def judge_resume(found: Mapping[str, Any]) -> Result:
    """Whether a training that went on ended with the same bits."""
    header = ("went on from step", "files with tensors", "same files", "same losses")
    rows = (
        (
            str(found["resumed_from"]),
            str(found["files"]),
            "yes" if found["same_files"] else "no",
            "yes" if found["same_losses"] else "no",
        ),
    )
    good = found["same_files"] and found["same_losses"] and found["resumed_from"]
    text = "weights and optimizer are the same to the bit" if good else "what came out differs"
    return Result("passed" if good else "failed", text, header, rows, found)


def judge_precompile(code: int, output: str) -> Result:
    """What `kitae precompile` said of a small recipe."""
    lines = [line for line in output.splitlines() if line.strip()]
    last = lines[-1] if lines else "it said nothing"
    found = {"exit_code": code, "output": lines[-40:]}
    if code == 0:
        return Result("passed", last, found=found)
    return Result(
        "failed", f"exit code {code}: {last}", ("output",), tuple((line,) for line in lines[-12:]), found
    )
