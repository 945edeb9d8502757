"""Variables by stack and type of machine, and that ranks get them."""

from __future__ import annotations

import json
import socket
from contextlib import nullcontext
from pathlib import Path

import pytest

from kitae.backend import stack as stacks
from kitae.backend.stack import compile_cache, stack_here, stack_of
from kitae.catalog.environment import CONDITIONS, STACKS, refused, variables
from kitae.errors import RecipeError
from kitae.launch import environment
from kitae.launch.environment import (
    Surroundings,
    check_ranks,
    refusals,
    settings_of,
    shared_file_system,
    surrounded,
    unfit_cache,
)
from kitae.launch.local import launch_ranks
from kitae.launch.order import Launch

AT = Surroundings("10.0.0.7", "eth0", "queue1-st-trn1-2")


def values(stack: str, instance: str, at: Surroundings = AT) -> dict[str, str]:
    return {one.name: one.value for one in settings_of(stack, instance, at)}


def on(precision: str) -> Surroundings:
    return Surroundings("10.0.0.7", "eth0", "queue1-st-trn1-2", precision=precision)


def test_every_row_has_a_reason_a_source_and_a_place():
    for row in (*variables(), *refused()):
        assert row.why
        assert row.source
        assert row.stacks
        assert set(row.stacks) <= set(STACKS)
        assert set(row.needs) <= {*CONDITIONS, "fp32", "bf16", "bf16-sr", "autocast"}


@pytest.mark.parametrize(
    ("stack", "instance"),
    [("trn1-xla", "trn1.32xlarge"), ("trn1-xla", "trn1n.32xlarge"), ("torchneuron", "trn2.48xlarge")],
)
def test_trainium_over_efa(stack: str, instance: str):
    """The values of the vendor's Llama and BERT-Large scripts."""
    found = values(stack, instance)
    assert found["FI_PROVIDER"] == "efa"
    assert found["FI_EFA_USE_DEVICE_RDMA"] == found["FI_EFA_FORK_SAFE"] == "1"
    assert found["NEURON_RT_EXEC_TIMEOUT"] == "600"
    assert found["MALLOC_ARENA_MAX"] == "64"
    assert found["NEURON_RT_ROOT_COMM_ID"] == "10.0.0.7:48620"
    assert found["CCOM_SOCKET_IFNAME"] == found["GLOO_SOCKET_IFNAME"] == "eth0"


def test_what_only_torch_xla_on_the_chip_needs():
    found, native = values("trn1-xla", "trn1.32xlarge"), values("torchneuron", "trn2.48xlarge")
    only = {name: value for name, value in found.items() if name not in native}
    assert only == {
        "PJRT_DEVICE": "NEURON",
        "NEURON_CC_FLAGS": "--model-type=transformer --auto-cast=none",
        "NEURON_FUSE_SOFTMAX": "1",
        "NEURON_COMPILE_CACHE_URL": "/var/tmp/kitae-compile-cache/queue1-st-trn1-2",
        "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS": "3",
    }
    assert [name for name in native if name not in found] == ["TORCH_NEURONX_NEFF_CACHE_DIR"]


@pytest.mark.parametrize("stack", ["trn1-xla", "torchneuron"])
def test_the_chip_rounds_by_chance_for_bf16_sr_alone(stack: str):
    """Pain 9: without masters, small updates need it; with masters it would blur what is cast down."""
    for precision, expected in {"bf16-sr": "1", "bf16": "0", "fp32": "0", "autocast": "0", "": "0"}.items():
        found = values(stack, "", on(precision))
        assert found["NEURON_RT_STOCHASTIC_ROUNDING_EN"] == expected


def test_failed_graphs_are_never_compiled_again_silently():
    assert all("--retry_failed_compilation" not in row.value for row in variables())


def test_nothing_sets_what_turns_fp32_into_bf16():
    names = {row.name for row in variables()}
    assert not names & {"XLA_USE_BF16", "XLA_DOWNCAST_BF16"}


def test_the_compile_cache_is_each_hosts_own():
    one = values("trn1-xla", "trn1.32xlarge")["NEURON_COMPILE_CACHE_URL"]
    other = values("trn1-xla", "", Surroundings("10.0.0.7", "eth0", "queue1-st-trn1-3"))
    assert one.endswith("/queue1-st-trn1-2")
    assert one != other["NEURON_COMPILE_CACHE_URL"]
    assert Path(one).is_relative_to("/var/tmp")


