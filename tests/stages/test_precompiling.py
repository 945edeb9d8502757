"""Precompilation as a stage, driven against a stand-in for neuron_parallel_compile (rows 13, 14; T56, T57).

The stand-in does what the real program is documented to do; nothing here has been compared with the real one.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from job_case import kitae, write_recipe
from neuron_cache import VERSION, write_entry

from kitae.backend.cpu import CpuBackend
from kitae.errors import KitaeError
from kitae.precompile.cache_neuron import entries
from kitae.stages import compile_ways, precompiling
from kitae.stages.job import open_job
from kitae.stages.pipeline import run_stages
from kitae.stages.run_folder import RunFolder
from kitae.stages.trial import trial_recipe, write_trial

SOURCE = Path(precompiling.__file__).parents[2]
STANDIN = Path(__file__).parents[1] / "support/standin_neuron"
PHASES = ("train/first", "train/last", "update", "evaluate", "save")


def names(count: int = len(PHASES)) -> list[str]:
    return [f"MODULE_{number:020d}+d41d8cd9" for number in range(count)]


class Chip:
    """A machine that looks like a Trn1: its tool is the stand-in, its trial run is nothing."""

    def __init__(self, folder: Path) -> None:
        self.root, self.plan = folder / "neuron-cache", folder / "plan.json"
        self.fates(*["ok"] * len(PHASES))

    def fates(self, *fates: str) -> None:
        graphs = [
            {"name": name, "phase": phase, "fate": fate}
            for name, phase, fate in zip(names(), PHASES, fates, strict=True)
        ]
        self.plan.write_text(json.dumps({"graphs": graphs}))

    @property
    def states(self) -> list[str]:
        return [entry.state for entry in entries(self.root)]


@pytest.fixture
def chip(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chip:
    made = Chip(tmp_path)
    monkeypatch.setenv("PATH", f"{STANDIN}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN_NEURON_PLAN", str(made.plan))
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(made.root))
    monkeypatch.setattr(precompiling, "stack_here", lambda backend: "trn1-xla")
    monkeypatch.setattr(compile_ways, "TRIAL", ("true",))
    return made


def answered(case: Path) -> dict:
    return json.loads((case / "runs/tiny/precompile/answer.json").read_text())


def test_all_graphs_are_compiled_and_a_second_run_reuses_them(chip: Chip, case: Path, capsys):
    assert kitae("precompile", "recipe.yaml") == 0
    output = capsys.readouterr().out
    assert (
        "precompile: complete: 5 graphs are compiled (train/first, train/last, update, evaluate, save)"
        in output
    )
    assert chip.states == ["done"] * 5
    answer = answered(case)
    assert [one["phase"] for one in answer["needed"]] == list(PHASES)
    assert answer["complete"]
    assert kitae("precompile", "recipe.yaml") == 0
    assert "precompile: skipped, its result is there" in capsys.readouterr().out


def test_what_vanishes_from_the_cache_is_compiled_again(chip: Chip, case: Path, capsys):
    """The record of the stage is no proof: the cache is looked at each time."""
    kitae("precompile", "recipe.yaml")
    (chip.root / VERSION / names()[2] / "model.done").unlink()
    capsys.readouterr()
    assert kitae("precompile", "recipe.yaml") == 0
    assert "5 graphs, 4 of them are in the cache" in capsys.readouterr().out


def test_a_poisoned_graph_is_named_with_phase_and_error_and_stays_so_until_asked(chip: Chip, capsys):
    chip.fates("ok", "ok", "fail", "ok", "ok")
    for _ in range(2):
        assert kitae("precompile", "recipe.yaml") == 9
        error = capsys.readouterr().err
        assert "1 of 5 graphs are not compiled (1 failed):" in error
        assert f"update: {names()[2]}: failed ([NLA001] Unhandled exception" in error
        assert "kitae precompile --retry-failed" in error
    chip.fates(*["ok"] * 5)  # the compiler's fault was mended
    assert kitae("precompile", "recipe.yaml") == 9
    assert kitae("precompile", "recipe.yaml", "--retry-failed") == 0


def test_pass_for_all_but_a_graph_that_was_never_tried(chip: Chip, capsys):
    """T56: the tool ends with 0, PASS and a summary without failures."""
    chip.fates("ok", "vanish", "ok", "ok", "ok")
    assert kitae("precompile", "recipe.yaml") == 9
    captured = capsys.readouterr()
    assert f"train/last: {names()[1]}: not compiled" in captured.err
    assert "the compiler said PASS 4 times; that says nothing of what is missing" in captured.out


def test_the_tool_tries_a_graph_again_by_itself(chip: Chip, capsys):
    chip.fates("ok", "retry", "ok", "ok", "ok")
    assert kitae("precompile", "recipe.yaml") == 0
    assert chip.states == ["done"] * 5
    assert "the tool compiled 5 of 5 graphs, 1 of them at a second try or later" in capsys.readouterr().out


def test_retries_can_be_turned_off(chip: Chip, capsys):
    chip.fates("ok", "retry", "ok", "ok", "ok")
    assert kitae("precompile", "recipe.yaml", "--retries", "0") == 9


def test_a_lock_left_behind_is_told_and_cleared_on_request(chip: Chip, case: Path, capsys):
    chip.fates("ok", "lock", "ok", "ok", "ok")
    assert kitae("precompile", "recipe.yaml") == 9
    assert "left behind: no compiler runs here" in capsys.readouterr().err
    chip.fates(*["ok"] * 5)
    assert kitae("precompile", "recipe.yaml") == 9  # it would wait without end
    assert "the compiler would wait for it without end" in capsys.readouterr().err
    assert kitae("cache", "clear-locks") == 0
    assert "1 locks would go" in capsys.readouterr().out
    assert kitae("cache", "clear-locks", "--yes") == 0
    assert kitae("precompile", "recipe.yaml") == 0


def test_out_of_memory_once_more_with_fewer_at_a_time(chip: Chip, capsys, monkeypatch):
    chip.fates("ok", "memory", "ok", "ok", "ok")
    assert kitae("precompile", "recipe.yaml", "--jobs", "2") == 0
    output = capsys.readouterr().out
    assert "compiling 2 graphs at a time (as asked for)" in output
    assert "killed for memory (exit code -9); once more, with 1 graphs at a time instead of 2" in output


def test_out_of_memory_twice_is_told(chip: Chip, capsys):
    chip.fates("ok", "memory", "ok", "ok", "ok")
    assert kitae("precompile", "recipe.yaml", "--jobs", "8") == 9
    captured = capsys.readouterr()
    assert "with 4 graphs at a time instead of 8" in captured.out
    assert f"train/last: {names()[1]}: failed (Killed)" in captured.err


def test_killed_half_way_is_told_and_gone_on_with(chip: Chip, case: Path, capsys):
    """T51: what was being written is not used."""
    chip.fates("ok", "ok", "killed", "ok", "ok")
    assert kitae("precompile", "recipe.yaml") == 9
    assert chip.states == ["done", "done", "half-written", "empty", "empty"]
    capsys.readouterr()
    assert kitae("precompile", "recipe.yaml") == 9  # the lock of the killed compiler
    assert kitae("cache", "clear-locks", "--yes") == 0
    assert kitae("precompile", "recipe.yaml") == 0
    assert "5 graphs, 2 of them are in the cache" in capsys.readouterr().out


def test_graphs_of_other_trainings_that_will_be_compiled_too_are_told(chip: Chip, capsys):
    write_entry(chip.root, "MODULE_999+ffff", "empty")
    assert kitae("precompile", "recipe.yaml") == 0
    assert "1 graphs that were collected for other trainings lie in this cache" in capsys.readouterr().out


def test_what_an_earlier_trial_asked_for_is_not_needed_any_more(chip: Chip, case: Path):
    kitae("precompile", "recipe.yaml")
    log = case / "runs/tiny/precompile/trial/logs/rank-1.log"
    log.parent.mkdir()
    log.write_text(f"INFO ||NEURON_CC_WRAPPER||: Using a cached neff at {chip.root}/MODULE_7+f/model.neff")
    assert kitae("precompile", "recipe.yaml", "--set", "training.micro_batch_size=1") == 0
    assert len(answered(case)["needed"]) == 5


def test_without_the_tool_the_way_out_is_said(chip: Chip, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert kitae("precompile", "recipe.yaml") == 9
    assert "neuron_parallel_compile is not on PATH: it comes with torch-neuronx" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("error: step 1: weight x is not finite\n", "error: step 1: weight x is not finite"),
        ("Traceback\n  File x\nModuleNotFoundError: No module named 'k'\n", "ModuleNotFoundError: No module"),
    ],
)
def test_a_trial_run_that_fails_is_told_with_its_own_error(
    chip: Chip, capsys, monkeypatch, tmp_path, said: str, told: str
):
    (tmp_path / "words").write_text(said)
    script = tmp_path / "fails"
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/words >&2\nexit 5\n")
    script.chmod(0o755)
    monkeypatch.setattr(compile_ways, "TRIAL", (str(script),))
    assert kitae("precompile", "recipe.yaml") == 9
    assert f"the trial run failed (exit code 5): {told}" in capsys.readouterr().err


def test_a_cache_on_a_shared_file_system_is_refused_with_the_way_out(
    chip: Chip, capsys, monkeypatch, tmp_path
):
    table = tmp_path / "mounts"
    table.write_text(f"fs-1.efs:/ {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr("kitae.storage.mounts.MOUNTS", table)
    assert kitae("precompile", "recipe.yaml") == 9
    assert "lies on fs-1.efs:/ (nfs4), which other machines see, too" in capsys.readouterr().err


def test_a_cache_at_an_address_is_refused(chip: Chip, capsys, monkeypatch):
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", "s3://bucket/cache")
    assert kitae("precompile", "recipe.yaml") == 9
    assert "s3://bucket/cache is no folder" in capsys.readouterr().err


# ---- in the pipeline


def test_a_training_is_preceded_by_it_and_stops_where_something_is_missing(chip: Chip, case: Path, capsys):
    """T57: missing keys are listed before the paid run."""
    chip.fates("ok", "ok", "ok", "fail", "ok")
    assert kitae("train", "recipe.yaml") == 9
    captured = capsys.readouterr()
    assert f"evaluate: {names()[3]}: failed" in captured.err
    assert "step 1/6" not in captured.out
    chip.fates(*["ok"] * 5)
    assert kitae("cache", "clear-failed", "--yes") == 0
    assert kitae("train", "recipe.yaml") == 0
    assert "step 6/6" in capsys.readouterr().out
    record = json.loads((case / "runs/tiny/run.json").read_text())["stages"]
    assert list(record) == ["plan", "prepare", "import", "precompile", "train"]
    assert record["precompile"]["graphs"] == 5


def test_other_shapes_are_another_compilation(chip: Chip, case: Path, capsys):
    kitae("precompile", "recipe.yaml")
    capsys.readouterr()
    assert kitae("precompile", "recipe.yaml", "--set", "training.micro_batch_size=1") == 0
    assert "collecting graphs by a trial run" in capsys.readouterr().out


def test_on_a_cpu_there_is_no_such_stage(case: Path, capsys):
    assert kitae("precompile", "recipe.yaml") == 0
    assert "nothing has to be compiled ahead" in capsys.readouterr().out
    assert not (case / "runs").exists()
    done = run_stages(open_job(case / "recipe.yaml", report=lambda line: None), "train")
    assert done == ["plan", "prepare", "import", "train"]


def test_a_training_around_which_somebody_put_the_tool_is_refused(case: Path, capsys, monkeypatch):
    """It would end with weights that were never computed."""
    monkeypatch.setenv("NEURON_EXTRACT_GRAPHS_ONLY", "1")
    assert kitae("train", "recipe.yaml") == 2
    assert "start kitae without neuron_parallel_compile" in capsys.readouterr().err
    assert not (case / "runs/tiny/checkpoints").exists()


def test_torchneurons_cache_is_warmed_by_a_trial_run(case: Path, tmp_path: Path, capsys, monkeypatch):
    """Its compiler tells no keys: files are counted, before and after."""
    cache = tmp_path / "neff"
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(cache))
    monkeypatch.setattr(precompiling, "stack_here", lambda backend: "torchneuron")
    script = tmp_path / "trial"
    script.write_text(f"#!/bin/sh\nmkdir -p {cache}/ab/cd\necho x > {cache}/ab/cd/abcd1.neff\n")
    script.chmod(0o755)
    monkeypatch.setattr(compile_ways, "TRIAL", (str(script),))
    assert kitae("precompile", "recipe.yaml") == 0
    output = capsys.readouterr().out
    assert "precompile: 1 artefacts are new" in output
    assert "precompile: complete: 1 graphs are compiled" in output
    assert kitae("precompile", "recipe.yaml") == 0
    assert "precompile: skipped" in capsys.readouterr().out
    assert kitae("train", "recipe.yaml") == 0  # does not ask for it by itself
    assert "precompile" not in capsys.readouterr().out
    assert kitae("precompile", "--of", "runs/tiny") == 9
    assert "TorchNeuron tells of no graph by a key" in capsys.readouterr().err


# ---- the trial run


def shortened(case: Path, **changes: object):
    write_recipe(case, **changes)
    job = open_job(case / "recipe.yaml", report=lambda line: None)
    run_stages(job, "import")
    return job, trial_recipe(job)


def test_the_trial_ends_with_as_many_rows_as_the_real_training(case: Path):
    """55 rows in batches of 4: the last has 3, and so has the trial's."""
    training = {"duration": "1 epochs", "global_batch_size": 4, "micro_batch_size": 2}
    job, trial = shortened(case, training=training, schedule={"warmup": "1 epochs"})
    assert str(trial.training.duration) == f"{(4 + 4 + 3) * 32} tokens"
    assert trial.training.model_copy(update={"duration": job.recipe.training.duration}) == job.recipe.training
    assert (trial.parallel, trial.optimizer, trial.data) == (
        job.recipe.parallel,
        job.recipe.optimizer,
        job.recipe.data,
    )
    assert trial.evaluation.max_rows == 2 * 2 + 1


