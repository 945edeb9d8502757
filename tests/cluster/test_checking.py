"""`init`, `check` and `engine` as a person types them; ParallelCluster is a stand-in here."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cluster_case import GOOD, write_cluster

from kitae.cli.main import main
from kitae.cluster.pcluster import Engine, find, make
from kitae.errors import ClusterError, RecipeError


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KITAE_PCLUSTER", raising=False)


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def environment(folder: Path, problems: list[str]) -> Path:
    """A stand-in whose `python` answers with these problems, and whose `pcluster` tells its version."""
    program(
        folder / "bin/python", f"import json, sys\njson.load(sys.stdin)\nprint({json.dumps(problems)!r})\n"
    )
    program(folder / "bin/pcluster", 'print(\'{"version": "3.16.1"}\')\n')
    return folder


def test_init_then_check_says_what_it_costs_and_writes_the_configuration(tmp_path, capsys):
    assert main(["cluster", "init", "c.yaml", "--name", "mine"]) == 0
    assert main(["cluster", "check", "c.yaml"]) == 0
    said = capsys.readouterr()
    assert "at most $1,043.46 of $1,100.00" in said.out
    assert "a month of what stays on while idle: $697.25" in said.out
    assert "left out" in said.err
    config = yaml.safe_load((tmp_path / "c.pcluster.yaml").read_text("utf-8"))
    assert config["Scheduling"]["SlurmQueues"][0]["ComputeResources"][0]["InstanceType"] == "trn1.32xlarge"


def test_init_overwrites_nothing(tmp_path, capsys):
    Path("c.yaml").write_text("mine")
    assert main(["cluster", "init", "c.yaml"]) == 2
    assert Path("c.yaml").read_text() == "mine"
    assert "exists already" in capsys.readouterr().err


def test_what_parallelcluster_refuses_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KITAE_PCLUSTER", str(environment(tmp_path / "env", ["HeadNode.X: Unknown field."])))
    assert main(["cluster", "check", str(write_cluster(tmp_path))]) == 2
    assert "HeadNode.X: Unknown field. [parallelcluster-schema]" in capsys.readouterr().err
    assert not (tmp_path / "cluster.pcluster.yaml").exists()


def test_what_it_accepts_is_right(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KITAE_PCLUSTER", str(environment(tmp_path / "env", [])))
    assert main(["cluster", "check", str(write_cluster(tmp_path))]) == 0
    said = capsys.readouterr()
    assert "left out" not in said.err
    assert said.out.endswith("right\n")


def test_a_wrong_file_leaves_no_configuration(tmp_path, capsys):
    path = write_cluster(tmp_path, GOOD.replace("trn1.32xlarge", "trn132xlarge"))
    assert main(["cluster", "check", str(path)]) == 2
    assert "[instance-type]" in capsys.readouterr().err
    assert not (tmp_path / "cluster.pcluster.yaml").exists()


def test_check_imports_neither_torch_nor_boto3(tmp_path):
    code = (
        "import sys; from kitae.cli.main import main; main(['cluster', 'check', sys.argv[1]]); "
        "print(sorted({'torch', 'boto3', 'transformers'} & set(sys.modules)))"
    )
    words = [sys.executable, "-c", code, str(write_cluster(tmp_path))]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_engine_tells_which_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KITAE_PCLUSTER", str(environment(tmp_path / "env", [])))
    assert main(["cluster", "engine"]) == 0
    assert "ParallelCluster 3.16.1" in capsys.readouterr().out


def test_another_version_is_no_engine(tmp_path):
    folder = environment(tmp_path / "env", [])
    program(folder / "bin/pcluster", 'print(\'{"version": "2.11.0"}\')\n')
    with pytest.raises(ClusterError, match=r"has ParallelCluster 2\.11\.0, and kitae needs 3\.16\.1"):
        Engine(folder).version()


def test_an_environment_without_the_program_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("KITAE_PCLUSTER", str(tmp_path))
    with pytest.raises(RecipeError, match="KITAE_PCLUSTER"):
        find()


def test_a_schema_that_does_not_run_is_told_with_its_last_line(tmp_path):
    folder = environment(tmp_path / "env", [])
    program(folder / "bin/python", "raise SystemExit('no module named pcluster')\n")
    with pytest.raises(ClusterError, match="no module named pcluster"):
        Engine(folder).schema_problems({"Region": "us-west-2"}, "x")


def test_an_environment_is_made_once_and_half_of_one_is_made_anew(tmp_path, monkeypatch):
    """The interpreter that makes it is a stand-in, which notes what it was asked for."""
    log = tmp_path / "asked"
    maker = (
        "import pathlib, shutil, sys\n"
        f"log = pathlib.Path({str(log)!r})\n"
        "log.open('a').write(' '.join(sys.argv[1:3]) + '\\n')\n"
        "if sys.argv[2] == 'venv':\n"
        "    there = pathlib.Path(sys.argv[3]) / 'bin'\n"
        "    assert not there.exists()\n"
        "    there.mkdir(parents=True)\n"
        "    shutil.copy(__file__, there / 'python')\n"
    )
    program(tmp_path / "python", maker)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    said: list[str] = []
    first = make(said.append)
    assert log.read_text() == "-m venv\n-m pip\n"
    assert find() == first == make(said.append)
    (first.folder / "complete").unlink()
    assert find() is None
    assert make(said.append) == first
    assert len(said) == 2


def test_packages_that_cannot_be_had_are_told(tmp_path, monkeypatch):
    program(tmp_path / "python", "import sys\nsys.exit('no such package')\n")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ClusterError, match=r"cannot be installed: no such package; .*KITAE_PCLUSTER"):
        make(lambda text: None)
    assert find() is None
