"""The network: what its template says, and made and deleted for real in moto."""

from __future__ import annotations

import pytest
from cluster_case import loaded

from kitae.cluster.aws import Account
from kitae.cluster.network import halves, network_template
from kitae.cluster.stacks import Stack, delete_stack, find_stack, make_stack

NAME = "kitae-llama-network"


def quiet(text: str) -> None:
    pass


@pytest.fixture
def account(moto) -> Account:
    return Account("us-west-2")


@pytest.fixture
def made(account, tmp_path):
    template = network_template(loaded(tmp_path).file)
    return make_stack(account, NAME, template, {"kitae:cluster": "llama"}, quiet, {"Zone": "us-west-2d"})


def test_halves_of_the_addresses():
    assert halves("10.60.0.0/16") == ("10.60.0.0/17", "10.60.128.0/17")


def test_everything_is_in_one_zone_and_the_machines_have_a_way_out(account, made):
    ec2 = account.client("ec2")
    ids = [made.outputs["PublicSubnet"], made.outputs["PrivateSubnet"]]
    public, private = sorted(ec2.describe_subnets(SubnetIds=ids)["Subnets"], key=lambda one: one["CidrBlock"])
    assert {public["AvailabilityZone"], private["AvailabilityZone"]} == {"us-west-2d"}
    routes = [route for one in ec2.describe_route_tables()["RouteTables"] for route in one["Routes"]]
    [nat] = ec2.describe_nat_gateways()["NatGateways"]
    assert nat["SubnetId"] == public["SubnetId"]
    assert any(route.get("NatGatewayId") == nat["NatGatewayId"] for route in routes)
    assert any(route.get("GatewayId", "").startswith("igw-") for route in routes)
    [endpoint] = ec2.describe_vpc_endpoints()["VpcEndpoints"]
    assert endpoint["ServiceName"] == "com.amazonaws.us-west-2.s3"
    assert len(endpoint["RouteTableIds"]) == 2


def test_machines_reach_each_other_by_every_protocol_both_ways(account, made):
    """The self rule that EFA needs, in and out; see row 19 of the cases."""
    group = made.outputs["NodesGroup"]
    [found] = account.client("ec2").describe_security_groups(GroupIds=[group])["SecurityGroups"]
    for way in ("IpPermissions", "IpPermissionsEgress"):
        own = [
            rule
            for rule in found[way]
            if rule["IpProtocol"] == "-1" and group in [pair["GroupId"] for pair in rule["UserIdGroupPairs"]]
        ]
        assert own, way
    assert not [rule for rule in found["IpPermissions"] if rule["IpRanges"]]


def test_only_named_addresses_come_in_by_ssh(account, made):
    [found] = account.client("ec2").describe_security_groups(GroupIds=[made.outputs["SshGroup"]])[
        "SecurityGroups"
    ]
    [rule] = found["IpPermissions"]
    assert (rule["FromPort"], rule["ToPort"]) == (22, 22)
    assert [one["CidrIp"] for one in rule["IpRanges"]] == ["203.0.113.7/32"]


def test_nothing_of_it_is_left_when_it_is_deleted(account, made):
    delete_stack(account, NAME, quiet)
    ec2 = account.client("ec2")
    assert find_stack(account, NAME) is None
    assert [vpc for vpc in ec2.describe_vpcs()["Vpcs"] if not vpc["IsDefault"]] == []
    assert [one for one in ec2.describe_nat_gateways()["NatGateways"] if one["State"] != "deleted"] == []
    assert ec2.describe_addresses()["Addresses"] == []
    assert ec2.describe_vpc_endpoints()["VpcEndpoints"] == []
    assert [
        one for one in ec2.describe_internet_gateways()["InternetGateways"] if not one["Attachments"]
    ] == []


def test_made_twice_it_is_made_once(account, made, moto, tmp_path):
    again = make_stack(
        account, NAME, network_template(loaded(tmp_path).file), {}, quiet, {"Zone": "us-west-2d"}
    )
    assert again == made
    assert moto.calls().count("cloudformation:CreateStack") == 1


def test_deleting_what_is_not_there_is_nothing(account, moto):
    delete_stack(account, NAME, quiet)
    assert "cloudformation:DeleteStack" not in moto.calls()


def test_a_delete_that_is_refused_once_is_done_again(account, made, moto):
    """T53: the first attempt fails."""
    moto.refuse("cloudformation:DeleteStack", 1)
    said: list[str] = []
    delete_stack(account, NAME, said.append)
    assert find_stack(account, NAME) is None
    assert said[-1].endswith("attempt 2 of 3")


def test_the_private_subnet_goes_out_by_the_gateway_in_the_public_one(tmp_path):
    resources = network_template(loaded(tmp_path).file)["Resources"]
    assert resources["Nat"]["Properties"]["SubnetId"] == {"Ref": "PublicSubnet"}
    assert resources["PrivateOut"]["Properties"]["NatGatewayId"] == {"Ref": "Nat"}
    assert resources["PublicOut"]["Properties"]["GatewayId"] == {"Ref": "Gateway"}


def test_only_the_public_subnet_gives_public_addresses(tmp_path):
    resources = network_template(loaded(tmp_path).file)["Resources"]
    assert resources["PublicSubnet"]["Properties"]["MapPublicIpOnLaunch"] is True
    assert "MapPublicIpOnLaunch" not in resources["PrivateSubnet"]["Properties"]
    for side in ("Public", "Private"):
        association = resources[f"{side}Association"]["Properties"]
        assert association == {"SubnetId": {"Ref": f"{side}Subnet"}, "RouteTableId": {"Ref": f"{side}Routes"}}


def test_everything_carries_the_clusters_tag(tmp_path):
    resources = network_template(loaded(tmp_path, "tags={team: x}").file)["Resources"]
    tagged = {
        name: one["Properties"]["Tags"] for name, one in resources.items() if "Tags" in one["Properties"]
    }
    assert {"Vpc", "NatAddress", "Nat", "PublicSubnet", "PrivateSubnet", "NodesGroup"} <= set(tagged)
    for tags in tagged.values():
        assert {"Key": "kitae:cluster", "Value": "llama"} in tags
        assert {"Key": "team", "Value": "x"} in tags


def test_what_is_being_deleted_is_waited_for_and_made_anew(account, made, moto, tmp_path, monkeypatch):
    states = iter(["DELETE_IN_PROGRESS"])
    real = find_stack

    def first_going(where, name):
        state = next(states, None)
        return Stack(name, state, {}) if state is not None else real(where, name)

    monkeypatch.setattr("kitae.cluster.stacks.find_stack", first_going)
    said: list[str] = []
    template = network_template(loaded(tmp_path).file)
    again = make_stack(account, NAME, template, {}, said.append, {"Zone": "us-west-2d"})
    assert said[0].endswith("(DELETE_IN_PROGRESS) goes first")
    assert again.outputs["Vpc"] != made.outputs["Vpc"]
