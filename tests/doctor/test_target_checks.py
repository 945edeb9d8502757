"""`kitae doctor --target`: variables with their reasons, and what this machine lacks, without its tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kitae.backend.stack import NeuronPackage
from kitae.cli.main import main
from kitae.doctor import driver, host, network, neuron_devices, sdk, target, tools, vocabulary
from kitae.doctor.finding import Patient
from kitae.doctor.target import Target, target_of
from kitae.errors import RecipeError
from kitae.launch import environment
from kitae.stages.examining import aim


def patient(folder: Path, **changes: object) -> Patient:
    given = {"precision": "bf16-sr", "environ": {}, **changes}
    one = target_of("trn1.32xlarge", "bf16")
    return Patient(folder, target=Target("trn1.32xlarge", "trn1-xla", instance=one.instance, **given))


def rows(found) -> list[tuple[str, str]]:
    return [(one.level, one.subject) for one in found]


def test_what_the_machine_has(tmp_path: Path):
    (found,) = target.target(patient(tmp_path))
    assert "16 chips with 32 cores, one rank each" in found.text
    assert "1, 2, 8 or 32 ranks can train together" in found.text
    assert found.source.endswith("(2026-11-30)")


def test_each_variable_with_reason_and_source(tmp_path: Path):
    found = {one.subject: one for one in target.variables(patient(tmp_path))}
    rounding = found["NEURON_RT_STOCHASTIC_ROUNDING_EN"]
    assert (rounding.level, rounding.text[:2]) == ("ok", "1:")
    assert "small updates are not lost" in rounding.text
    assert rounding.source
    assert found["FI_PROVIDER"].text.startswith("efa: ")
    assert all(one.level == "ok" and one.source for one in found.values())


def test_ones_own_setting_is_kept_and_said(tmp_path: Path):
    own = {"NEURON_RT_EXEC_TIMEOUT": "30", "MALLOC_ARENA_MAX": "64"}
    found = {one.subject: one for one in target.variables(patient(tmp_path, environ=own))}
    assert found["NEURON_RT_EXEC_TIMEOUT"].level == "note"
    assert found["NEURON_RT_EXEC_TIMEOUT"].text.startswith("yours is kept: 30; kitae would set 600: ")
    assert found["MALLOC_ARENA_MAX"].text.startswith("64 (set here, too): ")


def test_what_must_not_be_set_is_in_the_way(tmp_path: Path):
    own = {"XLA_DOWNCAST_BF16": "1", "NEURON_RT_STOCHASTIC_ROUNDING_EN": "0"}
    found = [one for one in target.variables(patient(tmp_path, environ=own)) if one.level == "fail"]
    assert [one.subject for one in found] == ["XLA_DOWNCAST_BF16", "NEURON_RT_STOCHASTIC_ROUNDING_EN"]


def test_names_of_targets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(target, "instance_type", lambda: "trn1.2xlarge")
    assert target_of("here", "bf16").instance.devices == 2
    assert not target_of("trn1.32xlarge", "bf16").here
    assert target_of("trn1.2xlarge", "bf16").here
    assert target_of("trn2.48xlarge", "bf16").stack == "torchneuron"
    assert target_of("cpu", "fp32").stack == "cpu"
    with pytest.raises(RecipeError, match=r"no instance is called 'trn1\.31xlarge'; did you mean"):
        target_of("trn1.31xlarge", "bf16")


def written(folder: Path, more: str = "", **training: str) -> Path:
    """A recipe whose model is out of reach."""
    wanted = ", ".join(f"{name}: {value}" for name, value in {"duration": "1 steps", **training}.items())
    recipe = folder / "recipe.yaml"
    text = "kitae: 1\nname: a\nmodel: {folder: nowhere}\ndata: {train: [{path: t.txt}]}\n"
    recipe.write_text(f"{text}training: {{{wanted}}}\n{more}")
    return recipe


def test_the_precision_is_the_recipes(tmp_path: Path):
    recipe = written(tmp_path, precision="bf16-sr")
    assert aim("trn1.32xlarge", None, recipe).target.precision == "bf16-sr"
    assert aim("trn1.32xlarge", "fp32", recipe).target.precision == "fp32"
    recipe = written(tmp_path)
    assert aim("trn1.32xlarge", None, recipe).target.precision == "bf16"
    assert aim("cpu", None, recipe).target.precision == "fp32"
    with pytest.raises(RecipeError, match="no precision is called 'bf17'"):
        aim("cpu", "bf17")


def test_a_model_out_of_reach_hides_nothing_of_the_machine(tmp_path: Path):
    found = aim("trn1.32xlarge", None, written(tmp_path, precision="bf16-sr"))
    assert "nowhere" in found.out_of_reach
    assert rows(vocabulary.reach(found)) == [("note", "recipe")]
    assert rows(vocabulary.reach(aim("cpu", None, written(tmp_path)))) == [("fail", "recipe")]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(RecipeError, match="neither a run nor"):
        aim("trn1.32xlarge", None, empty)


@pytest.mark.parametrize(
    ("machine", "count", "level"),
    [
        ("trn1.32xlarge", 32, "ok"),
        ("trn1.32xlarge", 8, "note"),
        ("trn1.32xlarge", 24, "fail"),
        ("trn1.32xlarge", 3, "fail"),
        ("trn2.48xlarge", 64, "ok"),
    ],
)
def test_how_many_ranks_train_together(machine: str, count: int, level: str, tmp_path: Path):
    """Pain T58: 24 of 32 cores, or a number that the chip's collectives do not take."""
    one = Patient(tmp_path, target=target_of(machine, "bf16"), ranks=count)
    assert rows(target.ranks(one)) == [(level, "ranks")]
    assert list(target.ranks(Patient(tmp_path, target=target_of(machine, "bf16")))) == []


