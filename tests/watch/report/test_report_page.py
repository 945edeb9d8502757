"""The page: its numbers, what it lets in, what it holds back, how large it gets."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from reported_runs import (
    HELDOUT,
    attempt,
    carried,
    evaluation,
    metrics,
    recipe_values,
    results,
    start,
    update,
    write_card,
    write_reported,
)

from kitae.watch.report.conceal import HIDDEN, Concealer
from kitae.watch.report.contents import report_of
from kitae.watch.report.html import MOST_BYTES, page
from kitae.watch.report.write import MOST_RUNS

DRAWN = {
    "loss": ("step", "loss"),
    "loss-tokens": ("total_real_tokens", "loss"),
    "learning-rate": ("step", "learning_rate"),
    "grad-norm": ("step", "grad_norm"),
    "step-time": ("step", "step_seconds"),
    "memory": ("step", "peak_memory_bytes"),
}
STEADY = {"throughput": ("step", "tokens_per_s"), "utilisation": ("step", "utilisation")}
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def written(*runs: Path) -> str:
    return page(report_of(list(runs), {}), Concealer(()))


class Tags(HTMLParser):
    """Which elements a page has, and whether each that is opened is closed."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def count(self, tag: str) -> int:
        return sum(one == tag for one, _ in self.seen)


def test_numbers_are_those_of_the_metrics(tmp_path: Path):
    lines = metrics(steps=30)
    charts = carried(written(write_reported(tmp_path / "wee", metrics__jsonl=lines)))["charts"]
    updates = [one for one in lines if one["kind"] == "train"]
    for key, (x, y) in DRAWN.items():
        trace = charts[key]["traces"][0]
        assert (trace["x"], trace["y"]) == ([one[x] for one in updates], [one[y] for one in updates]), key
    for key, (x, y) in STEADY.items():
        trace = charts[key]["traces"][0]
        assert (trace["x"], trace["y"]) == (
            [one[x] for one in updates[1:]],
            [one[y] for one in updates[1:]],
        ), key
    real = charts["throughput"]["traces"][1]
    assert real["y"] == [one["real_tokens_per_s"] for one in updates[1:]]
    heldout = charts["loss"]["traces"][1]
    assert (heldout["x"], heldout["y"]) == ([0, 15, 30], [3.25, 2.75, 2.5])
    assert charts["loss-tokens"]["traces"][1]["x"] == [0, 3000, 6000]


def test_long_curves_are_thinned_to_points_that_are_there(tmp_path: Path):
    lines = [start(steps=9000), *(update(step) for step in range(1, 9001))]
    lines[5001]["loss"] = 77.5  # step 5001
    charts = carried(written(write_reported(tmp_path / "wee", metrics__jsonl=lines)))["charts"]
    trace = charts["loss"]["traces"][0]
    pairs = {(one["step"], one["loss"]) for one in lines[1:]}
    assert set(zip(trace["x"], trace["y"], strict=True)) <= pairs
    assert (trace["x"][0], trace["x"][-1]) == (1, 9000)
    assert (5001, 77.5) in zip(trace["x"], trace["y"], strict=True)
    assert 1900 <= len(trace["x"]) <= 2000


def test_facts_for_programs(tmp_path: Path):
    found = carried(written(write_reported(tmp_path / "wee")))
    run = found["runs"][0]
    assert found["kitae_report"] == 1
    assert (run["run"], run["state"], run["heldout"], run["gaps"]) == ("wee", "done", HELDOUT, [])
    assert run["results"] == results()
    assert run["cost_usd"] == pytest.approx(276 / 3600 * 21.5)
    assert run["seconds"] == 276