def test_a_training_that_is_short_anyway_is_its_own_trial(case: Path):
    _, trial = shortened(
        case, training={"duration": "2 steps", "global_batch_size": 4, "micro_batch_size": 2}
    )
    assert str(trial.training.duration) == f"{2 * 4 * 32} tokens"


def test_each_phase_is_tried(case: Path):
    phases = [{"name": "short"}, {"name": "long", "data": {"sequence_length": 64}}]
    _, trial = shortened(case, phases=phases)
    durations = [str(phase.training.duration) for phase in trial.phases]
    assert durations == [f"{3 * 4 * 32} tokens", f"{3 * 4 * 64} tokens"]


def test_a_trial_goes_through_saving_and_resuming_and_leaves_the_run_alone(case: Path):
    job, _ = shortened(case)
    folder = write_trial(job)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "KITAE_CACHE": str(job.cache)}
    command = [*compile_ways.TRIAL, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step 3/3") == 2
    assert "trial: once more from the save" in done.stdout
    assert "after step 2 of 3" in done.stdout
    assert not (case / "runs/tiny/metrics.jsonl").exists()
    assert not (case / "runs/tiny/checkpoints").exists()
    assert not (job.cache / "state/history.jsonl").exists()  # no plan is to learn from it


def test_more_processes_than_devices_are_refused_before_text_is_read(
    chip: Chip, case: Path, capsys, monkeypatch
):
    monkeypatch.setattr(CpuBackend, "exclusive", True)
    monkeypatch.setattr(CpuBackend, "devices", classmethod(lambda cls: 1))
    assert kitae("precompile", "recipe.yaml", "--set", "parallel.data_parallel_size=2") == 2
    assert "need as many cpu devices, and there are 1" in capsys.readouterr().err
    assert not (case / "runs/tiny/precompile").exists()


def test_a_trial_that_still_works_keeps_its_folder(case: Path):
    """One that outlived the process which started it would write into the next one's."""
    job, _ = shortened(case)
    folder = write_trial(job)
    with RunFolder(folder).held(), pytest.raises(KitaeError, match=r"process works in .*/trial"):
        write_trial(job)
    assert write_trial(job) == folder


# ---- what a training used


def test_what_a_training_compiled_itself_is_told_of_it(chip: Chip, case: Path, capsys):
    kitae("train", "recipe.yaml")
    log = case / "runs/tiny/logs/rank-1.log"
    first, second = (chip.root / VERSION / name for name in names(2))
    log.write_text(
        f"INFO ||NEURON_CC_WRAPPER||: Using a cached neff at {first}/model.neff. Exiting\n"
        f"INFO ||NEURON_CC_WRAPPER||: Call compiler with cmd: neuronx-cc model.{second.name}.hlo_module.pb\n"
    )
    capsys.readouterr()
    trial = case / "runs/tiny/precompile/trial"
    graph = {"phase": "evaluate", "key": "77aa", "inputs": [{"name": "i", "shape": [2], "dtype": "int64"}]}
    for folder, graphs in ((trial, []), (case / "runs/tiny", [graph])):
        text = json.dumps({"format": 1, "backend": "xla", "graphs": graphs})
        (folder / "graphs.json").write_text(text)
    assert kitae("precompile", "--of", "runs/tiny") == 0
    output = capsys.readouterr().out
    assert "2 graphs were used, 1 of them compiled while it trained" in output
    assert f"  train/last: {second.name}" in output  # as the trial run said
    assert "the trial run has not met evaluate 77aa (int64[2])" in output
    write_entry(chip.root, second.name, "failed")
    (second / "model.neff").unlink()
    assert kitae("precompile", "--of", "runs/tiny", "--json") == 9
    facts = json.loads(capsys.readouterr().out)
    assert facts["missing"][0]["reason"] == "failed"
    assert facts["compiled_in_training"] == [second.name]


def test_a_run_without_a_compilers_log_is_told(chip: Chip, case: Path, capsys):
    kitae("train", "recipe.yaml")
    assert kitae("precompile", "--of", "runs/tiny") == 9
    assert "name no graph of Neuron's compiler" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "name a recipe or a run to compile for"),
        (("--of", "none"), "there is no such run"),
        (("recipe.yaml", "--rank", 3), "are of --trace-only"),
        (("recipe.yaml", "--json"), "is of --of, --why-miss and --trace-only"),
    ],
)
def test_what_is_asked_wrongly(case: Path, capsys, words, text: str):
    assert kitae("precompile", *words) == 2
    assert text in capsys.readouterr().err


def test_why_miss_from_the_command_line(case: Path, tmp_path: Path, capsys):
    """Row 52: two keys that differ in one flag."""
    one = write_entry(tmp_path, "MODULE_111+aaaa")
    other = write_entry(tmp_path, "MODULE_111+bbbb", flags=("--target=trn2",))
    assert kitae("precompile", "--why-miss", one, other) == 0
    output = capsys.readouterr().out
    assert "flag: --target: trn1 is trn2" in output
    assert kitae("precompile", "--why-miss", one, other, "--json") == 0
    assert json.loads(capsys.readouterr().out)["differences"][-1] == {
        "what": "flag",
        "text": "--target: trn1 is trn2",
    }
