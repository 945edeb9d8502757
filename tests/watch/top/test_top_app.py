"""The live screen, with keys and in all sizes, by Textual's pilot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from neuron_stream import recorded_stream
from recorded_runs import BEGUN_S, attempt, write_run
from rich.cells import cell_len
from textual.pilot import Pilot
from textual.widgets import Log, TabbedContent
from top_scenes import append, update, write_training

from kitae.watch.samples import CoreSample, Sample
from kitae.watch.top.app import HELP, RUN_TABS, TopApp
from kitae.watch.top.look import LIGHT
from kitae.watch.top.looking import Looked, Looking
from kitae.watch.top.scene import Scene
from kitae.watch.top.source import Past, RunSource
from kitae.watch.top.widgets import Help

NOW = BEGUN_S + 605
Play = Callable[[TopApp, "Pilot[None]"], Awaitable[None]]


@pytest.fixture(autouse=True)
def _no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("COLORFGBG", raising=False)


class Still:
    """Always the same."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.looks = 0

    def look(self) -> Scene:
        self.looks += 1
        return self.scene

    def turn_to(self, rank: int) -> None:
        raise AssertionError("there are no logs")

    def close(self) -> None:
        """Nothing is held."""


def play(app: TopApp, what: Play, size: tuple[int, int] = (100, 30)) -> None:
    async def played() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await what(app, pilot)

    asyncio.run(played())


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if true():
            return
        await pilot.pause(0.01)
    raise AssertionError("it did not come")


