import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import kitae
from kitae.cli import main as cli
from kitae.errors import KitaeError, RecipeError, StoppedError
from kitae.launch.failure import RankBugError


@pytest.fixture
def verb(monkeypatch):
    """Makes `kitae act` do something."""

    def _verb(action):
        app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
        app.callback()(lambda: None)
        app.command("act")(action)
        monkeypatch.setattr(cli, "make_app", lambda: app)
        return cli.main(["act"])

    return _verb


def run(*arguments, **environment):
    source = str(Path(kitae.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source, **environment}
    return subprocess.run(
        [sys.executable, "-m", "kitae", *arguments], capture_output=True, text=True, env=env
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [(RecipeError("a.yaml:3: x: wrong"), 2), (KitaeError("no"), 1)],
)
def test_an_error_is_one_message_and_the_code_of_its_kind(verb, capsys, error, code):
    def act():
        raise error

    assert verb(act) == code
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"error: {error}\n")


def test_a_stop_that_was_asked_for_is_no_error(verb, capsys):
    def act():
        raise StoppedError("stopped by SIGTERM after step 5 of 9")

    assert verb(act) == 75
    assert capsys.readouterr().err == "stopped by SIGTERM after step 5 of 9\n"


def test_an_interrupt_is_one_line_and_130(verb, capsys):
    def act():
        raise KeyboardInterrupt

    assert verb(act) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_bug_is_one_line_and_a_file(verb, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("KITAE_DEBUG", raising=False)

    def act():
        return {}["gone"]

    assert verb(act) == 70
    message = capsys.readouterr().err
    (file,) = tmp_path.iterdir()
    assert message == f"unexpected: KeyError: 'gone'; this is a bug; its traceback is in {file}\n"
    assert "Traceback" in file.read_text()
    assert 'return {}["gone"]' in file.read_text()


def test_a_bug_in_a_rank_names_its_log(verb, capsys):
    def act():
        raise RankBugError("rank 1: KeyError: 'gone'", Path("runs/a/logs/rank-1.log"))

    assert verb(act) == 70
    assert capsys.readouterr().err == (
        "unexpected: rank 1: KeyError: 'gone'; this is a bug; its traceback is in runs/a/logs/rank-1.log\n"
    )


def test_a_bug_shows_its_traceback_when_asked(verb, capsys, monkeypatch):
    monkeypatch.setenv("KITAE_DEBUG", "1")

    def act():
        return {}["gone"]

    assert verb(act) == 70
    assert "Traceback" in capsys.readouterr().err


def test_an_exit_code_of_a_verb_is_kept(verb):
    def act():
        raise typer.Exit(9)

    assert verb(act) == 9


def test_a_verb_that_says_nothing_ends_with_0(verb):
    assert verb(lambda: None) == 0


def test_a_broken_pipe_of_something_else_is_a_bug(verb, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("KITAE_DEBUG", raising=False)

    def act():
        raise BrokenPipeError(32, "Broken pipe")

    assert verb(act) == 70
    assert "unexpected: BrokenPipeError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scheme"], "Did you mean 'schema'?"),
        (["explain"], "Missing argument 'RECIPE'"),
        (["explain", "x.yaml", "--jsn"], "--json"),
        (["--nothing"], "--nothing"),
    ],
)
def test_a_usage_error_is_one_line_and_2(arguments, message, capsys):
    assert cli.main(arguments) == 2
    output = capsys.readouterr().err
    assert output.startswith("error: ")
    assert message in output
    assert output.rstrip().endswith("--help)")
    assert output.count("\n") == 1


def test_version_and_help(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"kitae {kitae.__version__}\n"
    assert cli.main([]) == 0
    assert "explain" in capsys.readouterr().out


def test_help_imports_nothing_heavy():
    source = str(Path(kitae.__file__).parents[1])
    heavy = "{'torch', 'transformers', 'numpy', 'pydantic', 'pyarrow', 'tokenizers', 'rich'}"
    code = "import sys; from kitae.cli.main import main; main(['--help']); "
    code += f"sys.exit(str(sorted({heavy} & set(sys.modules))))"
    env = {**os.environ, "PYTHONPATH": source}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert "Usage: kitae" in result.stdout
    assert result.stderr.strip() == "[]"


def test_a_reader_that_goes_away_is_no_error():
    source = str(Path(kitae.__file__).parents[1])
    command = [sys.executable, "-m", "kitae", "schema"]
    env = {**os.environ, "PYTHONPATH": source}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=env, text=True)
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (141, "")


def test_as_a_program():
    result = run("explain", "none.yaml")
    assert result.returncode == 2
    assert (
        result.stderr
        == "error: none.yaml: there is no such file; give the path of a recipe (.yaml) or of a run\n"
    )


def test_a_full_disk_behind_the_output_is_no_bug():
    source = str(Path(kitae.__file__).parents[1])
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "kitae", "schema"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": source},
        )
    assert result.returncode == 7
    assert result.stderr == "error: cannot write the output: No space left on device; free some space\n"


def test_a_full_disk_that_nobody_expected_is_named(verb, capsys):
    def fill():
        raise OSError(errno.ENOSPC, "No space left on device", "/big/file")

    assert verb(fill) == 7
    assert "error: cannot write /big/file: No space left on device" in capsys.readouterr().err


def test_a_closed_output_is_no_error():
    source = str(Path(kitae.__file__).parents[1])
    command = f"exec '{sys.executable}' -m kitae schema >&-"
    result = subprocess.run(
        ["sh", "-c", command],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_what_the_encoding_of_the_output_lacks_is_escaped(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(
        "kitae: 1\nname: a\nmodel: {folder: 日本}\ndata: {train: [{path: t}]}\n"
        "training: {duration: 1 steps}\n",
        encoding="utf-8",
    )
    result = run("explain", str(path), PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    assert r"\u65e5\u672c" in result.stdout


def test_an_interrupt_while_the_verbs_are_read_is_no_traceback():
    """Reading them takes a moment, in which a person may change their mind."""
    code = (
        "import builtins, sys\n"
        "real = builtins.__import__\n"
        "def interrupted(name, *rest, **more):\n"
        "    if name == 'typer':\n"
        "        raise KeyboardInterrupt\n"
        "    return real(name, *rest, **more)\n"
        "builtins.__import__ = interrupted\n"
        "from kitae.__main__ import run\n"
        "sys.exit(run())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