def test_efa_only_where_the_type_has_it():
    """Pain 19: small instances have none, and asking for it hangs them."""
    assert "FI_PROVIDER" not in values("trn1-xla", "trn1.2xlarge")
    assert "NEURON_COMPILE_CACHE_URL" in values("trn1-xla", "trn1.2xlarge")
    assert "FI_PROVIDER" not in values("cuda", "g5.xlarge")
    assert values("cuda", "p5.48xlarge")["NCCL_SOCKET_IFNAME"] == "eth0"
    assert values("cuda", "p5.48xlarge")["FI_PROVIDER"] == "efa"


def test_any_other_machine_gets_its_interface_alone():
    assert values("cpu", "") == values("cpu", "Standard PC") == {"GLOO_SOCKET_IFNAME": "eth0"}
    assert values("cpu", "", Surroundings("10.0.0.7", "", "h")) == {}
    assert values("xla-cpu", "", Surroundings("", "", "h", several=False)) == {"PJRT_DEVICE": "CPU"}


def test_one_machine_has_no_meeting_of_runtimes():
    alone = values("trn1-xla", "trn1.32xlarge", Surroundings("127.0.0.1", "", "h", several=False))
    assert not {"NEURON_RT_ROOT_COMM_ID", "CCOM_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} & set(alone)


@pytest.mark.parametrize(
    ("backend", "instance", "stack"),
    [
        ("xla", "trn1.32xlarge", "trn1-xla"),
        ("xla", "trn2.48xlarge", "trn1-xla"),
        ("xla", "", "xla-cpu"),
        ("xla", "m6i.4xlarge", "xla-cpu"),
        ("neuron", "trn2.48xlarge", "torchneuron"),
        ("cuda", "", "cuda"),
        ("cpu", "trn1.32xlarge", "cpu"),
    ],
)
def test_the_stack_of_a_backend(backend: str, instance: str, stack: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stacks, "_NEURON_DEVICE", Path("/nowhere/neuron0"))
    assert stack_of(backend, instance) == stack


def test_a_chip_that_the_driver_shows_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "neuron0").touch()
    monkeypatch.setattr(stacks, "_NEURON_DEVICE", tmp_path / "neuron0")
    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    assert stack_of("xla") == stack_here("xla") == "trn1-xla"
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    assert stack_here("xla") == "xla-cpu", "asked to compute on the processor of such a machine"


@pytest.mark.parametrize("name", ["XLA_USE_BF16", "XLA_DOWNCAST_BF16"])
def test_downcasting_behind_the_recipe_is_refused(name: str):
    (found,) = refusals("trn1-xla", "bf16", {name: "1"})
    assert found.name == name
    assert "training.precision" in found.why
    assert refusals("trn1-xla", "bf16", {name: "0"}) == []
    assert refusals("cpu", "bf16", {name: "1"}) == []


def test_rounding_off_by_hand_is_refused_where_updates_would_be_lost():
    off = {"NEURON_RT_STOCHASTIC_ROUNDING_EN": "0"}
    assert [one.name for one in refusals("trn1-xla", "bf16-sr", off)] == ["NEURON_RT_STOCHASTIC_ROUNDING_EN"]
    assert refusals("trn1-xla", "bf16", off) == []
    assert refusals("trn1-xla", "bf16-sr", {"NEURON_RT_STOCHASTIC_ROUNDING_EN": "1"}) == []


def test_where_the_compilers_cache_lies():
    url = {"NEURON_COMPILE_CACHE_URL": "/var/tmp/a"}
    assert compile_cache(url) == "/var/tmp/a"
    assert compile_cache({**url, "NEURON_CC_FLAGS": "-O1 --cache_dir=$HOME/b"}) == "$HOME/b"
    assert compile_cache({**url, "NEURON_CC_FLAGS": "--cache_dir /c 'open"}) == "/c"
    assert compile_cache({}) is None


MOUNTS = """\
overlay / overlay rw 0 0
10.0.0.1:/home /home nfs4 rw 0 0
fs-1.fsx:/abc /fsx lustre rw 0 0
127.0.0.1:/ /my\\040efs nfs4 rw 0 0
tmpfs /home/me/fast tmpfs rw 0 0
s3fs /bucket fuse.s3fs rw 0 0
"""