def test_idle_cores_are_counted(tmp_path: Path):
    (found,) = target.ranks(Patient(tmp_path, target=target_of("trn1.32xlarge", "bf16"), ranks=8))
    assert found.text == "8 on each machine: 24 of 32 cores are idle"


def test_ranks_and_changes_of_a_recipe(tmp_path: Path):
    recipe = written(tmp_path, "parallel: {tensor_parallel_size: 8, data_parallel_size: 8}\n")
    two = ["target.kind=slurm", "target.nodes=2", "training.precision=bf16-sr"]
    found = aim("trn1.32xlarge", None, recipe, two)
    assert (found.ranks, found.target.precision) == (32, "bf16-sr")
    assert aim("trn1.32xlarge", None, recipe).ranks == 64
    assert aim("trn1.32xlarge", None, recipe, ["runs=elsewhere"]).runs == Path("elsewhere")
    auto = ["parallel.data_parallel_size=auto"]
    assert aim("trn1.32xlarge", None, recipe, auto).ranks is None


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch):
    """Makes these versions the installed ones."""

    def make(kind: str = "xla", torch: str = "2.9.1", **versions: str):
        found = {name.replace("_", "-"): version for name, version in versions.items()}
        monkeypatch.setattr(sdk, "installed", lambda: found)
        monkeypatch.setattr(
            sdk, "neuron_package", lambda: NeuronPackage(kind, found.get("torch-neuronx", ""))
        )
        monkeypatch.setattr(sdk, "_version", lambda name: torch if name == "torch" else None)
        monkeypatch.setattr(sdk.platform, "python_version", lambda: "3.11.7")

    return make


GOOD = {
    "torch_neuronx": "2.9.0.2.12.22436+b2d8f1",
    "neuronx_cc": "2.23.6484.0+3b6b1d5d",
    "libneuronxla": "2.2.15515.0+50c26cbd",
    "runtime_lib": "2.30.51.0-f0e8e8e8",
    "collectives": "2.30.59.0-838c7fc8b",
    "dkms": "2.26.10.0",
}


def test_the_best_release_is_fit(tmp_path: Path, packages):
    packages(**GOOD)
    listed, verdict = sdk.release_of(patient(tmp_path))
    assert "neuronx-cc 2.23.6484.0+3b6b1d5d (2.28.1)" in listed.text
    assert (verdict.level, verdict.text) == ("ok", "release 2.28.1")
    assert rows(sdk.package(patient(tmp_path))) == [("ok", "torch-neuronx")]


