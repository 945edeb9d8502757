"""`kitae scale` as it is typed, also wrongly."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from job_case import kitae, write_recipe

from kitae.cli import scale_verbs
from kitae.scale import measure as measuring

DOCS = Path(__file__).parents[2] / "docs"
BERT = Path(__file__).parents[1] / "fixtures/scale/bert-large-trn1.csv"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give one of --workers (processes of this machine) and --nodes (jobs of Slurm); found neither"),
        (("--workers", "1,2", "--nodes", "1,2"), "found both"),
        (("--workers", "1,0"), "--workers 1,0: write whole numbers above 0, such as 1,2,4"),
        (("--workers", "one"), "write whole numbers above 0"),
        (("--workers", ""), "write whole numbers above 0"),
        (("--workers", "2,2"), "scaling is a comparison; give two numbers or more, such as 2,4"),
        (("--workers", ",".join(map(str, range(1, 40)))), "39 widths are more than 32"),
        (("--workers", "1,2", "--detach"), "--detach belongs to --nodes"),
        (("--workers", "1,2", "--instance", "trn1.32xlarge"), "--instance belongs to --nodes"),
        (("--nodes", "1,2", "--instance", "trn1.32xlrage"), "did you mean"),
        (("--workers", "1,3"), "accumulation would be 0.667, and is never rounded; up to 3, 1, 2 fit"),
        (("--workers", "1,2", "--phase", "x"), "it has no phases"),
        (("--from", str(BERT)), "--from judges what is recorded, and measures nothing: leave RECIPE out"),
    ],
)
def test_what_is_typed_wrongly_is_told(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert kitae("scale", write_recipe(tmp_path), *words) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").touch()
    assert kitae("scale", write_recipe(tmp_path), "--workers", "1,2") == 7
    assert "set runs to a folder that can be written to" in capsys.readouterr().err


def test_a_recipe_is_needed(capsys):
    assert kitae("scale", "--workers", "1,2") == 2
    assert "kitae scale --from FILE" in capsys.readouterr().err
    assert kitae("scale", "--workers", "1,2", "--repeats", "0") == 2


def test_recorded_rows_are_judged_without_torch():
    code = "import sys; from kitae.cli.main import main; main(sys.argv[1:]); "
    code += "print('torch' in sys.modules, file=sys.stderr)"
    words = [sys.executable, "-c", code, "scale", "--from", str(BERT), "--weak", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["widths"][1]["width"] == 16
    assert done.stderr.strip() == "False"


def blocks(page: str) -> list[str]:
    text = (DOCS / page).read_text("utf-8")
    return [block for block in re.findall(r"^```text\n(.*?)^```$", text, re.M | re.S) if "--from" in block]


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_the_manual_shows_what_is_printed(tmp_path, capsys):
    (rows,) = blocks("verbs/scale.md")
    shown, printed = rows.split("$ kitae scale --from bert-large.csv\n")
    (tmp_path / "bert-large.csv").write_text(shown.partition("\n")[2])
    assert kitae("scale", "--from", tmp_path / "bert-large.csv") == 0
    assert lines_of(capsys.readouterr().out) == lines_of(printed)
    (weak,) = blocks("how-to/measure-scaling.md")
    assert kitae("scale", "--from", BERT, "--weak") == 0
    assert lines_of(capsys.readouterr().out) == lines_of(weak)[1:]


def test_the_threshold_is_a_percentage(capsys):
    assert kitae("scale", "--from", BERT, "--weak", "--threshold", "90") == 0
    assert "already 16 nodes stay below 90%" in capsys.readouterr().out


def test_progress_is_not_among_the_json(tmp_path, monkeypatch, capsys):
    def measure(wanted, report, **options):
        report("round 1")
        return {"kitae_scale": 1, "threshold": wanted.threshold, "options": options}

    monkeypatch.setattr(measuring, "measure", measure)
    monkeypatch.chdir(tmp_path)
    assert kitae("scale", write_recipe(tmp_path), "--workers", "2, 1", "--json", "--start-over") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["options"] == {"start_over": True, "detach": False}
    assert err == "round 1\n"
    assert scale_verbs._widths("2, 1", None) == ("workers", [1, 2])
