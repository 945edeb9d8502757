"""The sentence on top of a report: what was trained, whether that helped, is proven, its time and cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kitae.watch.report.blocks import Tile, Tone
from kitae.watch.report.figures import amount, counted, loss, number, percent, seconds, usd
from kitae.watch.report.run_view import RunView
from kitae.watch.table import first_line

CLEAR = 2.0
"""A change of the held-out loss is called one beyond so many of its standard errors."""


def model_name(view: RunView) -> str:
    """What the training began from."""
    model = view.recipe.get("model")
    model = model if isinstance(model, dict) else {}
    for source in ("named", "hub", "preset"):
        if model.get(source):
            return str(model[source])
    for source in ("folder", "run"):
        if model.get(source):
            return str(model[source]).rstrip("/").rsplit("/", 1)[-1]
    return "a model"


def verdict(view: RunView) -> tuple[str, Tone]:
    """The sentence, and how good it is."""
    clauses = [_subject(view), *_losses(view), *_proof(view), *_price(view)]
    return "; ".join(clauses) + ".", _tone(view)


def _subject(view: RunView) -> str:
    parameters = view.plan.get("parameters") or _of(view.results.get("model"), "parameters")
    sized = f" ({amount(parameters)} parameters)" if parameters else ""
    return f"{model_name(view)}{sized} {_went(view)}"


def _went(view: RunView) -> str:
    """What became of the training."""
    progress, state, why = view.status.progress, view.status.state, first_line(view.status.why)
    took = "" if view.machine_seconds is None else f" in {seconds(view.machine_seconds)}"
    where = "" if progress.step is None else f" at step {progress.step:,} of {number(progress.steps)}"
    if state in ("failed", "died", "silent", "waiting"):
        told = f": {why.rstrip('.')}" if why else ""
        return (
            {"failed": "failed", "died": "died", "silent": "is silent", "waiting": "waits"}[state]
            + where
            + told
        )
    if view.results:
        tokens = view.results.get("real_tokens")
        read = f" on {amount(tokens)} tokens" if tokens else ""
        steps = counted(int(view.results["steps"]), "step")
        return f"was trained for {steps}{read}{took and f'{took} with all stages'}"
    if state == "running":
        return f"is in training{where}" if where else f"is being prepared{took}"
    if progress.step is None:
        return f"cannot be judged: {why}" if view.status.facts.damaged else "has not been trained yet"
    return f"was stopped{where}{took}"


def _losses(view: RunView) -> Iterator[str]:
    """What became of the held-out loss; without one, of the training's."""
    before, after = view.heldout.get("loss_before"), view.heldout.get("loss_after")
    if before is not None and after is not None:
        yield from _heldout(view.heldout, view.unit, before, after)
        return
    losses = view.readings.train.loss
    if len(losses) > 1:
        yield f"its training loss went from {loss(losses[0])} to {loss(losses[-1])}"
    yield "there is no held-out loss to judge it by"


def _heldout(heldout: dict[str, Any], unit: str, before: float, after: float) -> Iterator[str]:
    drop = heldout.get("mean_drop", before - after)
    error = heldout.get("standard_error")
    spread = "" if error is None else f" ± {error:.4f}"
    rows = heldout.get("rows")
    better = (
        f", {heldout['rows_improved']:,} of {rows:,} rows better"
        if rows and "rows_improved" in heldout
        else ""
    )
    so_far = f" by step {heldout['at_step']:,}" if "at_step" in heldout else ""
    yield (
        f"its held-out loss {_moved(drop, error)} {loss(before)} to {loss(after)}{so_far} "
        f"({-drop:+.4f}{spread} {unit}{better})"
    )
    if "accuracy_after" in heldout:
        before, after = heldout["accuracy_before"], heldout["accuracy_after"]
        yield f"its accuracy went from {percent(before)} to {percent(after)}"


def _moved(drop: float, error: float | None) -> str:
    if abs(drop) <= CLEAR * (error or 0.0):
        return "did not clearly change, from"
    return "fell from" if drop > 0 else "rose from"


def _proof(view: RunView) -> Iterator[str]:
    if is_proven(view):
        yield f"its export is proven against transformers (logits within {view.proof['max_difference']:.1e})"
    elif view.results:
        yield "its export is not proven"


def is_proven(view: RunView) -> bool:
    """Whether the newest export passed: within the limit and twice the reference's own rounding."""
    proof, proven, exported = view.proof, view.stages.get("prove"), view.stages.get("export")
    if not proof or not proven or str(proven["finished"]) < str(_of(exported, "finished", "")):
        return False
    pairs = zip(proof["differences"], proof["rounding"], strict=True)
    return all(one <= proof["limit"] + 2 * own for one, own in pairs)


def _price(view: RunView) -> Iterator[str]:
    cost = view.status.cost_usd
    if cost is not None:
        yield f"it cost {usd(cost)}"
    elif view.attempts:
        yield "what it cost is unknown, as no price is set"


def _tone(view: RunView) -> Tone:
    if view.status.state in ("failed", "died"):
        return "bad"
    if not view.results:
        return "plain" if view.status.active else "warn"
    drop, error = view.heldout.get("mean_drop"), view.heldout.get("standard_error") or 0.0
    worse = drop is not None and drop <= CLEAR * error
    return "warn" if worse or not is_proven(view) else "good"


def tiles(view: RunView) -> list[Tile]:
    """Facts beside the sentence."""
    heldout, results, progress = view.heldout, view.results, view.status.progress
    found = [Tile("state", view.status.state)]
    if heldout.get("loss_after") is not None:
        found.append(Tile("held-out loss", f"{loss(heldout['loss_before'])} → {loss(heldout['loss_after'])}"))
    if heldout.get("accuracy_after") is not None:
        found.append(
            Tile("accuracy", f"{percent(heldout['accuracy_before'])} → {percent(heldout['accuracy_after'])}")
        )
    if progress.step is not None:
        found.append(Tile("steps", f"{progress.step:,} of {number(progress.steps)}"))
    speed = results.get("real_tokens_per_s") or progress.tokens_per_s
    if speed:
        found.append(Tile("tokens/s", number(speed)))
    if view.machine_seconds is not None:
        found.append(Tile("time, all stages", seconds(view.machine_seconds)))
    cost = view.status.cost_usd
    found.append(Tile("cost", "unknown" if cost is None else usd(cost)))
    if results:
        found.append(Tile("proof", "passed" if is_proven(view) else "none"))
    return found


def _of(value: object, name: str, otherwise: Any = None) -> Any:
    """A field of what may be a mapping."""
    return value.get(name, otherwise) if isinstance(value, dict) else otherwise
