"""A headless Chromium that opens reports, and notes what they ask of the network, or complain of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

CHROMIUM = "chromium"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)


@contextmanager
def started() -> Iterator[Browser]:
    """The browser; skips where it is left out (KITAE_WITHOUT_BROWSER=why)."""
    without = os.environ.get("KITAE_WITHOUT_BROWSER")
    if without:
        pytest.skip(f"the browser is left out: {without}")
    program = shutil.which(CHROMIUM)
    if program is None:
        pytest.fail("there is no chromium here; KITAE_WITHOUT_BROWSER=why leaves the tests in it out")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page, and what came of it."""

    page: Page
    context: BrowserContext
    asked: list[str] = field(default_factory=list)
    """Addresses that it wanted, but for itself."""
    said: list[str] = field(default_factory=list)
    """Of the console, and errors."""


@contextmanager
def opened(browser: Browser, path: Path, *, width: int = 1200, scheme: str = "light") -> Iterator[Opened]:
    """Open a file once its plots are drawn."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    page = context.new_page()
    found = Opened(page, context)
    address = path.absolute().as_uri()

    def route(one) -> None:
        if one.request.url == address:
            one.continue_()
        else:
            found.asked.append(one.request.url)
            one.abort()

    context.route("**/*", route)
    page.on("console", lambda message: _hear(found, message))
    page.on("pageerror", lambda error: found.said.append(str(error)))
    page.goto(address)
    page.wait_for_function("document.documentElement.dataset.drawn !== undefined")
    yield found
    context.close()


def _hear(found: Opened, message: ConsoleMessage) -> None:
    """Errors and warnings; Plotly also traces how often it laid a plot out."""
    if message.type in ("error", "warning", "assert"):
        found.said.append(f"{message.type}: {message.text}")
