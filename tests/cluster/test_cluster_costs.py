"""Money of a cluster by fixed clocks: so far, by day, what is left, and when it ends for it."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from cluster_case import GOOD, loaded, write_cluster

from kitae.cli.main import main
from kitae.cluster.aws import Account
from kitae.cluster.budget import Budget
from kitae.cluster.costs import Bill, bill, days_of
from kitae.cluster.kept import kept
from kitae.cluster.reckoning import as_json, lines, reckon
from kitae.cluster.spans import Span, spans_of
from kitae.cluster.stacks import find_stack

NOON = datetime(2026, 12, 1, 12, tzinfo=timezone.utc)
MINE = "llama"
PRICES = {"trn1.32xlarge": 21.5, "nat": 0.045, "fsx-scratch": 0.14}


def hours(number: float) -> timedelta:
    return timedelta(hours=number)


def span(item: str, begin: datetime, end: datetime | None = None, units: int = 1, **more: object) -> Span:
    return Span("thing", "x", item, Decimal(units), begin, end, **more)


def test_a_bill_is_the_sum_of_hours_times_prices():
    """Row 39: four machines for 20 minutes, storage by the month, a gateway, and what has no price."""
    machines = [span("trn1.32xlarge", NOON - hours(1), NOON - hours(2 / 3)) for _ in range(4)]
    found = bill(
        [
            *machines,
            span("fsx-scratch", NOON - hours(73), units=1200),
            span("nat", NOON - hours(10)),
            span("?", NOON),
        ],
        PRICES,
        NOON,
    )
    assert round(found.spent_usd, 4) == Decimal("28.6667") + Decimal("16.8") + Decimal("0.45")
    assert found.usd_an_hour == pytest.approx(Decimal("0.14") * 1200 / 730 + Decimal("0.045"))
    assert found.unknown == ("?",)
    assert found.since == NOON - hours(73)


def test_days_are_those_of_utc_and_add_up():
    begin = datetime(2026, 11, 30, 22, 30, tzinfo=timezone.utc)
    found = bill([span("trn1.32xlarge", begin, NOON)], PRICES, NOON)
    assert found.by_day == {
        date(2026, 11, 30): Decimal("32.25"),
        date(2026, 12, 1): Decimal("258"),
    }
    assert sum(found.by_day.values()) == found.spent_usd == Decimal("290.25")


def test_a_day_begins_at_midnight_of_utc_in_any_zone():
    tokyo = timezone(hours(9))
    found = list(days_of(datetime(2026, 12, 1, 8, tzinfo=tokyo), datetime(2026, 12, 1, 10, tzinfo=tokyo)))
    assert found == [(date(2026, 11, 30), Decimal(3600)), (date(2026, 12, 1), Decimal(3600))]


def test_machines_of_a_capacity_block_are_paid_otherwise():
    assert bill([span("trn1.32xlarge", NOON - hours(5), free=True)], PRICES, NOON).spent_usd == 0


@pytest.mark.parametrize(
    ("most", "spent", "full", "until"),
    [
        (100, 0, 10, NOON + hours(10)),
        (100, 60, 10, NOON + hours(4)),
        (1000, 0, 10, NOON + hours(12)),  # the time ends it first
        (100, 100, 10, NOON),
        (100, 150, 10, NOON),
        (100, 0, 0, NOON + hours(12)),  # nothing is ever spent
        (100, 0, 3, NOON + hours(12)),
    ],
)
def test_the_end_is_the_sooner_of_time_and_money(most, spent, full, until):
    found = Budget(Decimal(most), Decimal(spent), Decimal(full))
    assert found.end(NOON + hours(12), NOON) == until


def test_the_end_is_never_later_than_the_money_by_a_second():
    found = Budget(Decimal(100), Decimal(0), Decimal("86.96"))
    end = found.end(NOON + hours(12), NOON)
    assert found.cost_until(end, NOON) <= 100
    assert found.cost_until(end + timedelta(seconds=1), NOON) > 100


@pytest.fixture
def account(moto) -> Account:
    return Account("us-west-2")


@pytest.fixture
def made(engine, tmp_path, capsys) -> Path:
    path = write_cluster(
        tmp_path, GOOD.replace("limits:", "prices: {ebs-gp3: 0.08, public-ipv4: 0.005}\nlimits:")
    )
    assert main(["cluster", "up", str(path), "--yes"]) == 0
    capsys.readouterr()
    return path


def test_costs_of_a_cluster_come_from_what_the_account_says(made, account):
    """Head node, its disk and address, gateway and its address, storage: each from its own beginning."""
    found = spans_of(account, kept(account, MINE), datetime.now(timezone.utc))
    items = sorted((one.what, one.item) for one in found)
    assert items == [
        ("FSx for Lustre", "fsx-scratch"),
        ("NAT gateway", "nat"),
        ("address of NAT", "public-ipv4"),
        ("disk", "ebs-gp3"),
        ("head node", "c5.4xlarge"),
    ]
    now = max(one.begin for one in found) + hours(30)
    paid = bill(found, {"ebs-gp3": 0.08, "public-ipv4": 0.005}, now)
    disk = next(one.units for one in found if one.what == "disk")
    expected = (
        Decimal("0.68")
        + Decimal("0.045")
        + Decimal("0.005")
        + Decimal("0.08") * disk / 730
        + Decimal("0.14") * 1200 / 730
    )
    assert paid.usd_an_hour == pytest.approx(expected)
    assert paid.spent_usd == pytest.approx(expected * 30, abs=Decimal("0.02"))
    assert len(paid.by_day) == 2 + (now.hour < 6)


def put_logs(account: Account, machine: str, first: datetime, last: datetime, log: str = "slurmd") -> None:
    client, group = account.client("logs"), "/aws/parallelcluster/llama-202612011200"
    if not client.describe_log_groups(logGroupNamePrefix=group)["logGroups"]:
        client.create_log_group(logGroupName=group)
    stream = f"ip-10-60-128-5.{machine}.{log}"
    client.create_log_stream(logGroupName=group, logStreamName=stream)
    events = [{"timestamp": int(when.timestamp() * 1000), "message": "a line"} for when in (first, last)]
    client.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)


def test_machines_that_ec2_has_forgotten_are_known_by_their_logs(made, account):
    now = datetime.now(timezone.utc).replace(microsecond=0)
    put_logs(account, "i-0123456789abcdef0", now - hours(3), now - hours(1))
    put_logs(account, "i-0123456789abcdef0", now - hours(2.5), now - hours(0.5), "cloud-init")
    found = [one for one in spans_of(account, kept(account, MINE), now) if one.id == "i-0123456789abcdef0"]
    assert [(one.what, one.item, one.end - one.begin, one.note) for one in found] == [
        ("queue train", "trn1.32xlarge", hours(2.5), "by its logs"),
        ("root disk, gone", "ebs-gp3", hours(2.5), ""),
    ]
    assert found[1].units == 200
    assert bill(found[:1], {}, now).spent_usd == Decimal("53.75")


def test_of_several_queues_the_dearest_is_taken_and_said(account, moto, tmp_path):
    queues = "queues=[{name: a, instance: trn1.2xlarge, max: 1}, {name: b, instance: trn1.32xlarge, max: 2}]"
    file = loaded(tmp_path, queues).file
    put_logs(account, "i-0123456789abcdef0", NOW_ISH - hours(2), NOW_ISH)
    found = spans_of(account, file, NOW_ISH)
    assert (found[0].item, found[0].note) == ("trn1.32xlarge", "by its logs, as of the dearest queue")


NOW_ISH = datetime.now(timezone.utc).replace(microsecond=0)


def test_storage_that_an_update_deleted_is_known_by_the_events(made, account, moto):
    body = (
        "<DescribeStackEventsResponse><DescribeStackEventsResult><StackEvents>{}</StackEvents>"
        "</DescribeStackEventsResult></DescribeStackEventsResponse>"
    )
    props = json.dumps({"StorageCapacity": 2400, "LustreConfiguration": {"DeploymentType": "PERSISTENT_2"}})
    member = (
        "<member><StackId>s</StackId><EventId>{n}</EventId><StackName>llama</StackName><LogicalResourceId>FSX"
        "</LogicalResourceId><PhysicalResourceId>fs-gone</PhysicalResourceId><ResourceType>AWS::FSx::FileSystem"
        "</ResourceType><Timestamp>2026-12-01T{hour}:00:00Z</Timestamp><ResourceStatus>{status}</ResourceStatus>"
        "<ResourceProperties>{props}</ResourceProperties></member>"
    )
    told = [("08", "CREATE_IN_PROGRESS"), ("12", "DELETE_IN_PROGRESS"), ("13", "DELETE_COMPLETE")]
    rows = [
        member.format(n=n, hour=hour, status=status, props=props) for n, (hour, status) in enumerate(told)
    ]
    moto.answer("cloudformation:DescribeStackEvents", body.format("".join(rows)))
    [gone] = [one for one in spans_of(account, kept(account, MINE), NOON) if one.id == "fs-gone"]
    assert (gone.item, gone.units, gone.end - gone.begin) == ("fsx-persistent", 2400, hours(5))


def test_the_verb_tells_all_of_it(made, account, capsys):
    assert main(["cluster", "cost", str(made)]) == 0
    said = capsys.readouterr().out
    assert "llama in us-west-2, since 20" in said
    assert "head node: c5.4xlarge" in said
    assert "$1,100.00 are spent, $1,100.00 left" in said
    assert "with every queue full $87.0" in said
    assert "AWS ends it at 20" in said
    assert main(["cluster", "cost", MINE, "--region", "us-west-2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["budget_usd"] == "1100"
    assert {one["what"] for one in told["things"]} >= {"head node", "NAT gateway", "FSx for Lustre"}
    assert told["unknown"] == []


def test_what_is_printed_is_what_was_reckoned(made, account):
    now = datetime.now(timezone.utc) + hours(5)
    found = reckon(account, MINE, now)
    told, printed = as_json(found), list(lines(found))
    assert Decimal(told["spent_usd"]) == pytest.approx(5 * Decimal(told["usd_an_hour"]), rel=Decimal("0.01"))
    spent = f"${Decimal(told['spent_usd']):.2f} of $1,100.00 are spent"
    assert any(line.startswith(spent) for line in printed)
    assert sum(Decimal(usd) for usd in told["by_day"].values()) == pytest.approx(Decimal(told["spent_usd"]))


def extend(*words: str) -> int:
    return main(["cluster", "extend", MINE, "--region", "us-west-2", *words])


def schedule(account: Account) -> datetime:
    found: datetime = account.client("scheduler").get_schedule(Name="kitae-llama-switch")["StartDate"]
    return found


def test_the_end_can_be_sooner_and_later(made, account, capsys):
    first = schedule(account)
    assert extend("--until", "3 hours", "--yes") == 0
    sooner = schedule(account)
    assert abs((sooner - first + hours(9)).total_seconds()) < 60
    assert "less at most than until the old end" in capsys.readouterr().out
    assert extend("--until", "+2 hours", "--yes") == 0
    assert schedule(account) == sooner + hours(2)
    assert kept(account, MINE).limits.until == f"{sooner + hours(2):%Y-%m-%dT%H:%M:%SZ}"


def test_it_is_never_later_than_the_money_lasts_unless_more_is_given(made, account, capsys):
    now = datetime.now(timezone.utc)
    assert extend("--until", "+20 hours", "--yes") == 0
    said = capsys.readouterr()
    assert "the rest is used up" in said.out
    full = Decimal(json.loads(_json(capsys))["usd_an_hour_full"])
    assert (schedule(account) - now).total_seconds() / 3600 == pytest.approx(float(1100 / full), abs=0.02)
    assert "for the whole time: --max-cost-usd 27" in said.err
    assert extend("--max-cost-usd", "3000", "--yes") == 0
    assert (schedule(account) - now).total_seconds() / 3600 == pytest.approx(32, abs=0.05)
    out = find_stack(account, "kitae-llama-switch").outputs
    assert out["MaxCostUsd"] == "3000"


def _json(capsys) -> str:
    assert main(["cluster", "cost", MINE, "--region", "us-west-2", "--json"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "extend: until when? Give --until, --max-cost-usd, or both"),
        (["--until", "tomorrow"], 2, "until: 'tomorrow' is no time"),
        (["--until", "2020-01-01T00:00Z"], 2, "2020-01-01 00:00 UTC has passed"),
        (["--until", "3 hours"], 2, "--yes says so beforehand"),
        (["--max-cost-usd", "0"], 2, "0.01"),
    ],
)
def test_wrong_ends_change_nothing(words, code, said, made, account, moto, capsys):
    before = schedule(account)
    assert extend(*words) == code
    assert said in capsys.readouterr().err
    assert schedule(account) == before
    assert "cloudformation:UpdateStack" not in moto.calls()


def spent_for(number: float) -> Bill:
    """A bill of so many hours of a head node."""
    return bill([span("c5.4xlarge", NOON - hours(number))], {}, NOON)


def test_where_all_is_spent_nothing_more_starts(made, account, monkeypatch, capsys):
    """`start` holds to the limit, too: the fleet stays as it is."""
    monkeypatch.setattr(
        "kitae.cluster.extend.bill", lambda *_: bill([span("c5.4xlarge", NOON - hours(9999))], {}, NOON)
    )
    assert main(["cluster", "start", str(made), "--yes"]) == 8
    assert "llama has used up what it may cost: $6,799.32 of $1,100.00" in capsys.readouterr().err


def test_start_says_what_is_left_and_moves_the_switch_where_it_has_to(made, account, monkeypatch, capsys):
    before = schedule(account)
    monkeypatch.setattr(
        "kitae.cluster.extend.bill", lambda *_: bill([span("c5.4xlarge", NOON - hours(1000))], {}, NOON)
    )
    assert main(["cluster", "start", str(made), "--yes"]) == 0
    assert "$680.00 of $1,100.00 are spent, and with every queue full" in capsys.readouterr().err
    assert schedule(account) < before - hours(6)


@pytest.mark.parametrize("verb", ["cost", "extend", "ssh", "logs"])
def test_an_unknown_cluster_and_a_name_without_region(verb, engine, capsys):
    more = ["--until", "3 hours"] if verb == "extend" else []
    assert main(["cluster", verb, "nobody", "--region", "us-west-2", *more]) == 8
    assert "nobody" in capsys.readouterr().err
    assert main(["cluster", verb, "nobody", *more]) == 2
    assert "--region: where is nobody?" in capsys.readouterr().err


def test_storage_of_an_earlier_cluster_counts_from_this_ones_beginning(made, account, monkeypatch):
    """What `at_down: keep` left years ago is not in this one's budget."""
    old = datetime(2020, 1, 1, tzinfo=timezone.utc)
    pages = Account.pages

    def older(
        self: Account, service: str, operation: str, key: str, **wanted: object
    ) -> list[dict[str, object]]:
        found = pages(self, service, operation, key, **wanted)
        return [{**one, "CreationTime": old} for one in found] if service == "fsx" else found

    monkeypatch.setattr(Account, "pages", older)
    file = kept(account, MINE)
    [storage] = [
        one for one in spans_of(account, file, datetime.now(timezone.utc)) if one.item == "fsx-scratch"
    ]
    assert storage.begin == find_stack(account, "kitae-llama-switch").created


def test_up_says_what_the_end_allows(engine, tmp_path, capsys):
    file = str(write_cluster(tmp_path))
    assert main(["cluster", "up", file, "--yes"]) == 0
    said = capsys.readouterr().err
    assert "$0.00 of $1,100.00 are spent; with every queue full until 20" in said
    assert "it is at most $1,043.46" in said
