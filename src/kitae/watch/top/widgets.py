"""What Textual is given: panels that are drawn anew for each scene, and the screen with the keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from kitae.watch.top.look import View
from kitae.watch.top.scene import Scene

Draw = Callable[[Scene, View, int, "int | None"], Text]
"""Of a scene, in so many signs and lines; lines None: as many as there are."""
Title = Callable[[Scene, View], str]


class Seen(Protocol):
    """What a panel needs to know of the app."""

    scene: Scene
    view: View


class Panel(Widget):
    """A picture with a title: it fills its place, or is as high as what it shows."""

    def __init__(self, seen: Seen, title: str | Title, draw: Draw, *, tall: bool = False, id: str) -> None:
        super().__init__(id=id, classes="tall" if tall else "filling")
        self._seen, self._title, self._draw, self._tall = seen, title, draw, tall
        self._lines = 0
        self._last: tuple[Scene | None, object, Text] = (None, None, Text())

    def render(self) -> Text:
        """The picture for the place that there is."""
        size = self.content_size
        return self._drawn(size.width, None if self._tall else size.height)

    def _drawn(self, width: int, height: int | None) -> Text:
        if width < 1 or height == 0:
            return Text()
        scene, view = self._seen.scene, self._seen.view
        how = (view, width, height)
        if self._last[0] is not scene or self._last[1] != how:  # its height is asked for before it is drawn
            text = self._draw(scene, view, width, height)
            text.no_wrap = True
            self._last = (scene, how, text)
        return self._last[2]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Lines of the picture."""
        return self._drawn(width, None).plain.count("\n") + 1

    def show(self) -> None:
        """Draw what is new."""
        self.border_title = self._title if isinstance(self._title, str) else self._title(
            self._seen.scene, self._seen.view
        )  # fmt: skip
        lines = self.get_content_height(self.size, self.size, self.content_size.width) if self._tall else 0
        self.refresh(layout=lines != self._lines)
        self._lines = lines


class HeaderLines(Panel):
    """The lines above the tabs; few where the screen is low."""

    _LOW, _FEW = 18, 2

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """All lines, or the first two."""
        lines = super().get_content_height(container, viewport, width)
        return min(lines, self._FEW) if viewport.height < self._LOW else lines


class Help(ModalScreen[None]):
    """Keys and signs, until a key is pressed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,question_mark,h,q,space,enter", "dismiss_help", "close")
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """One box in the middle."""
        with VerticalScroll(id="help"):
            yield Static(self._text, markup=False)

    def action_dismiss_help(self) -> None:
        """Go back."""
        self.dismiss()
