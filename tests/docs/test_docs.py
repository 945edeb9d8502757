"""What README and manual say about files, links, verbs, options, recipe keys and exit codes is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
import yaml

from kitae import errors
from kitae.cli.main import make_app
from kitae.recipe.fields import at
from kitae.recipe.load import load_recipe
from kitae.recipe.schema import Recipe
from kitae.recipe.training import ScheduleConfig
from kitae.train.schedule import Schedule

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
VERBS = typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]
FILE_ENDINGS = (".json", ".safetensors")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def fenced(text: str, language: str = r"\w*") -> list[str]:
    """Contents of the fenced blocks of a language, also of indented ones."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(f"^{indent}", "", body, flags=re.MULTILINE) for indent, body in found]


def prose(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def inline_code(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(text))


def table_rows(text: str, header: str) -> list[list[str]]:
    """Cells of the table whose first header cell is `header`."""
    body = re.search(rf"^\| {re.escape(header)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert body is not None, f"no table begins with {header}"
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in body[1].splitlines()]


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", prose(page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@each_page
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text("utf-8"))):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(there), f"{name} has no heading {anchor}"


@each_page
def test_verbs_that_are_named_exist(page):
    text = page.read_text("utf-8")
    commands = [*inline_code(text), *(line for block in fenced(text) for line in block.splitlines())]
    named = [re.match(r"(?:\$ )?kitae ([a-z]\S*)", command) for command in commands]
    for match in filter(None, named):
        assert match[1] in VERBS, match[0]


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_a_page_with_its_options(verb):
    text = (ROOT / "docs/verbs" / f"{verb}.md").read_text("utf-8")
    usage = re.search(rf"^    kitae {verb}\b.*$", text, re.MULTILINE)
    assert usage is not None
    known = {
        name
        for parameter in VERBS[verb].params
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--") and name not in ("--help", "--card")
    }
    assert set(re.findall(r"--[a-z-]+", usage[0])) == known
    assert f"docs/verbs/{verb}.md" in (ROOT / "README.md").read_text("utf-8")


@each_page
def test_recipes_load(page, tmp_path):
    for number, block in enumerate(fenced(page.read_text("utf-8"), "yaml")):
        if block.startswith("kitae: 1"):
            path = tmp_path / f"{number}.yaml"
            path.write_text(block, "utf-8")
            load_recipe(path)


@each_page
def test_recipe_keys_that_are_named_exist(page):
    sections = "|".join(Recipe.model_fields)
    for code in inline_code(page.read_text("utf-8")):
        match = re.fullmatch(rf"((?:{sections})(?:\.[a-z_]+)+)(?:: .*)?", code)
        if match and not code.endswith(FILE_ENDINGS):
            assert at(tuple(match[1].split("."))) is not None, code


def test_the_readme_shows_the_demo_and_six_files_that_exist():
    text = (ROOT / "README.md").read_text("utf-8")
    shown = next(block for block in fenced(text, "yaml") if block.startswith("kitae: 1"))
    assert yaml.safe_load(shown) == yaml.safe_load((ROOT / "recipes/smollm2-ja-demo.yaml").read_text("utf-8"))
    files = [re.search(r"\((.+)\)", row[0])[1] for row in table_rows(text, "file")]
    assert len(files) == 6
    assert all((ROOT / name).is_file() for name in files)
    assert len(text.splitlines()) <= 120


def test_exit_codes_are_those_of_the_errors():
    text = (ROOT / "docs/exit-codes.md").read_text("utf-8")
    documented = {
        name.strip("`"): int(code) for code, name, _ in table_rows(text, "code") if name.startswith("`")
    }
    classes = [one for one in vars(errors).values() if isinstance(one, type)]
    assert documented == {one.__name__: one.exit_code for one in classes}


def test_verb_pages_use_documented_exit_codes():
    known = {row[0] for row in table_rows((ROOT / "docs/exit-codes.md").read_text("utf-8"), "code")}
    pages = [page for page in PAGES if page.parent.name == "verbs" and page.stem != "schema"]
    for page in pages:
        codes = {row[-1] for row in table_rows(page.read_text("utf-8"), "message (shortened)")}
        assert codes <= known, page


def test_the_schedules_have_the_numbers_that_are_shown():
    rows = table_rows((ROOT / "docs/training.md").read_text("utf-8"), "update")
    for name, *shown in rows:
        kind, _, ratio = name.replace("`", "").partition(", min_ratio ")
        schedule = Schedule(ScheduleConfig(kind=kind, min_ratio=float(ratio or 0)), 1.0, 10, 2)
        assert [float(share) for share in shown] == [round(schedule.rate(u), 4) for u in range(10)]
