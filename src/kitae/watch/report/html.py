"""A report as one HTML file that needs nothing else: styles, plots and numbers are in it.

Nothing that a recipe, a sample or a log holds becomes markup (`html_blocks`). The policy in the page's head
forbids all network, and every script but the two that are written here.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from math import isfinite
from typing import Any

from kitae.errors import RecipeError
from kitae.watch.report.blocks import Report
from kitae.watch.report.conceal import Concealer
from kitae.watch.report.html_blocks import Markup, printable

MARK = '<meta name="generator" content="kitae report">'
"""In every page, and in no other file."""
WITHOUT_PLOTLY = "pip install 'kitae[watch]'"
MOST_BYTES = 8_000_000
"""Of a page, however long its runs are: 4.8 MB of plotly.js, and at most 3.2 MB of a report."""


def page(report: Report, conceal: Concealer | None = None) -> str:
    """The whole page. Raises `RecipeError` where plotly is not installed."""
    conceal = conceal or Concealer()
    markup, scripts = Markup(conceal), (plotly_js(), _asset("page.js"))
    title, written = markup.text(report.title), markup.text(report.written)
    body = "".join(map(markup.section, report.sections))
    carried = {"kitae_report": 1, **dict(report.facts), "charts": markup.charts}
    return "".join(
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">\n',
            f'{MARK}\n<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n',
            f"<title>{title} · kitae report</title>\n<style>{_asset('page.css')}</style>\n</head>\n",
            f"<body>\n{_head(report, markup)}<main>{body}</main>\n<footer><p>{written}</p></footer>\n",
            f'<script type="application/json" id="kitae-report">{_json(carried, conceal)}</script>\n',
            *(f"<script>{script}</script>\n" for script in scripts),
            "</body>\n</html>\n",
        )
    )


def plotly_js() -> str:
    """The library that draws, from the package plotly. Raises `RecipeError` where it is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise RecipeError(
            f"a page with plots needs the package plotly; install it with {WITHOUT_PLOTLY}, or take --md"
        ) from error
    return str(get_plotlyjs())


def _head(report: Report, markup: Markup) -> str:
    text = markup.text
    links = "".join(f'<li><a href="#{text(one.key)}">{text(one.title)}</a></li>' for one in report.sections)
    tiles = "".join(f"<div><dt>{text(one.name)}</dt><dd>{text(one.value)}</dd></div>" for one in report.tiles)
    return (
        f'<header><h1>{text(report.title)}</h1><p class="verdict {report.tone}">{text(report.verdict)}</p>'
        + (f"<dl>{tiles}</dl>" if tiles else "")
        + f'<nav aria-label="Contents"><ul>{links}</ul>'
        + '<button type="button" id="theme">Light or dark</button></nav>'
        + "<noscript><p>The plots need JavaScript; tables have their numbers.</p></noscript></header>\n"
    )


def _json(value: Any, conceal: Concealer) -> str:
    """As it stands in a script element: no character in it can end that, or begin another."""
    clean = conceal.within(_finite(value))
    text = json.dumps(clean, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return printable(text)


def _finite(value: Any) -> Any:
    """A nested value with null for what JSON has no word for."""
    if isinstance(value, dict):
        return {str(name): _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _policy(scripts: Sequence[str]) -> str:
    """Nothing may be loaded or sent; of scripts only these run."""
    digests = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts)
    allowed = " ".join(f"'sha256-{one}'" for one in digests)
    return (
        f"default-src 'none'; script-src {allowed}; "
        "style-src 'unsafe-inline'; img-src data: blob:; connect-src 'none'; base-uri 'none'; "
        "form-action 'none'"
    )


def _asset(name: str) -> str:
    return (resources.files("kitae.watch.report") / name).read_text(encoding="utf-8")
