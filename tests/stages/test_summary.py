"""The last lines of a run, from the files that it left."""

from __future__ import annotations

import json
from pathlib import Path

from kitae.stages.run_folder import RunFolder
from kitae.stages.summary import summary

HELDOUT = {
    "loss_before": 2.3166,
    "loss_after": 2.0170,
    "mean_drop": 0.2996,
    "standard_error": 0.0331,
    "rows": 24,
    "rows_improved": 23,
}
RESULTS = {
    "steps": 16,
    "real_tokens": 32_768,
    "train_seconds": 131.4,
    "real_tokens_per_s": 256.7,
    "heldout": HELDOUT,
}


def write(folder: Path, **files: object) -> RunFolder:
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return RunFolder(folder)


def test_everything_that_a_finished_run_says(tmp_path: Path):
    run = write(
        tmp_path,
        results=RESULTS,
        samples={"prompt": "a", "before": "a b\n c", "after": "a d"},
        proof={"max_difference": 5.66e-05, "limit": 1e-4, "rounding": [0.0, 0.0], "prompts": [[1], [2]]},
        run={"stages": {"export": {"key": "k"}}},
    )
    assert summary(run) == [
        "held-out loss  2.317 before, 2.017 after: -0.300 ± 0.033 nats/token, 23 of 24 rows better",
        "sample before  a b c",
        "sample after   a d",
        "training       16 steps, 32,768 tokens in 131 s, 257 tokens/s without the first step",
        "proof          logits differ from transformers' by at most 5.7e-05 on 2 prompts",
        f"model          {tmp_path / 'export'}",
    ]


def test_the_references_own_rounding_is_said_when_it_was_needed(tmp_path: Path):
    run = write(tmp_path, proof={"max_difference": 2e-4, "limit": 1e-4, "rounding": [3e-4], "prompts": [[1]]})
    assert summary(run) == [
        "proof          logits differ from transformers' by at most 2.0e-04 on 1 prompts; "
        "its own fp32 rounding is 3.0e-04"
    ]


def test_a_run_without_heldout_text_and_with_one_step(tmp_path: Path):
    run = write(tmp_path, results={**RESULTS, "heldout": None, "real_tokens_per_s": None})
    assert summary(run) == []


def test_a_classifier_says_how_often_it_is_right(tmp_path: Path):
    heldout = {
        **HELDOUT,
        "texts": 800,
        "accuracy_before": 0.509,
        "accuracy_after": 0.9034,
        "f1_macro_after": 0.9031,
        "f1_after": [0.9, 0.9062],
        "confusion_matrix_after": [[360, 40], [37, 363]],
    }
    assert summary(write(tmp_path, results={"heldout": heldout})) == [
        "held-out loss  2.317 before, 2.017 after: -0.300 ± 0.033 nats/text, 23 of 24 rows better",
        "accuracy       50.9 % before, 90.3 % after",
        "F1             0.903 (0.900, 0.906); labels by predictions: 360 40 | 37 363",
    ]


def test_masked_tokens_are_compared_with_a_guess_by_frequency(tmp_path: Path):
    heldout = {
        **HELDOUT,
        "unigram_loss": 5.5571,
        "masked_accuracy_before": 0.0,
        "masked_accuracy_after": 0.241,
        "next_sentence_accuracy_before": 0.5,
        "next_sentence_accuracy_after": 0.75,
    }
    assert summary(write(tmp_path, results={"heldout": heldout})) == [
        "held-out loss  2.317 before, 2.017 after: -0.300 ± 0.033 nats/token, 23 of 24 rows better; "
        "a guess by frequency alone has 5.557",
        "masked tokens  0.0 % before, 24.1 % after",
        "next sentence  50.0 % before, 75.0 % after",
    ]