def test_file_systems_that_machines_share(tmp_path: Path):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    kinds = {
        path: shared_file_system(Path(path), mounts)
        for path in ("/var/tmp/x", "/home/me/cache", "/fsx/c", "/my efs/c", "/home/me/fast/c", "/bucket/c")
    }
    assert list(kinds.values()) == [None, "nfs4", "lustre", "nfs4", None, "fuse.s3fs"]
    assert shared_file_system(Path("/home"), tmp_path / "none") is None


def test_a_cache_that_machines_share_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its locks break on NFS; a folder with the host's name in it is one machine's own, S3 has no locks."""
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(environment, "_MOUNTS", mounts)
    assert "nfs4" in (unfit_cache("/home/me/cache", "node-3") or "")
    assert unfit_cache("/home/me/cache/node-3", "node-3") is None
    assert unfit_cache("s3://bucket/cache", "node-3") is None
    assert unfit_cache("/var/tmp/cache", "node-3") is None
    assert [one.name for one in refusals("trn1-xla", "bf16", {"NEURON_COMPILE_CACHE_URL": "/fsx/c"})] == [
        "compile cache"
    ]
    assert refusals("torchneuron", "bf16", {"NEURON_COMPILE_CACHE_URL": "/fsx/c"}) == []


def launch(folder: Path, precision: str) -> Launch:
    return Launch(2, 1, "cpu", 60.0, folder / "logs", precision=precision)


def test_ranks_get_what_the_table_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On a machine whose firmware says trn1.32xlarge; the ranks themselves compute on its processor."""
    product = tmp_path / "product_name"
    product.write_text("trn1.32xlarge\n")
    monkeypatch.setattr(stacks, "_PRODUCT", product)
    monkeypatch.setattr(environment, "stack_here", lambda backend: "trn1-xla")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "7")
    launch_ranks("rank_works:environment", {"folder": str(tmp_path)}, launch(tmp_path, "bf16-sr"))
    at = Surroundings("127.0.0.1", "", socket.gethostname(), several=False, precision="bf16-sr")
    expected = values("trn1-xla", "trn1.32xlarge", at)
    assert len(expected) >= 10
    for rank in range(2):
        got = json.loads((tmp_path / f"environment-{rank}.json").read_text())
        assert {name: got.get(name) for name in expected} == {**expected, "MALLOC_ARENA_MAX": "7"}
    assert "FI_PROVIDER" not in environment.os.environ, "this process keeps none of it"


def test_ranks_do_not_start_with_what_must_not_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "stack_here", lambda backend: "trn1-xla")
    monkeypatch.setenv("XLA_DOWNCAST_BF16", "1")
    with pytest.raises(RecipeError, match="XLA_DOWNCAST_BF16=1 must not be set"):
        launch_ranks("rank_works:environment", {"folder": str(tmp_path)}, launch(tmp_path, "bf16"))


@pytest.mark.parametrize(
    ("ranks", "several", "fits"),
    [
        (32, False, True),
        (8, False, True),
        (24, False, False),
        (3, False, False),
        (8, True, False),
        (32, True, True),
    ],
)
def test_how_many_ranks_a_trn1_takes(ranks, several, fits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Pain T58: tp3 and tp24 hang in the first collective; several machines use all of their cores."""
    product = tmp_path / "product_name"
    product.write_text("trn1.32xlarge\n")
    monkeypatch.setattr(stacks, "_PRODUCT", product)
    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    with nullcontext() if fits else pytest.raises(RecipeError, match=f"{ranks} processes on a trn1"):
        check_ranks("xla", ranks, several)
    check_ranks("cpu", ranks, several)


def test_ranks_that_cannot_train_together_are_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "product_name").write_text("trn1.2xlarge\n")
    monkeypatch.setattr(stacks, "_PRODUCT", tmp_path / "product_name")
    monkeypatch.setattr(environment, "stack_here", lambda backend: "trn1-xla")
    with pytest.raises(RecipeError, match=r"3 processes on a trn1\.2xlarge .* take 1, 2; change"):
        launch_ranks("rank_works:add", {}, Launch(3, 1, "cpu", 60.0, tmp_path / "logs"))


def test_a_processor_gets_nothing(monkeypatch: pytest.MonkeyPatch):
    before = dict(environment.os.environ)
    with surrounded("cpu", "fp32"):
        assert dict(environment.os.environ) == before
