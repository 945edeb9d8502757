"""What the head node does with requests."""

import json
import shutil
import stat
import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest

from kitae.errors import ClusterError, KitaeError, StorageError
from kitae.launch.ssh.sync import bring
from kitae.launch.ssh.tasks import environment, task


def test_folders_of_objects_appear_whole(node, head, tmp_path):
    import hashlib

    file = tmp_path / "file"
    file.write_text("text")
    name = hashlib.sha256(b"text").hexdigest()
    bring(head, {name: file}, rsync=False)
    head.ask("place", folders={"inputs/a": {"text/train.txt": name, "of me.txt": name}})
    head.ask("place", folders={"inputs/a": {"text/train.txt": name, "of me.txt": name}})
    assert (node.work / "inputs/a/text/train.txt").read_text() == "text"
    assert (node.work / "inputs/a/of me.txt").read_text() == "text"
    assert [one.name for one in (node.work / "inputs").iterdir()] == ["a"]


def test_a_task_outlives_its_connection_and_is_begun_once(node, head):
    waits = f"while [ ! -e '{node.folder}/go' ]; do sleep 0.1; done"
    script = f"echo begun >> '{node.folder}/times'; {waits}; echo end"
    asked = {"task": "one", "words": ["sh", "-c", script], "variables": {}}
    assert head.ask("start", **asked) == {"begun": True}
    assert head.ask("start", **asked) == {"begun": False}
    (node.folder / "go").touch()
    answers = list(head.answers("follow", task="one", position=0))
    assert ("".join(one.get("text", "") for one in answers), answers[-1]) == ("end\n", {"code": 0})
    assert (node.folder / "times").read_text() == "begun\n"


def test_a_task_that_fails_says_its_error(head, told):
    words = ["sh", "-c", "echo working; echo 'error: data.train: nothing there'; exit 3"]
    with pytest.raises(Exception, match=r"^data.train: nothing there$") as caught:
        task(head, "bad", words, {}, told.append)
    assert (type(caught.value).__name__, caught.value.exit_code) == ("DataError", 3)
    assert told == ["head: working"]


def test_a_task_that_was_killed_is_told(node, head):
    (node.work / "tasks/dead").mkdir()
    (node.work / "tasks/dead/lock").touch()
    with pytest.raises(ClusterError, match="was killed there; give the same command again"):
        list(head.answers("follow", task="dead", position=0))


def wheel(folder, needs):
    path = folder / "kitae-9+x-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("kitae/__init__.py", "")
        lines = "".join(f"Requires-Dist: {need}\n" for need in needs)
        archive.writestr(
            "kitae-9+x.dist-info/METADATA", f"Metadata-Version: 2.1\nName: kitae\nVersion: 9+x\n{lines}"
        )
    return path


def test_a_program_that_is_not_there_is_told(head, told):
    with pytest.raises(KitaeError, match=r"^/no/such/program: No such file or directory$"):
        task(head, "none", ["/no/such/program"], {}, told.append)


def built(node, head, path):
    """The environment of a wheel beside the packages of this interpreter."""
    shutil.copy(path, node.work / "code" / path.name)
    return environment(replace(head, python=sys.executable), f"code/{path.name}", "", [], True, print)


def test_an_interpreter_of_the_users_gets_kitae_beside_what_it_has(node, head, tmp_path):
    python, site = built(node, head, wheel(tmp_path, ["packaging>=20"]))
    assert python == sys.executable
    code = "import kitae; print(kitae.__file__)"
    done = subprocess.run([python, "-c", code], env={"PYTHONPATH": site}, capture_output=True, text=True)
    assert done.stdout.strip() == f"{site}/kitae/__init__.py"
    assert site.startswith(f"{node.work}/environments/")


def test_what_such_an_interpreter_lacks_is_named(node, head, tmp_path):
    path = wheel(tmp_path, ["packaging>=20", "no-such-package>=2"])
    for _ in range(2):  # what was begun is begun anew
        with pytest.raises(ClusterError) as caught:
            built(node, head, path)
        assert "needed there: no-such-package>=2 (not installed); mend it there" in str(caught.value)


def test_tokens_are_only_for_their_user(node, head):
    head.ask("hide", b"export HF_TOKEN=hf_x\n", name="run", size=21)
    path = node.work / "secrets/new/run"
    assert path.read_text() == "export HF_TOKEN=hf_x\n"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent, path.parent.parent)] == [
        0o600,
        0o700,
        0o700,
    ]
    head.ask("hide", b"", name="run", size=0)
    assert not path.exists()


def test_a_run_is_listed_without_what_stays_there(node, head):
    run = node.work / "runs/one"
    names = ("results.json", "submitted.yaml", "slurm.json", ".lock", "logs/rank-0.log", "export/config.json")
    for name in (*names, "checkpoints/step-00000001/a", "checkpoints/step-00000002/b", "attempts/1/x"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(name)
    found = head.ask("listing", run="runs/one", checkpoint=False)["files"]
    assert sorted(name for name, _, _ in found) == ["export/config.json", "logs/rank-0.log", "results.json"]
    assert [size for name, size, _ in found if name == "results.json"] == [len("results.json")]
    found = head.ask("listing", run="runs/one", checkpoint=True)["files"]
    assert "checkpoints/step-00000002/b" in [name for name, _, _ in found]
    assert "checkpoints/step-00000001/a" not in [name for name, _, _ in found]
    with pytest.raises(ClusterError, match=r"there is no .*two there; was the run removed"):
        head.ask("listing", run="runs/two", checkpoint=False)


def test_a_folder_that_is_gone_is_told(node, head):
    with pytest.raises((StorageError, ClusterError), match="gone there"):
        replace(head, folder=str(node.folder / "gone")).ask("exists", paths=[])


def test_small_files_are_replaced_as_a_whole(node, head):
    head.ask("keep", files={"recipes/a.json": json.dumps({"a": 1})})
    head.ask("keep", files={"recipes/a.json": json.dumps({"a": 2})})
    assert json.loads((node.work / "recipes/a.json").read_text()) == {"a": 2}
    assert [one.name for one in (node.work / "recipes").iterdir()] == ["a.json"]
