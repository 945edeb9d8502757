"""The live screen."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import psutil
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, VerticalScroll
from textual.widgets import Footer, Log, TabbedContent, TabPane

from kitae.watch.top import curves, events
from kitae.watch.top.cores import cores, processes, title_of_cores
from kitae.watch.top.header import header
from kitae.watch.top.look import DARK, LIGHT, Palette, View
from kitae.watch.top.looking import Failed, Looked, Looking
from kitae.watch.top.ranks import ranks
from kitae.watch.top.scene import CURVES, Scene
from kitae.watch.top.source import LOG_LINES, Source
from kitae.watch.top.style import CSS
from kitae.watch.top.widgets import Draw, HeaderLines, Help, Panel

RUN_TABS = ("overview", "cores", "training", "ranks", "log", "events")
MACHINE_TABS = ("cores",)
HELP = """\
1-6, left, right   overview, cores, training, ranks, log, events
up, down, pages    move in a long picture
n, N               all nodes, then one after the other
r, R               the log of the next rank, of the one before
space              pause: the picture stays as it is
l                  the loss on a logarithmic scale
x                  curves along steps, tokens or time
f                  FLOP/s of cores in place of their utilisation
t                  dark or light
q, Ctrl-C          quit; the run goes on

A core is a sign: how high it is and its colour say how busy it is (red: idle).
Utilisation is, in the lines above, the share of the machine's peak that the model's
arithmetic makes use of; of cores it is how busy their machine says they are.
Time and money at the end are for the updates that are left, without evaluations
and saves."""


class TopApp(App[None]):
    """One screen for a run or a machine."""

    CSS = CSS
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (70, "-usual")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-low"), (18, "-high")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"turn_to({number})", show=False) for number in range(1, 7)),
        Binding("left", "turn(-1)", show=False, priority=True),
        Binding("right", "turn(1)", show=False, priority=True),
        Binding("n", "next_node(1)", "node"),
        Binding("N", "next_node(-1)", show=False),
        Binding("r", "next_rank(1)", "rank"),
        Binding("R", "next_rank(-1)", show=False),
        Binding("space", "pause", "pause"),
        Binding("l", "log_scale", "log"),
        Binding("x", "next_axis", "axis"),
        Binding("f", "flops", "FLOP/s", show=False),
        Binding("t", "turn_light", "theme"),
        Binding("question_mark,h", "help", "help", key_display="?"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(
        self, source: Source, first: Scene, period_s: float = 1.0, light: bool | None = None
    ) -> None:
        super().__init__()
        self.scene = first
        self.theme = "textual-light" if (_light_terminal() if light is None else light) else "textual-dark"
        self.view = View(palette=self._palette())
        self.failure: Exception | None = None
        self._looking = Looking(source, period_s, self.post_message)
        self._process = psutil.Process()
        self._begun = False
        self._shown_of_log = (0, 0)
        self._header = HeaderLines(self, "", _header, id="header", tall=True)
        self._content = TabbedContent(id="tabs")
        self._lines = Log(id="log-lines", max_lines=LOG_LINES)

    def _palette(self) -> Palette:
        return DARK if self.current_theme.dark else LIGHT

    # ---- what is on it

    def compose(self) -> ComposeResult:
        """The lines above, the tabs, the keys."""
        yield self._header
        with self._content:
            for number, name in enumerate(self._tabs, 1):
                with TabPane(f"{number} {name}", id=name):
                    yield from getattr(self, f"_compose_{name}")()
        yield Footer(compact=True, show_command_palette=False)

    @property
    def _tabs(self) -> tuple[str, ...]:
        return MACHINE_TABS if self.scene.status is None and not self.scene.gone else RUN_TABS

    def _compose_overview(self) -> ComposeResult:
        with Grid(id="overview-grid"):
            yield self._curve("loss", "overview")
            yield Panel(self, title_of_cores, cores, id="overview-cores")
            yield Panel(self, "step time of ranks", ranks, id="overview-ranks")
            yield Panel(self, "alarms and errors", events.alarms, id="overview-alarms")
            yield Panel(self, _log_title, _filled(events.log_tail), id="overview-log")

    def _compose_cores(self) -> ComposeResult:
        with VerticalScroll():
            yield Panel(self, title_of_cores, cores, id="cores-cores", tall=True)
            yield Panel(self, "alarms and errors", events.alarms, id="cores-errors", tall=True)
            yield Panel(self, "processes", _without_height(processes), id="cores-processes", tall=True)

    def _compose_training(self) -> ComposeResult:
        with Grid(id="training-grid"):
            for name in CURVES:
                yield self._curve(name, "training")

    def _compose_ranks(self) -> ComposeResult:
        with VerticalScroll():
            yield Panel(self, "step time of ranks", ranks, id="ranks-ranks", tall=True)

    def _compose_log(self) -> ComposeResult:
        yield self._lines

    def _compose_events(self) -> ComposeResult:
        with VerticalScroll():
            yield Panel(self, "alarms and errors", events.alarms, id="events-alarms", tall=True)
            yield Panel(self, "attempts", events.attempts, id="events-attempts", tall=True)
            yield Panel(self, "checkpoints", events.checkpoints, id="events-checkpoints", tall=True)

    def _curve(self, name: str, where: str) -> Panel:
        return Panel(
            self,
            lambda scene, view: curves.title_of(name, scene, view),
            _filled(lambda scene, view, width, height: curves.curve(name, scene, view, width, height)),
            id=f"{where}-{name}",
        )

    def on_mount(self) -> None:
        """Begin to look."""
        self._process.cpu_percent()
        self._show()
        self._looking.start()

    def on_unmount(self) -> None:
        """Stop looking."""
        self._looking.end()

    # ---- what comes

    def on_looked(self, message: Looked) -> None:
        """Show a new scene. A screen that is paused takes only what another rank's log came with."""
        if self.view.paused and message.scene.rank == self.scene.rank:
            return
        self.scene = message.scene
        self.view = replace(self.view, own_share=self.own_share())
        self._show()

    def own_share(self) -> float | None:
        """Of a core, that this process took since the last call; None of its start."""
        share, begun, self._begun = self._process.cpu_percent() / 100, self._begun, True
        return share if begun else None

    def on_failed(self, message: Failed) -> None:
        """End, and let the caller tell of it."""
        self.failure = message.error
        self.exit()

    def on_tabbed_content_tab_activated(self) -> None:
        """Draw what was not to be seen."""
        self._show()

    def _show(self) -> None:
        if not self._header.is_attached:  # it ends
            return
        self._header.show()
        for panel in self._pane().query(Panel):
            panel.show()
        if self._tabs is RUN_TABS:
            self._show_log()

    def _pane(self) -> TabPane:
        return self._content.get_pane(self._content.active or self._tabs[0])

    def _show_log(self) -> None:
        """Lines that are new since the last time; all of another rank."""
        log, (rank, count) = self._lines, self._shown_of_log
        if rank != self.scene.rank or self.scene.log_count < count:
            log.clear()
            count = 0
        new = self.scene.log_count - count
        if new:
            log.write_lines(self.scene.log[-new:])
        self._shown_of_log = (self.scene.rank, self.scene.log_count)

    # ---- keys

    def action_turn_to(self, number: int) -> None:
        """Show a tab by its number."""
        if number <= len(self._tabs):
            self._content.active = self._tabs[number - 1]
            pane = self._pane()
            self.set_focus(next(iter(pane.query("VerticalScroll, Log")), None))

    def action_turn(self, by: int) -> None:
        """Show the next tab, or the one before."""
        at = self._tabs.index(self._content.active)
        self.action_turn_to((at + by) % len(self._tabs) + 1)

    def action_next_node(self, by: int) -> None:
        """All nodes, then one after the other."""
        self._look_otherwise(self.view.with_next_node(len(self.scene.nodes), by))

    def action_next_rank(self, by: int) -> None:
        """The log of another rank that has one."""
        there = self.scene.ranks_with_logs
        if there:
            at = there.index(self.scene.rank) if self.scene.rank in there else 0
            self._looking.turn_to(there[(at + by) % len(there)])

    def action_pause(self) -> None:
        """Stop looking, or go on."""
        self._look_otherwise(replace(self.view, paused=not self.view.paused))
        self._looking.pause(self.view.paused)

    def action_log_scale(self) -> None:
        """Of the loss."""
        self._look_otherwise(replace(self.view, log_scale=not self.view.log_scale))

    def action_next_axis(self) -> None:
        """Steps, tokens, time."""
        self._look_otherwise(self.view.with_next_axis())

    def action_flops(self) -> None:
        """FLOP/s of cores, as neuron-top's F."""
        self._look_otherwise(replace(self.view, flops=not self.view.flops))

    def action_turn_light(self) -> None:
        """The other theme."""
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"
        self._look_otherwise(replace(self.view, palette=self._palette()))

    def action_help(self) -> None:
        """Show what the keys do."""
        self.push_screen(Help(HELP))

    def _look_otherwise(self, view: View) -> None:
        self.view = view
        self._show()


def _light_terminal() -> bool:
    """Whether the terminal says that its background is light, as some do."""
    return os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")


def _header(scene: Scene, view: View, width: int, height: int | None) -> Text:
    return header(scene, view, width)


def _log_title(scene: Scene, view: View) -> str:
    return f"log of rank {scene.rank}"


def _filled(draw: Callable[[Scene, View, int, int], Text]) -> Draw:
    """Of a picture that needs to know its height."""
    return lambda scene, view, width, height: draw(scene, view, width, height or 1)


def _without_height(draw: Callable[[Scene, View, int], Text]) -> Draw:
    """Of a picture that is as high as it is."""
    return lambda scene, view, width, height: draw(scene, view, width)


def run_app(source: Source, first: Scene, period_s: float) -> None:
    """Show the screen until the person quits."""
    app = TopApp(source, first, period_s)
    app.run()
    if app.failure is not None:
        raise app.failure
