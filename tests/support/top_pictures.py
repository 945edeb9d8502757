"""The pictures of `kitae top` in the manual: `python tests/support/top_pictures.py` draws them anew."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path

from neuron_stream import recorded_stream
from recorded_runs import BEGUN_S, attempt, write_run
from top_scenes import append, evaluation, of_ranks, sample, start, update, write_samples, write_training

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
    yield "top-trn1", _look(trn1), (120, 36), False, ""
    yield "top-trn1-cores", _look(trn1), (100, 40), False, "2n"
    yield "top-512", _look(_many(folder / "bert-large")), (80, 24), False, "2"
    ended = write_training(folder / "ended", steps=300, of=300, outcome="finished")
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
    append(run, *(update(step, devices=1) for step in range(1, 150)), evaluation(149))
    write_samples(run, sample("laptop", 2, 0))
    return run


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
