"""The pictures of `kitae top` in the manual: `python tests/support/top_pictures.py` draws them anew."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from html import unescape
from pathlib import Path

from neuron_stream import recorded_stream
from recorded_runs import BEGUN_S, attempt, write_log, write_run
from top_scenes import GIB, append, evaluation, of_ranks, sample, start, update, write_samples, write_training

from kitae.watch.samples import HostSample
from kitae.watch.top.app import TopApp
from kitae.watch.top.scene import Scene
from kitae.watch.top.source import RunSource

IMAGES = Path(__file__).parents[2] / "docs/images"
NOW = BEGUN_S + 605


class Picture(TopApp):
    """With a share of its own that is always the same."""

    def own_share(self) -> float:
        return 0.02


class Once:
    """A scene that stays."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def look(self) -> Scene:
        return self.scene

    def turn_to(self, rank: int) -> None:
        """There is one log."""

    def close(self) -> None:
        """Nothing is held."""


def scenes(folder: Path) -> Iterator[tuple[str, Scene, tuple[int, int], bool, str]]:
    """Name, scene, size, whether light, and keys."""
    trn1 = write_training(folder / "llama-cpt")
    recorded_stream(trn1, samples=120)
    (_, slow) = json.loads((trn1 / "alarms.json").read_text())["alarms"][
        ::-1
    ]  # no core of the stream is idle
    (trn1 / "alarms.json").write_text(json.dumps({"alarms": [slow]}))
    _log(trn1, 300, 3000, "524,288")
    yield "top-trn1", _look(trn1), (120, 36), False, ""
    yield "top-trn1-cores", _look(trn1), (100, 40), False, "2n"
    yield "top-512", _look(_many(folder / "bert-large")), (80, 24), False, "2"
    ended = write_training(folder / "ended/llama-cpt", steps=300, of=300, outcome="finished")
    yield "top-finished", _look(ended), (110, 34), True, "3"
    yield "top-cpu", _look(_laptop(folder / "tiny")), (100, 28), False, ""


def _look(run: Path) -> Scene:
    return RunSource(run, now=lambda: NOW).look()


def _many(run: Path) -> Path:
    names = [f"queue1-st-trn1-{number}" for number in range(1, 17)]
    write_run(run, [attempt(nodes=names, price_per_node_hour=21.5)], signed=NOW - 5)
    append(run, start(0, 2000, 512), *(update(step, devices=512) for step in range(1, 300)))
    append(run, evaluation(299), of_ranks(299, 512, 77))
    write_samples(run, *(sample(name, busy=0.95 - 0.03 * (at % 5)) for at, name in enumerate(names)))
    return run


def _laptop(run: Path) -> Path:
    write_run(run, [attempt(host="laptop")], signed=NOW - 5)
    append(run, {**start(0, 400, 1), "backend": "cpu", "precision": "fp32"})
    append(run, *(_small(step) for step in range(1, 150)), evaluation(149))
    host = HostSample(0.89, 9 * GIB, 16 * GIB, 0, 120 * GIB, 256 * GIB)
    write_samples(run, replace(sample("laptop", 2, 0), host=host))
    _log(run, 149, 400, "1,024")
    return run


def _small(step: int) -> dict[str, object]:
    """An update of a model that a laptop trains: 2,048 tokens in two seconds."""
    speeds = {"tokens_per_s": 1024.0, "real_tokens_per_s": 921.5, "tokens_per_s_per_device": 1024.0}
    return {**update(step, devices=1), "padded_tokens": 2048, "real_tokens": 1843, **speeds}


def _log(run: Path, step: int, steps: int, speed: str) -> None:
    """What rank 0 says of its newest updates, as their metrics have it."""
    shown = [
        f"step {one['step']}/{steps}  loss {one['loss']:.4f}  lr {one['learning_rate']:.2e}  {speed} tokens/s"
        for one in map(update, range(step - 4, step + 1))
    ]
    told = [*shown, f"held-out loss {evaluation(step)['loss']:.4f} after step {step} (24,400 tokens)"]
    begun = datetime.fromtimestamp(NOW - 2 * len(told), timezone.utc)
    times = [(begun + timedelta(seconds=2 * at)).isoformat() for at in range(len(told))]
    write_log(run, 0, *(f"{at} {line}" for at, line in zip(times, told, strict=True)))


async def drawn(scene: Scene, size: tuple[int, int], light: bool, keys: str) -> str:
    """The screen as SVG."""
    app = Picture(Once(scene), scene, period_s=3600.0, light=light)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause(0.2)
        return app.export_screenshot(title="kitae top")


def words(svg: str) -> list[str]:
    """What can be read in a picture, from above."""
    lines = [unescape(text).replace("\xa0", " ") for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]
    return [line.rstrip() for line in lines if line.strip()]


def pictures() -> dict[str, str]:
    """All, by name."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    with tempfile.TemporaryDirectory() as folder:
        return {
            name: asyncio.run(drawn(scene, size, light, keys))
            for name, scene, size, light, keys in scenes(Path(folder))
        }


if __name__ == "__main__":
    os.environ["PATH"] = ""  # no scheduler
    IMAGES.mkdir(exist_ok=True)
    for name, svg in pictures().items():
        (IMAGES / f"{name}.svg").write_text(svg, encoding="utf-8")
        print(IMAGES / f"{name}.svg")
