"""Conversion from Hugging Face to NxD and back, against a plain copy and against "load all, then split".

    python benchmarks/convert.py [--layers 8] [--rounds 5] [--proof none] [--sides copy kitae whole]

The weights are random, in bf16 and of Llama 3.1 8B's shape but for the number of layers: 8B has 32, which is
16 GB. They go to tp 32 with KV multiplier 4, and back. In each round every side does it once, in an order
that changes, from files that are not in memory to bytes that are on the disk; the first round warms up and is
left out. GB/s count the bytes of the source. On the disk are at most the weights three times; with
--keep-less twice, because the source is removed before the way back.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path

from convert_sides import FORMAT, RandomWeights, kitae
from sides import Side, ratios, spread, take_turns

from kitae.checkpoint.hf_sink import HfSink
from kitae.checkpoint.stream import stream
from kitae.model.config import DecoderConfig

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}
FULL_LAYERS = 32
LABELS = {"copy": "cp and fsync", "kitae": "kitae convert", "whole": "load all, then split or merge"}


def make_weights(folder: Path, layers: int) -> None:
    """A Hugging Face folder of random weights."""
    config = {**CONFIG, "num_hidden_layers": layers}
    weights = RandomWeights(DecoderConfig.from_hf(config))
    with HfSink(folder, weights.tensors(), config=config) as sink:
        stream(weights, sink)


def size_of(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(way: str, source: Path, target: Path, options: argparse.Namespace) -> None:
    """Rounds of all sides in one direction; printed."""
    work = json.dumps({"way": way, "source": str(source), "target": str(target), "proof": options.proof})
    sides = [Side(name, "convert_sides.py", work) for name in options.sides]
    take_turns(sides, options.rounds, min(1, options.rounds - 1))
    size = size_of(source)
    print(
        f"{'to tp 32' if way == 'there' else 'and back'}: {size / 1e9:.2f} GB, {len(sides[0].rounds)} rounds"
    )
    for side in sides:
        speeds = [size / 1e9 / seconds for seconds in side.seconds()]
        peak, anonymous = (
            max(answer[name] for answers in side.rounds for answer in answers) / 1e9
            for name in ("peak_bytes", "anonymous_bytes")
        )
        cpu = statistics.median(side.cpu_seconds())
        print(
            f"  {LABELS[side.name]:30} GB/s {spread(speeds, 2)}; {cpu:.1f} s of CPU; "
            f"peak {peak:.2f} GB, of it {anonymous:.2f} GB of no file"
        )
    ours = next((side for side in sides if side.name == "kitae"), None)
    for side in sides if ours else []:
        if side is not ours:
            print(f"  kitae / {side.name:8} speed {spread(ratios(side.seconds(), ours.seconds()), 2)}")


def run(home: Path, options: argparse.Namespace) -> None:
    """Make the weights, and measure both directions."""
    make_weights(home / "hf", options.layers)
    measure("there", home / "hf", home / "out", options)
    kitae({"way": "there", "source": home / "hf", "target": home / "nxd", "proof": "none"})
    if options.keep_less:
        shutil.rmtree(home / "hf")
    measure("back", home / "nxd", home / "out", options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--layers", type=int, default=8, help=f"of the model's; Llama 3.1 8B has {FULL_LAYERS}"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count")
    parser.add_argument("--proof", default="none", choices=["none", "values", "logits"], help="of kitae")
    parser.add_argument("--sides", nargs="+", default=list(LABELS), choices=list(LABELS))
    parser.add_argument("--keep-less", action="store_true", help="remove each source as soon as possible")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder by default")
    options = parser.parse_args()
    print(
        f"Llama 3.1 8B with {options.layers} of its {FULL_LAYERS} layers, bf16, tp {FORMAT.tp_size}, "
        f"KV multiplier {FORMAT.kv_multiplier}, kitae with --proof {options.proof}"
    )
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="kitae-bench-") as folder:
        run(Path(folder), options)


if __name__ == "__main__":
    main()
