"""One picture as plain text, for a pipe or a terminal without Textual."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.text import Text

from kitae.watch.top import curves, events
from kitae.watch.top.cores import cores, processes, title_of_cores
from kitae.watch.top.header import header
from kitae.watch.top.look import ASCII, UNICODE, Glyphs, View
from kitae.watch.top.ranks import ranks
from kitae.watch.top.scene import Scene

_LEAST_WIDTH = 40
_CHART, _SMALL, _LOG = 12, 6, 10
"""Lines of the loss, of the other curves, and of the log."""

Drawn = Callable[[Scene, View, int], Text]
_PANELS: tuple[tuple[str, Drawn], ...] = (
    ("ranks", lambda scene, view, width: ranks(scene, view, width, 24)),
    ("checkpoints", lambda scene, view, width: events.checkpoints(scene, view, width, 5)),
    ("attempts", lambda scene, view, width: events.attempts(scene, view, width, 5)),
)


def frame(scene: Scene, width: int, encoding: str = "utf-8", view: View | None = None) -> str:
    """Lines of at most `width` signs, without colours; in ASCII where the encoding has no blocks."""
    view = view or View(glyphs=_glyphs(encoding))
    width = max(_LEAST_WIDTH, width)
    parts = [header(scene, view, width).plain]
    parts += [f"{_rule(title, width, view)}\n{text.plain}" for title, text in _panels(scene, view, width)]
    lines = "\n".join(parts).splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _glyphs(encoding: str) -> Glyphs:
    try:
        f"{UNICODE}".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def _panels(scene: Scene, view: View, width: int) -> Iterator[tuple[str, Text]]:
    if scene.alarms or any(events.errors(scene, view)):
        yield "alarms and errors", events.alarms(scene, view, width)
    if scene.status is None:
        yield title_of_cores(scene, view), cores(scene, view, width)
        yield "processes", processes(scene, view, width)
        return
    if scene.training.latest:
        yield curves.title_of("loss", scene, view), curves.curve("loss", scene, view, width, _CHART)
        for name in ("learning_rate", "grad_norm", "tokens_per_s"):
            yield curves.title_of(name, scene, view), curves.curve(name, scene, view, width, _SMALL)
    yield title_of_cores(scene, view), cores(scene, view, width)
    for title, draw in _PANELS:
        yield title, draw(scene, view, width)
    yield f"log of rank {scene.rank}", events.log_tail(scene, view, width, _LOG)


def _rule(title: str, width: int, view: View) -> str:
    sign = view.glyphs.empty
    return f"{sign * 2} {title} ".ljust(width, sign)
