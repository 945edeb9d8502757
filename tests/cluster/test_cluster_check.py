"""Wrong cluster files: each is refused by the rule of that name, with its place and the way out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cluster_case import GOOD, NOW, loaded, write_cluster

from kitae.cluster.check import RULES, check, line_of, refuse_errors
from kitae.cluster.load import load_cluster
from kitae.errors import RecipeError

QUEUE = """\
  - name: train
    instance: trn1.32xlarge
    max: 4
"""
SMALL = """\
  - name: train
    instance: trn1.2xlarge
    max: 2
    efa: true
"""
GIVEN = """\
network:
  public_subnet: subnet-0123456789abcdef0
  private_subnet: subnet-0123456789abcdef1
  security_groups: [sg-0123456789abcdef0]
"""


def instead(old: str, new: str) -> str:
    """The good file with one piece of text replaced."""
    assert old in GOOD
    return GOOD.replace(old, new)


def of_queue(*lines: str) -> str:
    return instead(QUEUE, QUEUE + "".join(f"    {line}\n" for line in lines))


# The rule, the line that it points at, a word of the way out, and the file.
WRONG = {
    "small nodes with EFA": ("efa-type", 12, "efa: false", instead(QUEUE, SMALL)),
    "two small nodes": ("small-multi-node", 11, "max: 1", instead(QUEUE, SMALL)),
    "no self rule": (
        "security-group-self",
        16,
        "security_group_self_rule: true",
        instead("limits:\n", GIVEN + "limits:\n").replace("  allow_ssh_from: [203.0.113.7/32]\n", ""),
    ),
    "two zones": ("one-zone", 4, "keep one", instead("usw2-az4", "us-west-2a, us-west-2d")),
    "placement group in the wrong section": (
        "unknown-key",
        6,
        "queues[].placement_group",
        instead("head:\n", "head:\n  placement_group: true\n"),
    ),
    "type without its dot": ("instance-type", 10, "trn1.32xlarge", instead("trn1.32xlarge", "trn132xlarge")),
    "group of machines": (
        "instance-type",
        10,
        "trn2.48xlarge",
        instead("trn1.32xlarge", "trn2u.48xlarge-ultraserver"),
    ),
    "queue without accelerators": (
        "instance-type",
        10,
        "trn1.32xlarge",
        instead("trn1.32xlarge", "m6i.4xlarge"),
    ),
    "head with accelerators": (
        "head-instance",
        6,
        "c5.4xlarge",
        instead("head:\n", "head:\n  instance: g5.xlarge\n"),
    ),
    "region": ("region", 3, "us-west-2", instead("us-west-2", "us-wset-2")),
    "zone of another region": ("zone", 4, "usw2-az1", instead("usw2-az4", "use1-az4")),
    "zone without the type": ("type-in-zone", 4, "usw2-az1, usw2-az4", instead("usw2-az4", "usw2-az2")),
    "region without the type": (
        "type-in-zone",
        10,
        "us-east-2",
        instead("us-west-2\n", "us-west-1\n").replace("usw2-az4", "usw1-az1"),
    ),
    "EFA off": ("efa-off", 12, "take the line out", of_queue("efa: false")),
    "placement group of a block": (
        "placement",
        13,
        "take the line out",
        of_queue(
            "min: 4",
            "placement_group: true",
            "capacity: {kind: capacity-block, id: cr-0123456789abcdef0, ends: 2026-12-04T11:30Z}",
        ),
    ),
    "block without id": (
        "capacity-id",
        13,
        "id: cr-",
        of_queue("min: 4", "capacity: {kind: capacity-block, ends: 2026-12-04T11:30Z}"),
    ),
    "id without effect": (
        "capacity-id",
        12,
        "kind: reservation",
        of_queue("capacity: {id: cr-0123456789abcdef0}"),
    ),
    "block that is not always on": (
        "capacity-block-size",
        9,
        "min: 4",
        of_queue("capacity: {kind: capacity-block, id: cr-0123456789abcdef0, ends: 2026-12-04T11:30Z}"),
    ),
    "end after the block's": (
        "capacity-block-end",
        17,
        "earlier end",
        of_queue(
            "min: 4", "capacity: {kind: capacity-block, id: cr-0123456789abcdef0, ends: 2026-11-30T20:00Z}"
        ),
    ),
    "machines that are always on": ("static-idle", 12, "idle_stop: null", of_queue("min: 2")),
    "image of long ago": ("image", 5, "ubuntu2204", instead("head:\n", "image: {os: ubuntu2004}\nhead:\n")),
    "image without packages": (
        "image-bootstrap",
        5,
        "ubuntu2404",
        instead("head:\n", "image: {os: rocky9}\nhead:\n"),
    ),
    "SDK that does not train there": (
        "neuron-sdk",
        5,
        "write auto",
        instead("head:\n", "bootstrap: {neuron: 2.31.1}\nhead:\n"),
    ),
    "SDK that is not known": (
        "neuron-sdk",
        5,
        "2.28.1",
        instead("head:\n", "bootstrap: {neuron: 2.28.9}\nhead:\n"),
    ),
    "one subnet": (
        "subnets",
        5,
        "private_subnet",
        instead("head:\n", "network: {public_subnet: subnet-01234567}\nhead:\n"),
    ),
    "network of others": (
        "network-size",
        5,
        "10.60.0.0/16",
        instead("head:\n", "network: {cidr: 8.8.0.0/16}\nhead:\n"),
    ),
    "network too small": (
        "network-size",
        5,
        "wider",
        instead("head:\n", "network: {cidr: 10.60.0.0/24}\nhead:\n").replace("max: 4", "max: 120"),
    ),
    "open to everybody": ("ssh-open", 7, "open_to_everybody: true", instead("203.0.113.7/32", "0.0.0.0/0")),
    "two ranges for one group": (
        "ssh-open",
        7,
        "keep one",
        instead("203.0.113.7/32", "203.0.113.7/32, 203.0.113.8/32").replace(
            "limits:\n", GIVEN.replace("  security_groups: [sg-0123456789abcdef0]\n", "") + "limits:\n"
        ),
    ),
    "no such address": ("ssh-open", 7, "203.0.113.7/32", instead("203.0.113.7/32", "203.0.113.777/32")),
    "address without key": ("ssh-key", 6, "key pair", instead("  ssh_key: my-key\n", "")),
    "queues of one name": ("queue-names", 9, "its own name", instead(QUEUE, QUEUE + QUEUE)),
    "long name": (
        "cluster-name",
        2,
        "28",
        instead("name: llama", "name: a-name-that-is-far-too-long-for-it"),
    ),
    "size of FSx": ("fsx-size", 13, "2400", instead("1200\n", "2000\n")),
    "FSx without throughput": (
        "fsx-throughput",
        14,
        "throughput: 125",
        instead("1200\n", "1200\n  type: PERSISTENT_2\n"),
    ),
    "FSx over the system": ("fsx-mount", 14, "/fsx", instead("1200\n", "1200\n  mount: /home\n")),
    "FSx that exports elsewhere": (
        "fsx-s3",
        15,
        "import_from",
        instead("1200\n", "1200\n  import_from: s3://one-bucket/a\n  export_to: s3://other/b\n"),
    ),
    "script on the laptop": (
        "scripts",
        5,
        "s3://",
        instead("head:\n", "bootstrap: {head: [setup.sh]}\nhead:\n"),
    ),
    "saved from a node": (
        "save",
        5,
        "/home and /fsx",
        instead("head:\n", "save: [{from_folder: /tmp/x, to: 's3://results/x'}]\nhead:\n"),
    ),
    "end in the past": ("until", 15, "later end", instead("12 hours", "2026-11-30T11:59Z")),
    "end that is no time": ("until", 15, "12 hours", instead("12 hours", "tomorrow")),
    "price unknown": (
        "price-unknown",
        16,
        "prices: {trn2.48xlarge: ...}",
        instead("trn1.32xlarge", "trn2.48xlarge")
        .replace("us-west-2", "us-east-2")
        .replace("usw2-az4", "use2-az1"),
    ),
    "dearer than allowed": ("cost", 16, "$1,043", instead("1100", "1000")),
    "reserved tag": ("tags", 5, "rename", instead("head:\n", "tags: {'aws:x': y}\nhead:\n")),
    "misspelt key": ("unknown-key", 12, "queues.0.max", of_queue("mx: 3")),
    "key that is missing": ("missing-key", 9, "max", instead("    max: 4\n", "")),
    "text for a number": ("value", 11, "whole number", instead("max: 4", "max: four")),
}


def refused(text: str, folder) -> str:
    with pytest.raises(RecipeError) as error:
        check_all(write_cluster(folder, text))
    return str(error.value)


def check_all(path: Path) -> None:
    found = load_cluster(path)
    refuse_errors(found, check(found, NOW))


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_refused_by_its_rule_with_place_and_way_out(what, tmp_path):
    """T52 and rows 16, 19 and 41 of the cases."""
    rule, line, way_out, text = WRONG[what]
    message = refused(text, tmp_path)
    own = [one for one in message.splitlines() if f"[{rule}]" in one]
    assert own, message
    assert any(f"cluster.yaml:{line}: " in one and way_out in one for one in own), message


def test_the_good_file_is_right(tmp_path):
    found = loaded(tmp_path)
    findings = check(found, NOW)
    refuse_errors(found, findings)
    assert {one.rule for one in findings} == {"quota", "price-unknown", "price-region"}
    assert {one.level for one in findings} == {"note"}


def test_every_rule_that_can_refuse_has_a_wrong_file():
    tested = {rule for rule, *_ in WRONG.values()}
    only_told = {"all-or-nothing", "fsx-keep", "quota", "zones-unknown", "price-region"}
    assert set(RULES) - only_told <= tested
    assert only_told < set(RULES)


def test_several_things_are_told_at_once_in_the_order_of_lines(tmp_path):
    text = instead("usw2-az4", "use1-az4").replace("size_gb: 1200", "size_gb: 7").replace("12 hours", "x")
    lines = refused(text, tmp_path).splitlines()
    assert lines[0] == "3 things are wrong:"
    assert [int(re.search(r"yaml:(\d+)", line)[1]) for line in lines[1:]] == [4, 13, 15]


def test_vcpus_of_all_queues_of_a_family_are_added_up(tmp_path):
    more = (
        "  - {name: b, instance: trn1n.32xlarge, max: 1}\n"
        "  - {name: s, instance: trn1.2xlarge, max: 1, capacity: {kind: spot}}\n"
    )
    found = loaded(tmp_path, text=instead(QUEUE, QUEUE + more))
    said = [line_of(found, one) for one in check(found, NOW) if one.rule == "quota"]
    assert ["640 vCPU" in said[0], "L-2C3B7624" in said[0]] == [True, True]
    assert ["8 vCPU" in said[1], "L-6B0D517C" in said[1]] == [True, True]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("scaling=best-effort", "all-or-nothing"),
        ("fsx.at_down=keep", "fsx-keep"),
        ("limits.until=40 days", "until"),
        ("head.allow_ssh_from=[]", "ssh-key"),
        ("queues.0.placement_group=false", "placement"),
    ],
)
def test_what_is_allowed_but_unwise_is_a_warning(change, rule, tmp_path):
    found = loaded(tmp_path, change, "limits.max_cost_usd=100000")
    assert (rule, "warning") in {(one.rule, one.level) for one in check(found, NOW)}


def test_zone_names_are_left_to_the_account_but_for_their_region(tmp_path):
    found = loaded(tmp_path, "zone=us-west-2a")
    assert not [one for one in check(found, NOW) if one.level == "error"]


def test_what_stands_in_a_flag_is_told_by_the_flag(tmp_path):
    found = loaded(tmp_path, "fsx.size_gb=7")
    [finding] = [one for one in check(found, NOW) if one.rule == "fsx-size"]
    assert line_of(found, finding).startswith("--set fsx.size_gb=7: fsx.size_gb: 7 is no size")
