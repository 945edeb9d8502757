"""`kitae cluster quota`: an account in moto, with answers for what moto does not know."""

from __future__ import annotations

import json

import pytest
from cluster_case import NOW, loaded, write_cluster

from kitae.cli.main import main
from kitae.cluster.account_check import Question, ask
from kitae.cluster.aws import Account
from kitae.cluster.permissions import source_arn
from kitae.cluster.quotas import needs

TRN, STANDARD = "L-2C3B7624", "L-1216C47A"


def product(usd: str) -> str:
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": usd}}
    return json.dumps({"terms": {"OnDemand": {"a": {"priceDimensions": {"b": dimension}}}}})


def allow(moto, code: str, value: float) -> None:
    moto.answer("servicequotas:GetServiceQuota", {"Quota": {"QuotaCode": code, "Value": value}}, code)


@pytest.fixture
def ready(moto):
    """An account that can have the cluster."""
    for code in (TRN, STANDARD):
        allow(moto, code, 1000)
    for code in ("L-F678F1CE", "L-0263D0A3"):
        allow(moto, code, 5)
    moto.answer("servicequotas:ListRequestedServiceQuotaChangeHistoryByQuota", {"RequestedQuotas": []})
    moto.answer("pricing:GetProducts", {"PriceList": [product("21.50")]}, "trn1.32xlarge")
    moto.answer("pricing:GetProducts", {"PriceList": [product("0.68"), product("0")]}, "c5.4xlarge")
    Account("us-west-2").client("ec2").create_key_pair(KeyName="my-key")
    return moto


def answers(tmp_path, *changes: str, request: bool = False) -> dict[str, list[tuple[str, str]]]:
    """Verdicts and texts by check."""
    file = loaded(tmp_path, *changes).file
    found: dict[str, list[tuple[str, str]]] = {}
    for name, answer in ask(Question(Account(file.region), file, NOW, request)):
        found.setdefault(name, []).append((answer.verdict, answer.text))
    return found


def test_an_account_that_can_have_it(ready, tmp_path):
    found = answers(tmp_path)
    wrong = [(name, one) for name, several in found.items() for one in several if one[0] == "wrong"]
    assert wrong == []
    assert found["identity"] == [
        ("ok", "arn:aws:sts::123456789012:user/moto in account 123456789012, region us-west-2")
    ]
    assert ("ok", "starting trn1.32xlarge is allowed") in found["permissions"]
    assert ("ok", "trn1.32xlarge is offered in us-west-2d (usw2-az4)") in found["zones"]


def test_nothing_is_made_and_nothing_that_bills_is_asked_for(ready, tmp_path):
    answers(tmp_path)
    ec2 = Account("us-west-2").client("ec2")
    assert ec2.describe_instances()["Reservations"] == []
    assert [one for one in ec2.describe_vpcs()["Vpcs"] if not one["IsDefault"]] == []
    made = [
        call
        for call in ready.calls()
        if ":Create" in call and not call.endswith(("CreateVpc", "CreateKeyPair"))
    ]
    assert made == []
    assert "servicequotas:RequestServiceQuotaIncrease" not in ready.calls()


def test_needs_are_added_up_by_quota(tmp_path):
    file = loaded(tmp_path, "queues.0.capacity.kind=spot").file
    assert {one.quota.code: one.amount for one in needs(file)} == {
        STANDARD: 16,
        "L-6B0D517C": 4 * 128,
        "L-F678F1CE": 1,
        "L-0263D0A3": 1,
    }
    block = "queues.0.capacity={kind: capacity-block, id: cr-01234567, ends: 2026-12-24T11:30Z}"
    assert TRN not in {one.quota.code for one in needs(loaded(tmp_path, block, "queues.0.min=4").file)}


def test_a_quota_that_is_too_small_is_told_with_the_request_to_file(ready, tmp_path):
    allow(ready, TRN, 256)
    verdict, text = answers(tmp_path)["quotas"][1]
    assert verdict == "wrong"
    assert "needs 512, and of 256 0 are in use" in text
    assert f"--quota-code {TRN} --desired-value 512" in text


def test_request_files_it(ready, tmp_path):
    allow(ready, TRN, 0)
    ready.answer("servicequotas:RequestServiceQuotaIncrease", {"RequestedQuota": {"Id": "1"}})
    verdict, text = answers(tmp_path, request=True)["quotas"][1]
    assert verdict == "wrong"
    assert "512 are asked for now" in text
    assert ready.calls().count("servicequotas:RequestServiceQuotaIncrease") == 1


def test_what_was_asked_for_is_not_asked_for_again(ready, tmp_path):
    allow(ready, TRN, 0)
    pending = {"RequestedQuotas": [{"Status": "CASE_OPENED", "DesiredValue": 640.0}]}
    ready.answer("servicequotas:ListRequestedServiceQuotaChangeHistoryByQuota", pending, TRN)
    verdict, text = answers(tmp_path, request=True)["quotas"][1]
    assert (verdict, "640 were asked for and are not granted yet" in text) == ("wrong", True)
    assert "servicequotas:RequestServiceQuotaIncrease" not in ready.calls()


def test_machines_that_run_already_count(ready, tmp_path):
    ec2 = Account("us-west-2").client("ec2")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    ec2.run_instances(ImageId=image, InstanceType="trn1.32xlarge", MinCount=1, MaxCount=1)
    allow(ready, TRN, 512)
    verdict, text = answers(tmp_path)["quotas"][1]
    assert verdict == "wrong"
    assert "of 512 128 are in use" in text
    assert "--desired-value 640" in text