def test_a_release_that_trains_no_more_is_refused(tmp_path: Path, packages):
    packages(**{**GOOD, "torch_neuronx": "2.9.0.2.15.32035", "neuronx_cc": "2.25.1.0"})
    found = [one for one in sdk.release_of(patient(tmp_path)) if one.level == "fail"]
    (late,) = found
    assert late.text.startswith(
        "torch-neuronx 2.9.0.2.15.32035, neuronx-cc 2.25.1.0: training through torch-xla"
    )
    assert "not supported from release 2.30 on; install 2.28.1" in late.text
    assert "2026-05-20" in late.source


def test_the_last_release_is_noted_and_a_mixture_named(tmp_path: Path, packages):
    packages(**{**GOOD, "neuronx_cc": "2.24.8799.0"})
    _, verdict, mixed = sdk.release_of(patient(tmp_path))
    assert (verdict.level, "2.29.1 is the last" in verdict.text) == ("note", True)
    assert "neuronx-cc of 2.29.1" in mixed.text
    assert "packages of 2 releases" in mixed.text


def test_torch_and_python_that_do_not_fit(tmp_path: Path, packages, monkeypatch: pytest.MonkeyPatch):
    packages(**GOOD, torch="2.8.0")
    monkeypatch.setattr(sdk.platform, "python_version", lambda: "3.13.1")
    found = {one.subject: one for one in sdk.release_of(patient(tmp_path))}
    assert found["torch"].text.endswith(
        "is for torch 2.9, and 2.8.0 is installed; pip install 'torch==2.9.*'"
    )
    assert found["python"].level == "note"


def test_the_wrong_product_of_the_same_name(tmp_path: Path, packages):
    packages(kind="native", torch_neuronx="2.14.3.0")
    (found,) = sdk.package(patient(tmp_path))
    assert found.level == "fail"
    assert "2.14.3.0 is TorchNeuron" in found.text


def test_torch_neuron_has_to_fit_torch(tmp_path: Path, packages):
    one = Patient(tmp_path, target=Target("trn2.48xlarge", "torchneuron", "bf16"))
    packages(kind="native", torch_neuronx="2.14.3.0", torch="2.14.0")
    assert [row.text for row in sdk.release_of(one)][-1] == "release 2.33.0 (public beta)"
    packages(kind="native", torch_neuronx="2.14.3.0", torch="2.13.0")
    assert "pip install 'torch-neuronx==2.13.*'" in [row.text for row in sdk.release_of(one)][-1]
    packages(kind="native", torch_neuronx="2.15.4.0", torch="2.15.0")
    assert "in no release that kitae knows (2.33.0)" in [row.text for row in sdk.release_of(one)][-1]


