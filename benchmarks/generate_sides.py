"""The sides of `generate.py`, each made to wait for a line before the text of a round."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sides import say

Generated = tuple[list[list[int]], float, float]
"""Ids, seconds to the first token, and from there to the last."""


def peak_bytes() -> int:
    """Most bytes that this process has held."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def prompts_of(work: dict[str, Any], vocabulary: int) -> list[list[int]]:
    """Ids that depend on the sizes alone."""
    import torch

    shape = (work["batch"], work["prompt_tokens"])
    return torch.randint(5, vocabulary - 5, shape, generator=torch.Generator().manual_seed(0)).tolist()


def kitae(work: dict[str, Any], quantize: str = "none") -> Callable[[], Generated]:
    """Run the loop of `kitae generate`."""
    import torch

    from kitae.backend.table import select
    from kitae.checkpoint.opened import open_weights
    from kitae.generate.loop import Wish, continue_prompts
    from kitae.generate.weights import Keeping
    from kitae.stages.text_model import open_network

    select("cpu")
    model = open_weights(Path(work["model"])).model()
    network = open_network(model, Keeping(torch.float32, quantize=quantize))
    prompts = prompts_of(work, network.config.vocab_size)
    del model

    def run() -> Generated:
        times: list[float] = []

        def taken(row: int, token: int) -> bool:
            times.append(time.perf_counter())
            return False

        begin = time.perf_counter()
        found = continue_prompts(network, prompts, Wish(work["tokens"]), taken=taken)
        return [one.ids for one in found], times[0] - begin, times[-1] - times[0]

    return run


def transformers(work: dict[str, Any]) -> Callable[[], Generated]:
    """`transformers.generate` as it comes, in fp32."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.generation.streamers import BaseStreamer

    model = AutoModelForCausalLM.from_pretrained(work["model"], dtype=torch.float32).eval()
    ids = torch.tensor(prompts_of(work, model.config.vocab_size))

    class Times(BaseStreamer):
        """Notes when tokens come; the first call is the prompt's."""

        def __init__(self) -> None:
            self.times: list[float] = []

        def put(self, value: Any) -> None:
            self.times.append(time.perf_counter())

        def end(self) -> None:
            """Nothing to do."""

    def run() -> Generated:
        streamer, begin = Times(), time.perf_counter()
        options = {"streamer": streamer} if len(ids) == 1 else {}
        found = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=work["tokens"],
            min_new_tokens=work["tokens"],
            do_sample=False,
            pad_token_id=0,
            **options,
        )
        end = time.perf_counter()
        # Its streamers take one text; of several, the prompts count with the rest.
        first = streamer.times[1] if options else begin
        return found[:, ids.shape[1] :].tolist(), first - begin, end - first

    return run


SIDES: dict[str, Callable[[dict[str, Any]], Callable[[], Generated]]] = {
    "transformers": transformers,
    "kitae": kitae,
    "kitae-int8": lambda work: kitae(work, "int8"),
}


def main() -> None:
    import torch  # noqa: F401

    name, work = sys.argv[1], json.loads(sys.argv[2])
    before = peak_bytes()
    run = SIDES[name](work)
    say({"ready": True})
    for _ in sys.stdin:
        cpu = time.process_time()
        ids, first_s, seconds = run()
        say(
            {
                "seconds": seconds,
                "first_s": first_s,
                "cpu_seconds": time.process_time() - cpu,
                "ids": ids,
                "peak_bytes": peak_bytes(),
                "before_bytes": before,
            }
        )


if __name__ == "__main__":
    main()
