"""The report as Markdown: the same numbers, and nothing of others that is markup."""

from __future__ import annotations

import re
from pathlib import Path

from reported_runs import recipe_values, write_reported

from kitae.watch.report.blocks import Listing, Report, Section, Table, Words
from kitae.watch.report.conceal import Concealer
from kitae.watch.report.contents import report_of
from kitae.watch.report.markdown import MARK, markdown


def written(*blocks: object) -> str:
    section = Section("a", "A", tuple(blocks))  # type: ignore[arg-type]
    return markdown(Report("t", "v", "plain", (), (section,), "now"), Concealer(("hush-hush",)))


def test_the_numbers_of_a_run(tmp_path: Path):
    text = markdown(report_of([write_reported(tmp_path / "wee")], {}), Concealer(()))
    assert text.startswith("# wee\n\n**smollm2-135m")
    assert "| loss | 3.2500 | 2.5000 |" in text
    assert "| held out | 3.2500 | 2.5000 | 3.2500 | 2.5000 |" in text
    assert re.search(r"^`█[▁-█]+` training  $", text, re.MULTILINE)
    assert "| optimizer.learning\\_rate | 0.001 | 0.0003 |" in text
    assert text.rstrip().endswith(MARK)


def test_tables_have_as_many_cells_as_heads(tmp_path: Path):
    text = markdown(report_of([write_reported(tmp_path / "wee")], {}), Concealer(()))
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block


def test_what_others_wrote_stays_text():
    text = written(
        Words("<script>alert(1)</script> [a](http://b) *c* `d` hush-hush"),
        Table("t", ("a|b",), (("<img src=x>\n| c",),)),
    )
    assert "<script>" not in text
    assert "<img" not in text
    assert "hush-hush" not in text
    assert "\\[a\\]\\(http://b\\) \\*c\\* \\`d\\`" in text
    assert "| &lt;img src=x&gt; \\| c |" in text


def test_a_listing_ends_where_it_ends():
    text = written(Listing("l", "```\n# not a head\n````"))
    assert "`````text\n```\n# not a head\n````\n`````" in text


def test_several_runs(tmp_path: Path):
    paths = [
        write_reported(tmp_path / name, recipe__yaml=recipe_values(seed=n)) for n, name in enumerate("ab", 1)
    ]
    text = markdown(report_of(paths, {}), Concealer(()))
    assert "| seed | 1 | 2 |" in text
    assert "## a\n" in text
