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
    return [
        f"held-out loss  {heldout['loss_before']:.3f} before, {heldout['loss_after']:.3f} after: "
        f"{-heldout['mean_drop']:+.3f}{spread} nats/token, "
        f"{heldout['rows_improved']} of {heldout['rows']} rows better"
    ]


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