def text(app: TopApp) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def app_of(run: Path) -> TopApp:
    source = RunSource(run, now=lambda: NOW)
    return TopApp(source, source.look(), period_s=0.05)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Two trn1.32xlarge, as neuron-monitor told of them."""
    run = write_training(tmp_path / "run")
    recorded_stream(run)
    return run


def test_all_tabs_by_their_numbers(recorded: Path):
    """The 64 cores of a recorded stream of two nodes; a word of each tab that only it has."""
    words = ("step time of ranks", "memory", "seconds a step", "64 ranks", "学習しています", "attempts")

    async def keys(app: TopApp, pilot: Pilot[None]) -> None:
        assert app.scene.cores == 64
        for number, word in enumerate(words, 1):
            await pilot.press(str(number))
            await pilot.pause()
            assert app.query_one(TabbedContent).active == RUN_TABS[number - 1]
            assert word in text(app), RUN_TABS[number - 1]
        await pilot.press("right")
        assert app.query_one(TabbedContent).active == "overview"
        await pilot.press("left", "left")
        assert app.query_one(TabbedContent).active == "log"

    play(app_of(recorded), keys, (120, 40))


def test_what_the_overview_shows(recorded: Path):
    async def looks(app: TopApp, pilot: Pilot[None]) -> None:
        shown = text(app)
        for words in ("running", "step 300/3,000", "1h30m left", "$114.73 at the end", "524k tokens/s",
                      "8,192 a core", "utilisation 31.4 %", "64 cores on 2 nodes", "slow: rank 7 1.59 x",
                      "idle-while-paid", "学習しています", "held-out 2.261"):  # fmt: skip
            assert words in shown, words

    play(app_of(recorded), looks, (120, 40))


def test_keys_change_what_is_seen(recorded: Path):
    async def keys(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("l", "x", "f")
        assert (app.view.log_scale, app.view.axis, app.view.flops) == (True, "tokens", True)
        assert "loss (log)" in text(app)
        assert "315M tokens" in text(app)
        await pilot.press("2", "n")
        await pilot.pause()
        assert f"cores of {app.scene.nodes[0].name} (1 of 2 nodes)" in text(app)
        await pilot.press("N")
        assert app.view.node == 0
        await pilot.press("5", "r")
        await until(pilot, lambda: "rank 1 says nothing" in text(app))
        assert app.query_one(Log).lines[:1] == ["rank 1 says nothing"]

    play(app_of(recorded), keys, (120, 30))


def test_light_and_dark(recorded: Path):
    async def keys(app: TopApp, pilot: Pilot[None]) -> None:
        assert app.current_theme.dark
        dark = app.export_screenshot()
        await pilot.press("t")
        await pilot.pause()
        assert not app.current_theme.dark
        assert app.view.palette is LIGHT
        light = app.export_screenshot()
        assert LIGHT.curve in light
        assert LIGHT.curve not in dark
        await pilot.press("t")
        assert app.current_theme.dark

    play(app_of(recorded), keys)


def test_a_light_terminal_begins_light(recorded: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLORFGBG", "0;15")
    assert app_of(recorded).theme == "textual-light"


def test_help_tells_all_keys_and_goes_away(recorded: Path):
    async def keys(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, Help)
        assert "space              pause" in text(app)
        before = app.scene
        await until(pilot, lambda: app.scene is not before)  # it goes on below
        await pilot.press("q")
        await pilot.pause()
        assert not isinstance(app.screen, Help)
        assert app.is_running

    play(app_of(recorded), keys)
    told = {word.strip(",") for line in HELP.split("\n\n")[0].splitlines() for word in line[:19].split()}
    keys_bound = {key for binding in TopApp.BINDINGS for key in binding.key.split(",")}  # type: ignore[union-attr]
    assert keys_bound - {str(number) for number in range(1, 7)} - {"question_mark", "h", "ctrl+c"} <= told


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_it_ends(recorded: Path, key: str):
    async def keys(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press(key)

    app = app_of(recorded)
    play(app, keys)
    assert app.return_code == 0
    assert not app.is_running


def test_a_paused_screen_stays(recorded: Path):
    async def keys(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("space")
        await pilot.pause()
        assert "paused" in text(app)
        append(recorded, update(301))
        app.on_looked(Looked(RunSource(recorded, now=lambda: NOW).look()))  # on its way at that moment
        await pilot.pause(0.3)  # several periods
        assert "step 300/" in text(app)
        await pilot.press("space")
        await until(pilot, lambda: "step 301/" in text(app))

    play(app_of(recorded), keys)


def test_a_live_run_grows_on_the_screen(recorded: Path):
    async def grows(app: TopApp, pilot: Pilot[None]) -> None:
        append(recorded, update(301), update(302))
        with (recorded / "logs/rank-0.log").open("a") as file:
            file.write("one more line\n")
        await until(pilot, lambda: "step 302/" in text(app) and "one more line" in text(app))

    play(app_of(recorded), grows)


def test_a_finished_run(tmp_path: Path):
    run = write_training(tmp_path / "run", steps=300, of=300, outcome="finished")

    async def looks(app: TopApp, pilot: Pilot[None]) -> None:
        shown = text(app)
        assert "run · done" in shown
        assert "100.0 %" in shown
        assert "left, ends" not in shown

    play(app_of(run), looks)


def test_a_run_that_has_not_begun(tmp_path: Path):
    run = write_run(tmp_path / "run", [attempt(host="here")], signed=NOW)

    async def keys(app: TopApp, pilot: Pilot[None]) -> None:
        assert "no update yet" in text(app)
        for key in "123456":
            await pilot.press(key)
            await pilot.pause()
        append(run, update(1))
        await until(pilot, lambda: "step 1/" in text(app))

    play(app_of(run), keys)


def test_a_folder_that_goes_away(recorded: Path):
    async def goes(app: TopApp, pilot: Pilot[None]) -> None:
        recorded.rename(recorded.with_name("elsewhere"))
        await until(pilot, lambda: "its folder is gone" in text(app))
        assert "step 300/3,000" in text(app)

    play(app_of(recorded), goes)


ALL, SOME = (2, 3, 4, 5, 6, 1), (2, 1)
SIZES = {(200, 60): (1,), (80, 24): ALL, (40, 12): SOME, (20, 6): (1,), (1, 1): ALL, (300, 4): (1,)}


def test_every_size(recorded: Path):
    """Down to 80 x 24 everything that counts is there; below that, as much as there is room for."""

    async def resizes(app: TopApp, pilot: Pilot[None]) -> None:
        for size, tabs in SIZES.items():
            await pilot.resize_terminal(*size)
            for number in tabs:
                app.action_turn_to(number)
                await pilot.pause()
                assert len(text(app).split("\n")) == size[1]
            if size[0] >= 80 and size[1] >= 24:
                for words in (
                    "step 300/3,000",
                    "1h30m left",
                    "at the end",
                    "tokens/s",
                    "cores",
                    "64 ranks",
                    "idle-wh",
                ):
                    assert words in text(app), (size, words)

    play(app_of(recorded), resizes)


def test_it_follows_a_window_that_changes(recorded: Path):
    async def resizes(app: TopApp, pilot: Pilot[None]) -> None:
        for width, height in ((140, 50), (50, 15), (80, 24)):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            assert {cell_len(line) for line in text(app).split("\n")} == {width}
            assert "loss" in text(app)

    play(app_of(recorded), resizes)


def test_one_core_without_a_run():
    one = Sample(NOW, 1.0, "host", "laptop", cores=(CoreSample(0, 0.42),))

    async def looks(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.pause()
        assert "42 %" in text(app)
        assert "overview" not in text(app)
        await pilot.press("4", "right", "n", "r", "l")
        assert app.query_one(TabbedContent).active == "cores"

    scene = Scene("laptop", NOW, nodes=Past().nodes({"laptop": one}))
    play(TopApp(Still(scene), scene), looks)


def test_a_run_that_has_ended_is_looked_at_less_often(tmp_path: Path):
    run = write_training(tmp_path / "run", steps=300, of=300, outcome="finished")
    scene = RunSource(run, now=lambda: NOW).look()
    waits: list[float] = []
    looking = Looking(Still(scene), 2.0, lambda message: None)
    looking._wait = lambda seconds: (waits.append(seconds), looking.end())  # type: ignore[assignment, func-returns-value]
    looking.run()
    assert waits == [10.0]


def test_what_nobody_foresaw_ends_it_and_is_told(recorded: Path):
    class Broken(Still):
        def look(self) -> Scene:
            raise ZeroDivisionError("a bug")

    app = TopApp(Broken(app_of(recorded).scene), app_of(recorded).scene)

    async def waits(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.failure is not None)

    play(app, waits)
    assert isinstance(app.failure, ZeroDivisionError)


def test_what_it_takes_to_start_is_not_told_as_what_the_screen_takes(recorded: Path):
    app = app_of(recorded)
    assert app.own_share() is None
    assert app.own_share() is not None