def test_lists_of_the_systems_packages():
    text = (
        "aws-neuronx-runtime-lib 2.30.51.0-f0e8\naws-neuronx-dkms 2.26.10.0\naws-neuronx-oci-hook 2.1\nodd\n"
    )
    assert sdk.parse_packages(text) == {"runtime-lib": "2.30.51.0-f0e8", "dkms": "2.26.10.0"}


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing of Neuron."""
    for name in ("SYSFS", "DEVICES", "MODULE"):
        monkeypatch.setattr(neuron_devices, name, tmp_path / name.lower())
    monkeypatch.setattr(tools.shutil, "which", lambda program: None)
    monkeypatch.setattr(driver, "NEURON_PROGRAMS", tmp_path / "bin")
    monkeypatch.setattr(network, "INFINIBAND", tmp_path / "infiniband")
    return tmp_path


def test_without_driver_devices_and_tools_each_is_said_to_be_not_found(bare: Path):
    found = [
        one
        for check in (driver.driver, driver.devices, driver.cores, network.efa)
        for one in check(patient(bare))
    ]
    assert rows(found) == [
        ("fail", "neuron driver"),
        ("fail", "neuron devices"),
        ("fail", "neuron-ls"),
        ("fail", "efa"),
    ]
    assert all("not found" in one.text for one in found)
    assert "sudo modprobe neuron" in found[0].text


def test_on_another_machine_it_is_worth_knowing_only(bare: Path):
    for check in (driver.driver, driver.devices, driver.cores, network.efa, host.limits):
        for one in check(patient(bare, here=False)):
            assert one.level != "fail"
    (found,) = driver.driver(patient(bare, here=False))
    assert "(this machine is no trn1.32xlarge)" in found.text


def tool(folder: Path, name: str, text: str) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def listing(**holders: list[dict[str, object]]) -> str:
    devices = [
        {
            "neuron_device": number,
            "nc_count": 2,
            "neuroncore_ids": [2 * number, 2 * number + 1],
            "neuron_processes": holders.get(f"d{number}", []),
        }
        for number in range(16)
    ]
    return f"cat <<'END'\n{json.dumps(devices)}\nEND"


def test_who_holds_cores_is_named_and_never_ended(bare: Path):
    """Pain 43: `not available` at start, because an old process is alive."""
    old = {"pid": 4711, "command": "python old.py", "neuron_runtime_version": "2.30.51"}
    looks = {"pid": 4712, "command": "neuron-monitor", "neuron_runtime_version": "NA"}
    tool(bare, "neuron-ls", listing(d0=[old], d1=[old, looks], d5=[old]))
    counted, held, seen = driver.cores(patient(bare))
    assert (counted.level, counted.text) == ("ok", "16 devices with 32 cores")
    assert held.level == "fail"
    assert held.text.startswith(
        "device 0, 1, 5 (cores 0-3, 10-11): held by process 4711 (python old.py), runtime 2.30.51; "
    )
    assert "kill 4711; kitae does not" in held.text
    assert (seen.level, "4712 (neuron-monitor) looks at it" in seen.text) == ("note", True)


def test_a_holder_of_which_an_older_tool_says_little_holds(bare: Path):
    tool(bare, "neuron-ls", listing(d3=[{"pid": 9}]))
    _, held = driver.cores(patient(bare))
    assert (held.level, "process 9 (no command told)" in held.text) == ("fail", True)


def test_fewer_cores_than_the_type_has(bare: Path):
    tool(bare, "neuron-ls", 'echo \'[{"neuron_device": 0, "nc_count": 2}]\'')
    (found,) = driver.cores(patient(bare))
    assert found.level == "fail"
    assert "1 devices with 2 cores, room for 2 ranks, where a trn1.32xlarge has 32" in found.text


def test_a_tool_that_hangs_or_talks_nonsense(bare: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tools, "PATIENCE_S", 0.3)
    tool(bare, "neuron-ls", "sleep 600")
    (found,) = driver.cores(patient(bare))
    assert found.text.startswith("neuron-ls gave no answer in 0.3 s: the driver may hang")
    tool(bare, "neuron-ls", "echo Segmentation")
    (found,) = driver.cores(patient(bare))
    assert (found.level, "cannot be read" in found.text) == ("note", True)


def test_devices_that_are_gone(bare: Path):
    (bare / "devices").mkdir()
    for number in range(15):
        (bare / "devices" / f"neuron{number}").touch()
    (found,) = driver.devices(patient(bare))
    assert (found.level, "15 of 16 devices are there (missing: 15)" in found.text) == ("fail", True)
    (bare / "devices" / "neuron15").touch()
    assert rows(driver.devices(patient(bare))) == [("ok", "neuron devices")]


def test_limits_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    unlimited = host.resource.RLIM_INFINITY
    monkeypatch.setattr(host.resource, "getrlimit", lambda which: (1024, 4096))
    files, pinned = host.limits(patient(tmp_path))
    assert (files.level, files.text.startswith("4,096, and many machines need 65,535")) == ("fail", True)
    assert (pinned.level, pinned.text.startswith("4 KiB, and EFA pins")) == ("fail", True)
    monkeypatch.setattr(host.resource, "getrlimit", lambda which: (1024, unlimited))
    assert [one.level for one in host.limits(patient(tmp_path))] == ["ok", "ok"]


def test_room_where_graphs_and_runs_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    usage = type("usage", (), {"free": 3 * 10**9})
    monkeypatch.setattr(host.shutil, "disk_usage", lambda place: usage)
    monkeypatch.setattr(host, "shared_file_system", lambda path: "nfs4")
    cache = {"NEURON_CC_FLAGS": "--cache_dir=/a/b"}
    found = {one.subject: one for one in host.room(patient(tmp_path, environ=cache))}
    assert found["compile cache"].text.startswith(
        "/a/b: 3.0 GB free, on a file system that machines share (nfs4)"
    )
    assert found["compile cache"].level == found["runs"].level == "note"
    far = {"NEURON_COMPILE_CACHE_URL": "s3://bucket/x"}
    assert [one.subject for one in host.room(patient(tmp_path, environ=far))] == ["runs"]


CHRONY = """\
Reference ID    : A9FEA97B (169.254.169.123)
Stratum         : 4
System time     : {offset} seconds slow of NTP time
Leap status     : {leap}
"""


@pytest.mark.parametrize(
    ("text", "level", "part"),
    [
        (CHRONY.format(offset="0.000012", leap="Normal"), "ok", "kept, 0.012 ms slow"),
        (CHRONY.format(offset="2.5", leap="Normal"), "note", "2.500 s slow: chronyc makestep"),
        (CHRONY.format(offset="0.0", leap="Not synchronised"), "note", "not synchronised"),
        ("506 Cannot talk to daemon", "note", "cannot be read"),
    ],
)
def test_the_clock_by_chrony(text: str, level: str, part: str):
    found = host.read_chrony(text)
    assert found[0] == level
    assert part in found[1]


def test_the_clock_by_timedatectl_or_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert host.read_timedatectl("yes\n") == ("ok", "kept")
    assert host.read_timedatectl("no")[0] == "note"
    monkeypatch.setattr(host, "ask", lambda *words, **more: tools.Answer(None, "not found"))
    assert rows(host.clock(patient(tmp_path))) == [("note", "clock")]


def test_the_port_of_the_runtimes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reserved, ephemeral = tmp_path / "reserved", tmp_path / "range"
    monkeypatch.setattr(network, "RESERVED", reserved)
    monkeypatch.setattr(network, "EPHEMERAL", ephemeral)
    assert rows(network.ports(patient(tmp_path))) == [("note", "reserved ports")]
    ephemeral.write_text("32768\t60999\n")
    reserved.write_text("\n")
    (found,) = network.ports(patient(tmp_path))
    assert "sudo sysctl -w net.ipv4.ip_local_reserved_ports=48620" in found.text
    reserved.write_text("44000,48600-48630\n")
    assert rows(network.ports(patient(tmp_path))) == [("ok", "reserved ports")]
    assert not network.in_ranges(48620, "44000,48621-48630")


def test_a_name_that_leads_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nodes with eight interfaces, or an address of the node that had the name before."""
    hosts = tmp_path / "hosts"
    monkeypatch.setattr(network, "HOSTS", hosts)
    monkeypatch.setattr(network.socket, "gethostname", lambda: "node-3")
    for line, level in (
        ("10.9.9.9 node-3", "fail"),
        ("127.0.1.1 node-3", "note"),
        ("# 10.9.9.9 node-3", "ok"),
    ):
        hosts.write_text(f"127.0.0.1 localhost\n{line}\n")
        assert rows(network.names(patient(tmp_path))) == [(level, "host name")]


