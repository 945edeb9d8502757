"""The trackers themselves, on this machine alone: what a person then sees in them."""

import builtins
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tracking_case import append, evaluation, start, tracked, update

from kitae.errors import RecipeError, StoppedError
from kitae.recipe.schema import Recipe
from kitae.recipe.tracking import TrackingConfig
from kitae.train.tracking.follower import Follower
from kitae.train.tracking.memory import Memory
from kitae.train.tracking.secrets import without_secrets
from kitae.train.tracking.table import TRACKERS, check_trackers
from kitae.train.tracking.to_mlflow import STATUS, flat
from kitae.train.tracking.to_wandb import has_login
from kitae.train.tracking.tracking import tracking

FIRST = (start(), evaluation(0), update(1), update(2), update(3))
AGAIN = (start(2), evaluation(4), update(4))


@pytest.fixture(autouse=True)
def _nobody_is_logged_in(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith(("WANDB_", "MLFLOW_", "TRACKIO_", "HF_TOKEN")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def attempt(run, name, outcome="finished", tell=lambda line: None):
    follower = Follower(name, TRACKERS[name], run, Memory(run.folder), tell)
    follower.start()
    follower.close(outcome, wait_s=300)
    assert not follower.is_alive()


def twice(folder, name, **config):
    """An attempt that is killed after step 3, and one that goes on after step 2 to step 4; what was told."""
    told = []
    run = tracked(folder, trackers=[name], **config)
    append(run, *FIRST)
    attempt(run, name, "failed", told.append)
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:-1]))  # cut to what the checkpoint has
    run = tracked(folder, resumed_step=2, trackers=[name], **config)
    append(run, start(2), update(3), *AGAIN[1:])
    attempt(run, name, "finished", told.append)
    assert not any("tried again" in line for line in told), told
    return told


def kept(folder, name):
    return json.loads((folder / "tracking.json").read_text())[name]


def test_tensorboard_hides_what_did_not_happen(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    twice(tmp_path / "run", "tensorboard")
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    losses = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert losses == [(step, pytest.approx(3.0 - step / 10)) for step in (1, 2, 3, 4)]
    assert [event.step for event in events.Scalars("evaluation/loss")] == [0, 4]
    assert events.Scalars("train/learning_rate")[0].value == pytest.approx(0.1)


def test_event_files_of_which_nothing_is_known_are_written_anew(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = tracked(tmp_path / "run", trackers=["tensorboard"])
    append(run, *FIRST)
    attempt(run, "tensorboard")
    (run.folder / "tracking.json").unlink()
    attempt(tracked(tmp_path / "run", resumed_step=3, trackers=["tensorboard"]), "tensorboard")
    events = accumulator.EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3]


def test_mlflow_has_one_run_with_each_step_once(tmp_path):
    client = pytest.importorskip("mlflow.tracking")
    pytest.importorskip("alembic")
    folder = tmp_path / "runs" / "tiny"
    twice(folder, "mlflow", project="proof", tags=["night"])
    there = client.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}")
    (run,) = there.search_runs([there.get_experiment_by_name("proof").experiment_id])
    assert (run.info.run_id, run.info.run_name) == (kept(folder, "mlflow")["id"], "tiny")
    assert run.info.status == "FINISHED"
    history = there.get_metric_history(run.info.run_id, "train/loss")
    assert [(one.step, one.value) for one in history] == [(s, 3.0 - s / 10) for s in (1, 2, 3, 4)]
    assert [one.step for one in there.get_metric_history(run.info.run_id, "evaluation/loss")] == [0, 4]
    assert run.data.params == {"seed": "7", "optimizer.name": "adamw", "optimizer.betas": "[0.9, 0.95]"}
    assert run.data.tags["kitae.tag.night"] == "true"


