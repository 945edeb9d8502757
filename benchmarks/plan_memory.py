"""The plan's memory against what torch's allocator held, for shapes of decoders and encoders on a CPU.

    python benchmarks/plan_memory.py [--only NAME]

Both are of one process: state, activations and buffers at the fullest moment of an update.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from measured_update import measured_peak, work_for

from kitae import catalog
from kitae.plan.memory import memory_of


def _config(preset: str, **changes: Any) -> dict[str, Any]:
    return {**catalog.preset(preset).config, **changes}


_DECODER = _config("llama-10m")
_BERT = _config("bert-mini")
_CLASSES = {"architectures": ["BertForSequenceClassification"]}
_BATCH = {"global_batch_size": 8, "micro_batch_size": 4}
_SMALL = {"num_hidden_layers": 4, "vocab_size": 8192}
_QWEN = {**_SMALL, "hidden_size": 256, "intermediate_size": 768, "head_dim": 64}
_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
_MASKED = {"objective": "masked-lm", **_BATCH}
_CLASSED = {"objective": "classification", "length": 128, **_BATCH}

SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "decoder": (_DECODER, {"length": 256, **_BATCH}),
    "decoder, selective": (_DECODER, {"length": 256, "recompute": "selective", **_BATCH}),
    "decoder, full": (_DECODER, {"length": 256, "recompute": "full", **_BATCH}),
    "decoder, bf16": ({**_DECODER, **_SMALL}, {"length": 128, "precision": "bf16", **_BATCH}),
    "decoder, documents, 1 pass": (
        _config("llama-10m", vocab_size=4096, tie_word_embeddings=False),
        {"length": 512, "global_batch_size": 2, "micro_batch_size": 2, "document_mask": True},
    ),
    "qwen3, 1 row": (
        _config("qwen3-0.6b", **_QWEN, **_HEADS),
        {"length": 512, "global_batch_size": 2, "micro_batch_size": 1},
    ),
    "encoder, masked": (_BERT, {"length": 128, **_MASKED}),
    "encoder, masked, selective": (_BERT, {"length": 256, "recompute": "selective", **_MASKED}),
    "encoder, classes, full": ({**_BERT, **_CLASSES}, {"recompute": "full", **_CLASSED}),
    "encoder, classes, bf16-sr": ({**_BERT, **_CLASSES}, {"precision": "bf16-sr", **_CLASSED}),
}


def main() -> None:
    """Print a table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="")
    only = options.parse_args().only
    print(f"{'shape':28} {'planned MB':>10} {'measured MB':>11} {'error':>7} {'state MB':>9}")
    for name, (config, training) in SHAPES.items():
        if only not in name:
            continue
        work = work_for(config, **training)
        memory, peak = memory_of(work), measured_peak(work)
        error, state = memory.peak / peak - 1, sum(memory.state.values())
        print(f"{name:28} {memory.peak / 1e6:10.1f} {peak / 1e6:11.1f} {error:+7.1%} {state / 1e6:9.1f}")


if __name__ == "__main__":
    main()