def test_interfaces_of_efa(bare: Path):
    (bare / "infiniband").mkdir()
    for number in range(8):
        (bare / "infiniband" / f"rdmap{number}s0").touch()
    (found,) = network.efa(patient(bare))
    assert (found.level, "8 interfaces; fi_info not found" in found.text) == ("note", True)
    (bare / "infiniband" / "rdmap7s0").unlink()
    (found,) = network.efa(patient(bare))
    assert (found.level, found.text.startswith("7 of 8 interfaces")) == ("fail", True)


def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path))
    monkeypatch.setattr(environment, "_MOUNTS", tmp_path / "none")
    assert main(["doctor", "--target", "trn1.32xlarge", "--precision", "bf16", "--json"]) == 0
    found = {one["subject"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["NEURON_RT_STOCHASTIC_ROUNDING_EN"]["text"].startswith("0: ")
    assert found["NEURON_RT_STOCHASTIC_ROUNDING_EN"]["source"]
    assert main(["doctor", "--precision", "bf16"]) == 2
    assert "--precision is of a target" in capsys.readouterr().err
    monkeypatch.setenv("XLA_USE_BF16", "1")
    assert main(["doctor", "--target", "trn1.32xlarge"]) == 1
    assert "fail  XLA_USE_BF16" in capsys.readouterr().out