def test_nothing_that_others_wrote_becomes_markup(tmp_path: Path):
    """Names, recipe, samples, reasons, log, data card, phases, attempts of Slurm."""
    card = write_card(tmp_path / "data", warnings=[EVIL], splits={EVIL: {EVIL: 3}})
    state = {
        "attempts": [attempt("failed", why=EVIL, last=EVIL, nodes=[EVIL], host=EVIL, job=EVIL)],
        "stages": {"prepare": {"folder": str(card)}},
    }
    lines = [start(), *(update(step, phase=EVIL) for step in (1, 2)), evaluation(2, 2.0, phase=EVIL)]
    run = write_reported(
        tmp_path / "<script>alert(0)<",
        run__json=state,
        recipe__yaml=recipe_values(model={"named": EVIL}, sample={"prompt": EVIL}),
        samples__json={"prompt": EVIL, "before": EVIL, "after": EVIL},
        metrics__jsonl=lines,
        results__json=None,
    )
    (run / "logs").mkdir()
    (run / "logs" / "rank-0.log").write_text(f"{EVIL}\nValueError: {EVIL}\n")
    plain = Tags(written(write_reported(tmp_path / "plain")))
    text = written(run)
    tags = Tags(text)
    assert tags.wrong == []
    assert tags.count("script") == plain.count("script") == 3
    assert tags.count("img") == 0
    assert not any(name.startswith("on") for _, attributes in tags.seen for name in attributes)
    assert "<script>alert" not in text
    assert EVIL in carried(text)["runs"][0]["why"]  # and as a value it is what it was


def test_every_tag_is_closed_and_every_table_has_heads(tmp_path: Path):
    text = written(write_reported(tmp_path / "wee"))
    tags = Tags(text)
    assert (tags.wrong, tags.open) == ([], [])
    assert tags.count("h1") == 1
    tables = tags.count("table")
    assert tables == tags.count("caption") == tags.count("thead") > 8
    plots = [
        attributes for tag, attributes in tags.seen if tag == "div" and attributes.get("class") == "plot"
    ]
    assert len(plots) == 8
    assert all(one["role"] == "img" and len(one["aria-label"]) > 30 for one in plots)
    ids = [attributes["id"] for _, attributes in tags.seen if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes["href"][1:] for tag, attributes in tags.seen if tag == "a"}
    assert links <= set(ids)


def test_the_policy_lets_in_the_two_scripts_and_no_network(tmp_path: Path):
    text = written(write_reported(tmp_path / "wee"))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "connect-src 'none'" in policy
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    outside = text
    for script in scripts:
        outside = outside.replace(script, "")
    assert not re.search(r'(?:src|href)="(?!#|data:)', outside)


def test_secrets_are_neither_in_the_page_nor_in_its_numbers(tmp_path: Path):
    token = "hf_" + "a1B2" * 8
    run = write_reported(
        tmp_path / "wee",
        recipe__yaml=recipe_values(target={"setup": [f"export HF_TOKEN={token}", "export MINE=own-secret"]}),
        samples__json={"prompt": "a", "before": token, "after": "b"},
        run__json={"attempts": [attempt("failed", why=f"401 for {token}: own-secret")]},
    )
    text = page(report_of([run], {}), Concealer(("own-secret",)))
    assert token not in text
    assert "own-secret" not in text
    assert HIDDEN in text


def test_what_is_not_finite_or_no_text_is_let_in_as_nothing(tmp_path: Path):
    broken = results(rows_per_s=float("nan"), model={"parameters": 1, "odd": "\ud800\x00"})
    run = write_reported(tmp_path / "wee", results__json=json.dumps(broken))
    text = written(run)
    text.encode()
    assert carried(text)["runs"][0]["results"]["rows_per_s"] is None
    assert "\x00" not in text


def test_a_page_stays_below_its_bound(tmp_path: Path):
    """The most runs that one takes, each with more than is shown of everything."""
    long = "漢字 <text> " * 8000
    lines = [start(steps=2000)]
    for step in range(1, 2001):
        lines += [update(step), evaluation(step, 2.5)]
    files = {
        "metrics__jsonl": "".join(json.dumps(line) + "\n" for line in lines),
        "samples__json": json.dumps({"prompt": long, "before": long, "after": long}),
        "recipe__yaml": yaml.safe_dump(recipe_values(proof={"prompts": [long] * 2}), allow_unicode=True),
        "run__json": json.dumps({"attempts": [attempt("failed", why=long[:2000])] * 400}),
        "results__json": json.dumps(results(odd=long)),
    }
    runs = [write_reported(tmp_path / f"run-{number}", **files) for number in range(MOST_RUNS)]
    size = len(written(*runs).encode())
    assert size <= MOST_BYTES, f"{size:,}"
    alone = len(written(runs[0]).encode())
    assert alone <= MOST_BYTES, f"{alone:,}"
