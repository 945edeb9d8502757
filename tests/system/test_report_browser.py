"""Reports in a real browser: headless Chromium, with every request counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Opened, opened, started
from job_case import kitae, write_case
from reported_runs import attempt, evaluation, recipe_values, start, update, write_reported

from kitae.cli.main import main

pytestmark = pytest.mark.system

PLOTS = {"loss", "loss-tokens", "learning-rate", "grad-norm", "throughput", "step-time"}
PLOTS |= {"utilisation", "memory"}
EVIL = "</script><script>window.caught = 1</script><img src=x onerror='window.caught = 2'>"


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that kitae trained, whose report `kitae run` wrote."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("KITAE_CACHE", str(folder / "cache"))
        patch.setenv("KITAE_STATE", str(folder / "state"))
        recipe = write_case(folder / "case", evaluation={"every": "2 steps"}, checkpoint={"every": "3 steps"})
        assert kitae("run", recipe) == 0
    return folder / "runs/tiny"


def points(shown: Opened, key: str, curve: int = 0) -> list[list[float]]:
    """What plotly has drawn."""
    found: list[list[float]] = shown.page.evaluate(
        "([key, curve]) => { const one = document.getElementById(`plot-${key}`).data[curve];"
        " return one.x.map((x, at) => [x, one.y[at]]); }",
        [key, curve],
    )
    return found


def quiet(shown: Opened) -> None:
    """Nothing was asked of the network, and nothing complained of."""
    assert (shown.asked, shown.said) == ([], [])


def test_a_run_of_kitae(browser, trained: Path):
    """Its plots are drawn, with the numbers of metrics.jsonl, and show them when one points at them."""
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    updates = [one for one in lines if one["kind"] == "train"]
    with opened(browser, trained / "report.html") as shown:
        page = shown.page
        drawn = page.evaluate(
            "Object.fromEntries([...document.querySelectorAll('.plot')]"
            ".map((one) => [one.dataset.chart, one.querySelectorAll('path.js-line').length]))"
        )
        assert set(drawn) >= PLOTS
        assert all(drawn[key] for key in PLOTS)
        assert points(shown, "loss") == [[one["step"], one["loss"]] for one in updates]
        evaluations = [[one["step"], one["loss"]] for one in lines if one["kind"] == "evaluation"]
        assert points(shown, "loss", 1) == evaluations
        assert points(shown, "memory") == [[one["step"], one["peak_memory_bytes"]] for one in updates]
        box = page.locator("#plot-loss .nsewdrag").first
        box.scroll_into_view_if_needed()
        box.hover()
        told = page.locator("#plot-loss .hoverlayer").text_content()
        assert "training" in told
        assert any(f"{one['loss']:.2f}"[:3] in told for one in updates), told
        quiet(shown)


def test_light_dark_and_narrow(browser, trained: Path):
    backs = {}
    for scheme in ("light", "dark"):
        with opened(browser, trained / "report.html", width=360, scheme=scheme) as shown:
            back = "getComputedStyle(document.body).backgroundColor"
            backs[scheme] = shown.page.evaluate(back)
            assert shown.page.evaluate("document.documentElement.scrollWidth") <= 360
            wide = shown.page.evaluate("document.querySelector('#plot-loss svg').clientWidth")
            assert 250 < wide <= 360
            shown.page.click("#theme")
            assert shown.page.evaluate(back) != backs[scheme]
            quiet(shown)
    assert backs["light"] != backs["dark"]


def test_printing(browser, trained: Path, tmp_path: Path):
    """On paper all is open, light, and each plot as wide as the page; then all is as before."""
    with opened(browser, trained / "report.html", scheme="dark") as shown:
        page = shown.page
        page.evaluate(
            "addEventListener('beforeprint', () => { window.printed = ["
            "document.documentElement.dataset.theme, document.querySelectorAll('details:not([open])').length,"
            "...[...document.querySelectorAll('.plot .main-svg:first-child')]"
            ".map((one) => one.getAttribute('width'))]; })"
        )
        page.pdf(path=tmp_path / "report.pdf", format="A4")
        theme, folded, *widths = page.evaluate("window.printed")
        assert (theme, folded, set(widths)) == ("light", 0, {"680"})
        assert len(widths) >= len(PLOTS)
        assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.evaluate("document.querySelectorAll('details[open]').length") == 0
        quiet(shown)


def test_several_runs(browser, trained: Path, tmp_path: Path):
    other = write_reported(tmp_path / "other")
    assert main(["report", str(trained), str(other), "--to", str(tmp_path / "both.html")]) == 0
    with opened(browser, tmp_path / "both.html") as shown:
        names = shown.page.evaluate("document.getElementById('plot-loss').data.map((one) => one.name)")
        assert names == ["tiny", "tiny, held out", "other", "other, held out"]
        assert shown.page.locator("#results tbody tr").count() == 2
        quiet(shown)


def test_what_others_wrote_does_not_run(browser, tmp_path: Path):
    lines = [start(), *(update(step, phase=EVIL) for step in range(1, 5)), evaluation(4, 2.0, phase=EVIL)]
    run = write_reported(
        tmp_path / "<img src=x onerror=caught=3>",
        metrics__jsonl=lines,
        recipe__yaml=recipe_values(model={"named": EVIL}),
        samples__json={"prompt": EVIL, "before": EVIL, "after": EVIL},
        run__json={"attempts": [attempt("failed", why=EVIL)]},
    )
    assert main(["report", str(run), "--to", str(tmp_path / "evil.html")]) == 0
    with opened(browser, tmp_path / "evil.html") as shown:
        assert shown.page.evaluate("window.caught") is None
        assert shown.page.locator("img").count() == 0
        named = shown.page.locator("#plot-loss .legend").text_content()
        assert "<script>" in named  # as text
        quiet(shown)
