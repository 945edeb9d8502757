"""What a finished run says at its end."""

from __future__ import annotations

from typing import Any

from kitae.stages.files import read_json
from kitae.stages.run_folder import RunFolder


def summary(run: RunFolder) -> list[str]:
    """The held-out loss and a sample before and after, the speed, the proof, and where the model is."""
    results, samples = read_json(run.results), read_json(run.samples)
    proof = read_json(run.path / "proof.json")
    lines = [
        *_heldout_lines(results.get("heldout")),
        *_sample_lines(samples),
        *_speed_lines(results),
        *_proof_lines(proof),
    ]
    if run.stage("export"):
        lines.append(f"model          {run.export}")
    return lines


def _heldout_lines(heldout: dict[str, Any] | None) -> list[str]:
    if not heldout:
        return []
    error = heldout["standard_error"]
    spread = "" if error is None else f" ± {error:.3f}"
    counted = "text" if "texts" in heldout else "token"
    return [
        f"held-out loss  {heldout['loss_before']:.3f} before, {heldout['loss_after']:.3f} after: "
        f"{-heldout['mean_drop']:+.3f}{spread} nats/{counted}, "
        f"{heldout['rows_improved']} of {heldout['rows']} rows better{_baseline(heldout)}",
        *_share_lines(heldout),
    ]


def _baseline(heldout: dict[str, Any]) -> str:
    loss = heldout.get("unigram_loss")
    return "" if loss is None else f"; a guess by frequency alone has {loss:.3f}"


def _share_lines(heldout: dict[str, Any]) -> list[str]:
    """Accuracies before and after and, of classes, F1 and who was taken for whom."""
    found = [name for name in _SHARES if f"{name}_after" in heldout]
    pairs = ((name, *(_percent(heldout[f"{name}_{when}"]) for when in ("before", "after"))) for name in found)
    lines = [f"{_SHARES[name]:<14} {before} before, {after} after" for name, before, after in pairs]
    if "confusion_matrix_after" not in heldout:
        return lines
    scores = ", ".join(f"{score:.3f}" for score in heldout["f1_after"])
    rows = " | ".join(" ".join(map(str, row)) for row in heldout["confusion_matrix_after"])
    return [
        *lines,
        f"F1             {heldout['f1_macro_after']:.3f} ({scores}); labels by predictions: {rows}",
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


_SHARES = {
    "accuracy": "accuracy",
    "masked_accuracy": "masked tokens",
    "next_sentence_accuracy": "next sentence",
}


def _sample_lines(samples: dict[str, Any]) -> list[str]:
    return [
        f"sample {when:<7} {' '.join(samples[when].split())}"
        for when in ("before", "after")
        if when in samples
    ]


def _speed_lines(results: dict[str, Any]) -> list[str]:
    speed = results.get("real_tokens_per_s")
    if not speed:
        return []
    return [
        f"training       {results['steps']} steps, {results['real_tokens']:,} tokens in "
        f"{results['train_seconds']:.0f} s, {speed:,.0f} tokens/s without the first step"
    ]


def _proof_lines(proof: dict[str, Any]) -> list[str]:
    return [f"proof          {proof_text(proof)}"] if proof else []


def proof_text(proof: dict[str, Any]) -> str:
    """What a proof found, with the reference's own rounding where that was needed to judge."""
    rounding = max(proof["rounding"])
    own = f"; its own fp32 rounding is {rounding:.1e}" if rounding else ""
    return (
        f"logits differ from transformers' by at most {proof['max_difference']:.1e} on "
        f"{len(proof['prompts'])} prompts{own}"
    )
