"""Variables by the type of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitae.launch import environment
from kitae.launch.environment import Surroundings, environment_of, instance_type

AT = Surroundings("10.0.0.7", "eth0", "queue1-st-trn1-2")


@pytest.mark.parametrize("instance", ["trn1.32xlarge", "trn1n.32xlarge", "trn2.48xlarge"])
def test_trainium_over_efa(instance: str):
    """The values of the vendor's Llama and BERT-Large scripts."""
    found = environment_of(instance, AT)
    assert found["FI_PROVIDER"] == "efa"
    assert found["FI_EFA_USE_DEVICE_RDMA"] == found["FI_EFA_FORK_SAFE"] == "1"
    assert found["NEURON_RT_EXEC_TIMEOUT"] == "600"
    assert found["NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS"] == "3"
    assert found["MALLOC_ARENA_MAX"] == "64"
    assert found["NEURON_RT_ROOT_COMM_ID"] == "10.0.0.7:48620"
    assert found["CCOM_SOCKET_IFNAME"] == found["GLOO_SOCKET_IFNAME"] == "eth0"


def test_the_compile_cache_is_each_hosts_own():
    one = environment_of("trn1.32xlarge", AT)["NEURON_COMPILE_CACHE_URL"]
    other = environment_of("trn1.32xlarge", Surroundings("10.0.0.7", "eth0", "queue1-st-trn1-3"))
    assert one.endswith("/queue1-st-trn1-2")
    assert one != other["NEURON_COMPILE_CACHE_URL"]
    assert Path(one).is_relative_to("/var/tmp")


def test_efa_only_where_the_type_has_it():
    """Pain 19: small instances have none, and asking for it hangs them."""
    assert "FI_PROVIDER" not in environment_of("trn1.2xlarge", AT)
    assert "NEURON_COMPILE_CACHE_URL" in environment_of("trn1.2xlarge", AT)
    assert "FI_PROVIDER" not in environment_of("g5.xlarge", AT)
    assert environment_of("p5.48xlarge", AT)["NCCL_SOCKET_IFNAME"] == "eth0"
    assert environment_of("p5.48xlarge", AT)["FI_PROVIDER"] == "efa"


def test_any_other_machine_gets_its_interface_alone():
    assert environment_of("", AT) == environment_of("Standard PC", AT) == {"GLOO_SOCKET_IFNAME": "eth0"}
    assert environment_of("", Surroundings("10.0.0.7", "", "h")) == {}


def test_the_type_is_read_from_the_firmware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    product = tmp_path / "product_name"
    product.write_text("trn1.32xlarge\n")
    monkeypatch.setattr(environment, "_PRODUCT", product)
    assert instance_type() == "trn1.32xlarge"
    product.unlink()
    assert instance_type() == ""
