"""`kitae metrics`: what comes over HTTP, in a file and on the terminal, while runs come and go."""

import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager

import pytest
from exported_runs import collector, full_run, scraped, value
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from recorded_runs import attempt, write_run

from kitae.cli.main import main
from kitae.watch.exporter.collector import RunCollector, is_recent
from kitae.watch.exporter.serve import write_text
from kitae.watch.facts import runs_in


@contextmanager
def serving(*words, end=signal.SIGINT):
    """The address of a server in a process of its own, which ends well and without a word too many."""
    command = [sys.executable, "-m", "kitae", "metrics", "--serve", "--port", "0", *map(str, words)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        assert line.startswith("metrics: http://127.0.0.1:"), line + process.stderr.read()
        yield line.split()[1]
        process.send_signal(end)
        out, error = process.communicate(timeout=60)
        assert (process.returncode, out, error) == (0, "", "metrics: ended\n")
    finally:
        process.kill()
        process.wait()


def get(address, accept=""):
    request = urllib.request.Request(address, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def runs_of(text):
    return {one.labels["run"] for family in parse_text(text) for one in family.samples if "run" in one.labels}


def test_runs_come_and_go_while_it_serves(tmp_path):
    write_run(tmp_path / "first", [attempt()])
    with serving("--runs", tmp_path, "--all") as address:
        assert runs_of(get(address)[1]) == {"first"}
        write_run(tmp_path / "second", [attempt()], steps=3)
        assert runs_of(get(address)[1]) == {"first", "second"}
        shutil.rmtree(tmp_path / "first")
        assert runs_of(get(address)[1]) == {"second"}


def test_openmetrics_is_given_to_who_asks_for_it_and_sigterm_ends_it(tmp_path):
    run = full_run(tmp_path / "demo")
    with serving(run, end=signal.SIGTERM) as address:
        kind, text = get(address, "application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert any(family.type == "counter" for family in parse_openmetrics(text))
        kind, text = get(address)
        assert kind.startswith("text/plain")
        assert runs_of(text) == {"demo"}


def test_a_port_that_is_taken_is_one_message(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code = main(["metrics", "--serve", "--port", str(port), "--runs", str(tmp_path)])
    assert code == 1
    expected = f"error: port {port} of 127.0.0.1 is taken; give another one with --port\n"
    assert capsys.readouterr().err == expected


def test_an_address_that_this_machine_does_not_have(tmp_path, capsys):
    assert main(["metrics", "--serve", "--address", "192.0.2.1", "--runs", str(tmp_path)]) == 1
    assert "this machine does not have that address; see --address" in capsys.readouterr().err


def test_it_prints_once_and_writes_a_file_as_a_whole(tmp_path, capsys):
    run = full_run(tmp_path / "runs" / "demo")
    assert main(["metrics", str(run)]) == 0
    assert runs_of(capsys.readouterr().out) == {"demo"}
    target = tmp_path / "textfile" / "kitae.prom"
    for _ in range(2):
        assert main(["metrics", "--all", "--runs", str(run.parent), "--to", str(target)]) == 0
        assert runs_of(target.read_text()) == {"demo"}
    assert [one.name for one in target.parent.iterdir()] == ["kitae.prom"]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    target = tmp_path / "kitae.prom"
    target.write_text("# HELP kitae_old")

    def broken():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_text(collector(find=broken), target)
    assert target.read_text() == "# HELP kitae_old"


def test_what_holds_no_metrics_is_not_overwritten(tmp_path, monkeypatch, capsys):
    """Nor read without end: a name may be that of a device."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.yaml").write_text("kitae: 1\n")
    full_run(tmp_path / "runs" / "demo")
    wrong = {"recipe.yaml": "is no metrics file of kitae's", ".": "is a folder", "/dev/zero": "is no"}
    for name, said in wrong.items():
        assert main(["metrics", "--to", name]) == 2
        assert said in capsys.readouterr().err
    assert (tmp_path / "recipe.yaml").read_text() == "kitae: 1\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--serve", "--dashboard"], "--serve, --to and --dashboard are three ways"),
        (["--runs", "none"], "--runs: none cannot be read"),
        (["nothing"], "nothing: there is no such run"),
        (["--port", "99999"], "less than or equal to 65535"),
    ],
)
def test_what_is_asked_wrongly(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["metrics", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_package_is_told_by_its_extra(tmp_path):
    code = "import sys; sys.modules['prometheus_client'] = None; from kitae.cli.main import main; "
    done = subprocess.run(
        [sys.executable, "-c", f"{code} sys.exit(main(['metrics', '--runs', {str(tmp_path)!r}]))"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.endswith("which is not installed; pip install 'kitae[watch]'\n")


def test_the_dashboard_needs_nothing_else(capsys):
    assert main(["metrics", "--dashboard"]) == 0
    assert capsys.readouterr().out.startswith('{\n "uid": "kitae"')


BROKEN = {
    "attempts of another kind": ("run.json", '{"attempts": [1, 2]}'),
    "half of a file": ("run.json", '{"attempts": [{"outc'),
    "an attempt without times": ("run.json", '{"attempts": [{"outcome": "running"}]}'),
    "ranks without times": ("metrics.jsonl", '{"kind": "ranks", "step": 3}\n'),
    "updates without times": ("metrics.jsonl", '{"kind": "train", "step": 1}\n'),
    "a loss of text": ("metrics.jsonl", '{"kind": "evaluation", "loss": "low"}\n'),
    "a checkpoint of another name": ("checkpoints/step-x/manifest.json", "{}"),
    "no permission": ("run.json", None),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_damaged_run_costs_only_its_own_numbers(tmp_path, case):
    write_run(tmp_path / "good", [attempt()], steps=3)
    broken, (name, content) = write_run(tmp_path / "broken", [attempt()]), BROKEN[case]
    path = broken / name
    if content is None:
        path.unlink()
        path.mkdir()
        (broken / "submitted.yaml").touch()
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    told = []
    asked = collector(find=lambda: runs_in(tmp_path), tell=told.append)
    for _ in range(2):
        found = scraped(asked)
        assert value(found, "kitae_run_readable", run="good") == 1
        assert value(found, "kitae_training_step", run="good") == 3
        assert value(found, "kitae_run_readable", run="broken") == 0
        assert value(found, "kitae_run_state", run="broken", state="running") is None
    assert len(told) == 1
    assert "broken cannot be read" in told[0]


def test_a_folder_that_goes_while_it_serves_is_told_and_comes_back(tmp_path):
    folder, told = tmp_path / "runs", []
    asked = collector(find=lambda: runs_in(folder), tell=told.append)
    assert value(scraped(asked), "kitae_exporter_runs") == 0
    write_run(folder / "a", [attempt()])
    assert value(scraped(asked), "kitae_exporter_runs") == 1
    assert len(told) == 1
    assert "cannot be read" in told[0]


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path):
    runs = [write_run(tmp_path / folder / "demo", [attempt()]) for folder in ("a", "b")]
    found = scraped(collector(*runs))
    assert all(value(found, "kitae_run_readable", run=str(run)) == 1 for run in runs)


def test_a_run_behind_a_head_node_is_told_once(tmp_path):
    run, told = write_run(tmp_path / "far", []), []
    (run / "remote.json").write_text("{}")
    asked = collector(run, tell=told.append)
    assert [value(scraped(asked), "kitae_exporter_runs") for _ in range(2)] == [0, 0]
    assert told == ["far is on a head node: run kitae metrics there"]


def test_runs_that_ended_long_ago_are_left_out_unless_asked_for(tmp_path, monkeypatch):
    write_run(tmp_path / "old", [attempt("finished")], steps=3, signed=1e9)
    write_run(tmp_path / "waiting", [attempt(host="far")], signed=1e9)
    asked = RunCollector(lambda: runs_in(tmp_path), print, is_recent)
    assert value(scraped(asked), "kitae_run_readable", run="waiting") == 1
    assert value(scraped(asked), "kitae_run_readable", run="old") is None


def test_labels_with_odd_characters_are_written_as_the_format_wants(tmp_path):
    name = 'a "b" \\ c\n日本'
    found = scraped(collector(write_run(tmp_path / name, [attempt()])))
    assert value(found, "kitae_run_readable", run=name) == 1


def test_scrapes_at_the_same_time_do_not_mix(tmp_path):
    asked, found = collector(full_run(tmp_path / "demo")), []
    threads = [threading.Thread(target=lambda: found.append(scraped(asked))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({frozenset(key for key in one) for one in found}) == 1


def test_no_file_of_a_run_is_touched(tmp_path):
    run = full_run(tmp_path / "demo")
    before = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))}
    scraped(collector(run))
    assert {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))} == before