def test_a_zone_without_the_type_names_those_that_have_it(ready, tmp_path):
    found = answers(tmp_path, "zone=us-west-2a")["zones"]
    assert (
        "wrong",
        "trn1.32xlarge is not offered in us-west-2a; it is in us-west-2b (usw2-az1), us-west-2d (usw2-az4)",
    ) in found


def test_a_zone_that_the_account_lacks(ready, tmp_path):
    assert answers(tmp_path, "zone=us-west-2z")["zones"] == [
        ("wrong", "this account has no zone us-west-2z in us-west-2")
    ]


def test_a_stack_of_the_same_name_stands_in_the_way(ready, tmp_path):
    """Row 41: a zombie stack blocks the name."""
    body = json.dumps({"Resources": {"T": {"Type": "AWS::SNS::Topic"}}})
    Account("us-west-2").client("cloudformation").create_stack(StackName="llama", TemplateBody=body)
    [(verdict, text)] = answers(tmp_path)["names"]
    assert verdict == "wrong"
    assert "a stack llama is there already (CREATE_COMPLETE); kitae cluster down" in text


def test_prices_of_today_are_compared(ready, tmp_path):
    ready.answer("pricing:GetProducts", {"PriceList": [product("25.00")]}, "trn1.32xlarge")
    ready.answer("pricing:GetProducts", {"PriceList": []}, "c5.4xlarge")
    head, node = answers(tmp_path)["prices"]
    assert head == ("unknown", "c5.4xlarge: AWS names no price on demand in us-west-2")
    assert node[0] == "wrong"
    assert "planned with $21.50; write prices: {trn1.32xlarge: 25.00}" in node[1]


def test_a_key_pair_that_is_not_there(ready, tmp_path):
    [(verdict, text)] = answers(tmp_path, "head.ssh_key=mykey")["given"]
    assert (verdict, "there are my-key" in text) == ("wrong", True)


def given_subnets(inside: bool) -> tuple[str, ...]:
    ec2 = Account("us-west-2").client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    zones = ("us-west-2d", "us-west-2d" if inside else "us-west-2b")
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{n}.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for n, zone in enumerate(zones)
    ]
    group = ec2.create_security_group(GroupName="g", Description="d", VpcId=vpc)["GroupId"]
    return (
        f"network.public_subnet={subnets[0]}",
        f"network.private_subnet={subnets[1]}",
        f"network.security_groups=[{group}]",
        "network.security_group_self_rule=true",
    )


def test_given_subnets_in_two_zones_without_a_way_out_or_a_self_rule(ready, tmp_path):
    """Row 19, where the file cannot tell: the account does."""
    texts = [
        text
        for verdict, text in answers(tmp_path, *given_subnets(inside=False))["given"]
        if verdict == "wrong"
    ]
    assert any("is in us-west-2b, and all has to be in us-west-2d" in text for text in texts)
    assert any("has no way out" in text for text in texts)
    assert any(
        "does not allow all traffic from itself" in text or "from and to itself" in text for text in texts
    )


def test_a_reservation_that_is_not_there(ready, tmp_path):
    found = answers(tmp_path, "queues.0.capacity={kind: reservation, id: cr-0123456789abcdef0}")["given"]
    assert found[-1][0] == "wrong"
    assert "cr-0123456789abcdef0 of queue train" in found[-1][1]


RESERVATION = """<DescribeCapacityReservationsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
<capacityReservationSet><item><capacityReservationId>cr-0123456789abcdef0</capacityReservationId>
<state>active</state><instanceType>{kind}</instanceType><availabilityZone>us-west-2d</availabilityZone>
<availableInstanceCount>{free}</availableInstanceCount></item></capacityReservationSet>
</DescribeCapacityReservationsResponse>"""


@pytest.mark.parametrize(
    ("kind", "free", "verdict", "words"),
    [
        ("trn1.32xlarge", 4, "ok", "is active"),
        ("trn1.32xlarge", 3, "wrong", "3 are free"),
        ("trn1n.32xlarge", 4, "wrong", "it is of trn1n.32xlarge"),
    ],
)
def test_reservations(kind, free, verdict, words, ready, tmp_path):
    """Row 16: reservations are there, of the type, in the zone, and large enough."""
    ready.answer("ec2:DescribeCapacityReservations", RESERVATION.format(kind=kind, free=free))
    found = answers(tmp_path, "queues.0.capacity={kind: reservation, id: cr-0123456789abcdef0}")["given"][-1]
    assert found[0] == verdict
    assert words in found[1]


def test_a_session_of_a_role_is_simulated_as_the_role():
    arn = "arn:aws:sts::123456789012:assumed-role/Research/me@host"
    assert source_arn(arn) == "arn:aws:iam::123456789012:role/Research"
    assert source_arn("arn:aws:iam::123456789012:user/me") == "arn:aws:iam::123456789012:user/me"


def test_the_verb_prints_each_answer_and_fails_where_one_is_wrong(ready, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KITAE_CACHE", str(tmp_path / "cache"))
    path = str(write_cluster(tmp_path))
    assert main(["cluster", "quota", path]) == 0
    assert "ok       zones        trn1.32xlarge is offered in us-west-2d" in capsys.readouterr().out
    allow(ready, TRN, 0)
    assert main(["cluster", "quota", path, "--json"]) == 8
    said = capsys.readouterr()
    assert "the account cannot have this cluster yet" in said.err
    assert {json.loads(line)["verdict"] for line in said.out.splitlines()} >= {"ok", "wrong"}