def test_mlflow_goes_where_its_variable_says(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:secret@tracking:5000")
    place = TRACKERS["mlflow"].place
    assert place(tracked(tmp_path)) == "http://user:secret@tracking:5000 kitae"
    assert place(tracked(tmp_path, mlflow={"uri": "sqlite:///own.db"})) == "sqlite:///own.db kitae"


def test_wandb_without_a_login_is_kept_in_the_folder_under_one_id(tmp_path):
    """Each attempt is a process of its own, as attempts are."""
    pytest.importorskip("wandb")
    folder, told = tmp_path / "run", []
    work = (
        "run = tracked(Path(sys.argv[1]), int(sys.argv[2]), trackers=['wandb'])\n"
        "attempt(run, 'wandb', tell=print)\n"
    )
    for resumed_step, lines in ((0, FIRST), (2, AGAIN)):
        append(tracked(folder), *lines)
        told += alone(work, folder, resumed_step)
        for one in (folder / "wandb").glob("offline-run-2*"):  # its name has the time, to the second
            one.rename(one.with_name(f"offline-run-{resumed_step}-{one.name}"))
    identity = kept(folder, "wandb")["id"]
    assert all("offline, as there is no login" in line for line in told)
    assert f"wandb sync --id {identity} {folder}/wandb/offline-run-*" in told[0]
    files = sorted((folder / "wandb").glob(f"offline-run-*/run-{identity}.wandb"))
    assert [_history(file) for file in files] == [
        {0: {"evaluation/loss": 2.0}, **{s: _values(s) for s in (1, 2, 3)}},
        {4: {**_values(4), "evaluation/loss": 1.6}},
    ]


def _values(step):
    return {"train/loss": 3.0 - step / 10, "train/learning_rate": 0.1}


def _history(file):
    """By step, what a file of wandb holds for its server."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = {}
    for data in _records(file.read_bytes()):
        history = Record.FromString(data).history
        items = {one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in history.item}
        if items:
            step = items.pop("_step", history.step.num)
            found[step] = {name: value for name, value in items.items() if not name.startswith("_")}
    return found


def _records(content):
    """Of a log in LevelDB's format, in one block, behind wandb's own seven bytes."""
    assert len(content) < 1 << 15
    at = 7
    while at < len(content):
        size = int.from_bytes(content[at + 4 : at + 6], "little")
        yield content[at + 7 : at + 7 + size]
        at += 7 + size


@pytest.mark.parametrize(("given", "mode"), [({"WANDB_MODE": "offline"}, "auto"), ({}, "offline")])
def test_wandb_stays_offline_where_that_is_asked_for(tmp_path, monkeypatch, given, mode):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    run, told = tracked(tmp_path / "run", trackers=["wandb"], wandb={"mode": mode}), []
    append(run, *FIRST)
    attempt(run, "wandb", tell=told.append)
    assert "offline, as asked" in told[0]
    assert list((tmp_path / "run/wandb").glob("offline-run-*"))


def test_wandb_has_a_login_by_key_or_netrc(tmp_path, monkeypatch):
    cloud, own = "https://api.forge.coreweave.com", "https://wandb.example.org:8443"
    assert not has_login(cloud)
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password key\n")
    assert [has_login(cloud), has_login("https://api.wandb.ai"), has_login(own)] == [True, True, False]
    (tmp_path / "netrc").write_text("machine wandb.example.org:8443 login user password key\n")
    assert [has_login(cloud), has_login(own)] == [False, True]
    (tmp_path / "netrc").write_text("machine\n")
    assert not has_login(own)
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    assert has_login(cloud)


def alone(work, *words, **environment):
    """The last lines that these statements print in a process of its own, which reads its variables anew."""
    begin = f"import sys; sys.path[:0] = {sys.path!r}\nfrom test_trackers import *\n"
    command = [sys.executable, "-c", begin + work, *map(str, words)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_wandb_without_an_answer_is_kept_in_the_folder(tmp_path):
    pytest.importorskip("wandb")
    work = (
        "run, told = tracked(Path(sys.argv[1]), trackers=['wandb']), []\n"
        "append(run, *FIRST)\n"
        "attempt(run, 'wandb', tell=told.append)\n"
        "print(told)\n"
    )
    nobody = {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_INIT_TIMEOUT": "1", "WANDB_API_KEY": "k" * 40}
    told = alone(work, tmp_path / "run", **nobody)[-1]
    assert told.count("tracking: wandb: offline, as its server does not answer") == 1
    (file,) = (tmp_path / "run/wandb").glob("offline-run-*/run-*.wandb")
    assert sorted(_history(file)) == [0, 1, 2, 3]
    assert "k" * 40 not in told + (tmp_path / "run/tracking.json").read_text()


def test_trackio_has_one_run_with_each_step_once(tmp_path):
    pytest.importorskip("trackio")
    work = (
        "from trackio.sqlite_storage import SQLiteStorage\n"
        "folder = Path(sys.argv[1])\n"
        "twice(folder, 'trackio')\n"
        "name = kept(folder, 'trackio')['id']\n"
        "logs = SQLiteStorage.get_logs('kitae', name)\n"
        "print([(one['step'], one.get('train/loss'), one.get('evaluation/loss')) for one in logs])\n"
        "print(SQLiteStorage.get_runs('kitae') == [name])\n"
    )
    *said, logs, single = alone(work, tmp_path / "run", TRACKIO_DIR=str(tmp_path / "trackio"))
    assert not [line for line in said if "Trackio project" in line or "dashboard" in line or "\x1b" in line]
    steps = [(0, None, 2.0), (1, 2.9, None), (2, 2.8, None), (3, 2.7, None)]
    found = sorted(eval(logs), key=lambda one: (one[0], one[1] is not None))
    assert found == [*steps, (4, None, 1.6), (4, 2.6, None)]
    assert single == "True"


def test_no_library_is_needed_until_it_is_asked_for(monkeypatch):
    """A missing package is told before anything starts, by its extra."""
    usual = importlib.util.find_spec
    monkeypatch.setattr(
        "kitae.train.tracking.table.find_spec", lambda name: None if name == "wandb" else usual(name)
    )
    check_trackers([])
    with pytest.raises(RecipeError, match=r"wandb needs wandb.*pip install 'kitae\[wandb\]'"):
        check_trackers(["wandb"])


def test_importing_the_table_imports_no_tracker():
    names = ("wandb", "mlflow", "trackio", "tensorboard", "torch")
    code = f"import sys, kitae.train.tracking.table; print([n for n in {names!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def recipe(**tracking_values):
    return Recipe.model_validate(
        {
            "kitae": 1,
            "name": "tiny",
            "model": {"folder": "model"},
            "data": {"train": [{"path": "text.txt"}], "sequence_length": 16},
            "training": {"duration": "4 steps"},
            "target": {"setup": ["export WANDB_API_KEY=abcdef"]},
            "tracking": tracking_values,
        }
    )


@pytest.mark.parametrize(
    ("raised", "outcome"), [(None, "finished"), (StoppedError, "stopped"), (ValueError, "failed")]
)
def test_a_training_says_how_it_ended_and_keeps_its_target_to_itself(tmp_path, monkeypatch, raised, outcome):
    seen = []

    class Keeping:
        id, shown = "one", "here"

        def __init__(self, run, known):
            seen.append(run.recipe)

        def send(self, points):
            pass

        def close(self, how):
            seen.append(how)

    kind = TRACKERS["tensorboard"].__class__(Keeping, (), lambda run: "here")
    monkeypatch.setitem(TRACKERS, "tensorboard", kind)
    (tmp_path / "metrics.jsonl").touch()
    try:
        with tracking(recipe(trackers=["tensorboard"]), tmp_path, 0, print):
            if raised is not None:
                raise raised("why")
    except (StoppedError, ValueError):
        pass
    assert seen[1:] == [outcome]
    assert seen[0]["training"]["duration"] == "4 steps"
    assert "WANDB_API_KEY" not in json.dumps(seen[0])


def test_without_trackers_nothing_is_written_or_started(tmp_path, monkeypatch):
    monkeypatch.setattr(builtins, "open", None)
    with tracking(recipe(), tmp_path, 0, print):
        assert not list(Path(tmp_path).iterdir())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"trackers": ["wandb", "wandb"]}, "trackers: wandb, wandb names one of them twice"),
        ({"mlflow": {"uri": "https://me:word@host"}}, "mlflow.uri: holds a password or token"),
        (
            {"trackio": {"server": "http://host/?write_token=abc"}},
            "trackio.server: holds a password or token",
        ),
        ({"trackio": {"server": "http://host", "space": "me/it"}}, "there is trackio.space as well"),
    ],
)
def test_what_a_recipe_must_not_say(values, said):
    with pytest.raises(ValueError, match=said):
        TrackingConfig.model_validate(values)


def test_secrets_are_taken_out_of_addresses_and_words(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "abcdefgh")
    monkeypatch.setenv("TRACKIO_WRITE_TOKEN", "a")  # too short to be looked for
    text = "http://me:word@host/x?write_token=q&step=1: abcdefgh, abc"
    assert without_secrets(text) == "http://***@host/x?write_token=***&step=1: ***, abc"


def test_nested_values_become_dotted_names():
    assert dict(flat({"a": {"b": 1, "c": {"d": [2]}}, "e": None, "f": [], "g": False})) == {
        "a.b": 1,
        "a.c.d": [2],
        "g": False,
    }
    assert STATUS["stopped"] == "KILLED"
