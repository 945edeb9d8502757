"""How long `kitae top` takes for a frame of 512 cores, and what it takes of a core while it runs.

Processor time, as other programs may use the same cores. A frame is a look at a run's folder (another thread,
but of this process), the panels drawn anew, and what Textual makes of them for the terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).parents[1] / "tests/support")]

import psutil  # noqa: E402
from recorded_runs import BEGUN_S, attempt, write_run  # noqa: E402
from top_scenes import append, evaluation, of_ranks, sample, start, update, write_samples  # noqa: E402

from kitae.watch.top.app import TopApp  # noqa: E402
from kitae.watch.top.looking import Looked  # noqa: E402
from kitae.watch.top.source import RunSource  # noqa: E402


def run_of(folder: Path, nodes: int, steps: int) -> Path:
    """A run on machines of 32 cores each."""
    names = [f"queue1-st-trn1-{number}" for number in range(1, nodes + 1)]
    run = write_run(folder / "run", [attempt(nodes=names, price_per_node_hour=21.5)], signed=BEGUN_S + 600)
    append(run, start(0, 2 * steps, 32 * nodes), *(update(step) for step in range(1, steps + 1)))
    append(run, evaluation(steps), of_ranks(steps, 32 * nodes, 77 % (32 * nodes)))
    write_samples(run, *(sample(name) for name in names))
    return run


async def measured(run: Path, tab: int, size: tuple[int, int], frames: int) -> tuple[float, float]:
    """Milliseconds of a look, and of drawing a frame, each the median of all."""
    source = RunSource(run, now=lambda: BEGUN_S + 605)
    app = TopApp(source, source.look(), period_s=3600.0)
    looks, draws = [], []
    async with app.run_test(size=size) as pilot:
        await pilot.press(str(tab))
        await pilot.pause(0.3)
        for frame in range(frames):
            append(run, update(10_000_000 + frame))
            write_samples(run, *changed(run, frame))
            begun = time.process_time()
            scene = source.look()
            looked = time.process_time()
            app.on_looked(Looked(scene))
            app.screen._on_timer_update()
            await pilot.pause(0)
            app.screen._compositor.render_full_update().render_segments(app.console)
            draws.append(time.process_time() - looked)
            looks.append(looked - begun)
    return 1e3 * median(looks), 1e3 * median(draws)


def changed(run: Path, frame: int) -> list[object]:
    """New samples of all machines, as every core does something else in each frame."""
    names = sorted(path.name.removesuffix(".jsonl") for path in (run / "devices").glob("*.jsonl"))
    return [sample(name, busy=0.95 - 0.1 * (frame % 9), time=BEGUN_S + 601 + frame) for name in names]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    print(f"{'cores':>5}  {'size':>7}  {'tab':>8}  {'look ms':>8}  {'draw ms':>8}")
    for nodes in (1, 2, 16):
        for tab, name, size in ((1, "overview", (80, 24)), (2, "cores", (80, 24)), (1, "overview", (200, 60)),
                                (3, "training", (200, 60)), (4, "ranks", (200, 60))):  # fmt: skip
            with tempfile.TemporaryDirectory() as folder:
                run = run_of(Path(folder), nodes, options.steps)
                look, draw = asyncio.run(measured(run, tab, size, options.frames))
            shown = f"{size[0]}x{size[1]}"
            print(f"{32 * nodes:>5}  {shown:>7}  {name:>8}  {look:>8.1f}  {draw:>8.1f}", flush=True)
    asyncio.run(alone())


async def alone(seconds: float = 15.0) -> None:
    """What the live screen takes of a core, with new numbers every second, and of memory."""
    with tempfile.TemporaryDirectory() as folder:
        run = run_of(Path(folder), 16, 2000)
        source = RunSource(run, now=lambda: BEGUN_S + 605)
        app = TopApp(source, source.look(), period_s=1.0)
        async with app.run_test(size=(120, 36)) as pilot:
            await pilot.pause(2.0)
            begun, spent = time.monotonic(), time.process_time()
            own = 0.0
            while time.monotonic() - begun < seconds:
                before = time.process_time()
                append(run, update(1))
                write_samples(run, *changed(run, int(time.monotonic())))
                own += time.process_time() - before
                await pilot.pause(1.0)
            share = (time.process_time() - spent - own) / (time.monotonic() - begun)
        held = psutil.Process().memory_info().rss / 2**20
    print(f"live, 512 cores, 120x36, a look a second: {100 * share:.1f} % of a core, {held:.0f} MiB")


if __name__ == "__main__":
    main()
