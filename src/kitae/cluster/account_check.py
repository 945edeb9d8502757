"""`kitae cluster quota`: whether an account can have a cluster. Nothing is made, and nothing bills."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType

from kitae.cluster import prices, quotas
from kitae.cluster.aws import Account
from kitae.cluster.given import given_network, key_pair, reservations
from kitae.cluster.money import dollars, price
from kitae.cluster.names import Names
from kitae.cluster.permissions import permissions
from kitae.cluster.said import Answer
from kitae.cluster.schema import ClusterFile
from kitae.cluster.stacks import find_stack
from kitae.cluster.zones import zone_name, zones_with
from kitae.errors import ClusterError

Check = Callable[["Question"], Iterator[Answer]]


@dataclass(frozen=True)
class Question:
    """What is asked of which account."""

    account: Account
    file: ClusterFile
    now: datetime
    request: bool = False
    """Whether quotas that are too small are asked for."""


def identity(question: Question) -> Iterator[Answer]:
    """Who asks."""
    who = question.account.identity
    yield Answer("ok", f"{who['Arn']} in account {who['Account']}, region {question.file.region}")


def quota(question: Question) -> Iterator[Answer]:
    """Quotas against what is needed."""
    for need in quotas.needs(question.file):
        found = quotas.standing(question.account, need)
        about = f"{need.quota.name} ({need.quota.code}): {need.what}"
        if found.allowed is None:
            yield Answer("unknown", f"{about} needs {need.amount}; AWS does not tell what is allowed")
        elif found.enough:
            yield Answer(
                "ok", f"{about} needs {need.amount} of {found.allowed:g}, of which {found.used} are in use"
            )
        else:
            yield from _short(question, found, about)


def _short(question: Question, found: quotas.Standing, about: str) -> Iterator[Answer]:
    short = f"{about} needs {found.need.amount}, and of {found.allowed:g} {found.used} are in use"
    if found.asked is not None and found.asked >= found.wanted:
        yield Answer("wrong", f"{short}; {found.asked:g} were asked for and are not granted yet")
    elif question.request:
        value = quotas.request(question.account, found)
        yield Answer("wrong", f"{short}; {value:g} are asked for now, which may take days")
    else:
        command = (
            f"aws service-quotas request-service-quota-increase --region {question.file.region} "
            f"--service-code {found.need.quota.service} --quota-code {found.need.quota.code} "
            f"--desired-value {found.wanted}"
        )
        yield Answer("wrong", f"{short}; ask for {found.wanted} with --request, or: {command}")


def zones(question: Question) -> Iterator[Answer]:
    """The zone exists, and has the types."""
    name = zone_name(question.account, question.file.zone)
    if name is None:
        yield Answer("wrong", f"this account has no zone {question.file.zone} in {question.file.region}")
        return
    for kind in dict.fromkeys(
        [question.file.head.instance, *(queue.instance for queue in question.file.queues)]
    ):
        there = zones_with(question.account, kind)
        if name in there:
            yield Answer("ok", f"{kind} is offered in {name} ({there[name]})")
        else:
            others = ", ".join(f"{one} ({there[one]})" for one in sorted(there)) or "no zone of this region"
            yield Answer("wrong", f"{kind} is not offered in {name}; it is in {others}")


def names(question: Question) -> Iterator[Answer]:
    """Nothing of the same name is there."""
    own = Names(question.file.name)
    found = [
        stack
        for name in (own.switch_stack, own.network_stack, own.cluster_stack)
        if (stack := find_stack(question.account, name)) is not None
    ]
    for stack in found:
        yield Answer(
            "wrong",
            f"a stack {stack.name} is there already ({stack.status}); kitae cluster down takes it away, "
            "kitae cluster status says what it is, or take another name",
        )
    if not found:
        yield Answer("ok", f"no stack of the name {question.file.name} is there")


def money(question: Question) -> Iterator[Answer]:
    """What AWS asks today."""
    file, account = question.file, question.account
    for kind, is_spot in dict.fromkeys(_priced(file)):
        try:
            today = _today(question, kind, is_spot)
        except ClusterError as error:
            yield Answer("unknown", f"{kind}: {error}")
            continue
        planned = price(file, kind)
        word = "on the spot market" if is_spot else "on demand"
        if today is None:
            yield Answer("unknown", f"{kind}: AWS names no price {word} in {account.region}")
        elif planned is None or planned < today:
            known = "no price" if planned is None else dollars(planned)
            yield Answer(
                "wrong",
                f"{kind} costs ${today:f} an hour {word}, and the file is planned with {known}; write "
                f"prices: {{{kind}: {today:f}}}",
            )
        else:
            yield Answer("ok", f"{kind} costs ${today:f} an hour {word}; planned with {dollars(planned)}")


def _priced(file: ClusterFile) -> Iterator[tuple[str, bool]]:
    yield file.head.instance, False
    for queue in file.queues:
        if queue.capacity.kind != "capacity-block":
            yield queue.instance, queue.capacity.kind == "spot"


def _today(question: Question, kind: str, is_spot: bool) -> Decimal | None:
    if not is_spot:
        return prices.on_demand(question.account, kind)
    zone = zone_name(question.account, question.file.zone) or question.file.zone
    return prices.spot(question.account, kind, zone, question.now)


def permission(question: Question) -> Iterator[Answer]:
    """What may be done, by dry runs."""
    yield from permissions(question.account, question.file)


def given(question: Question) -> Iterator[Answer]:
    """What the file names is there."""
    yield from key_pair(question.account, question.file)
    yield from given_network(question.account, question.file)
    yield from reservations(question.account, question.file)


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "identity": identity,
        "permissions": permission,
        "quotas": quota,
        "zones": zones,
        "names": names,
        "given": given,
        "prices": money,
    }
)


def ask(question: Question) -> Iterator[tuple[str, Answer]]:
    """Every check's answers, as they come. Raises `ClusterError` where AWS cannot be asked at all."""
    for name, check in CHECKS.items():
        for answer in check(question):
            yield name, answer


def row(name: str, answer: Answer, *, as_json: bool) -> str:
    """An answer as it is printed: a line, or an object of JSON."""
    if as_json:
        return json.dumps({"check": name, "verdict": answer.verdict, "text": answer.text})
    return f"{answer.verdict:7}  {name:11}  {answer.text}"


def refuse_wrong(answers: list[tuple[str, Answer]]) -> None:
    """Raise `ClusterError` where something stands in the way."""
    wrong = [name for name, answer in answers if answer.verdict == "wrong"]
    if wrong:
        raise ClusterError(
            f"the account cannot have this cluster yet: {len(wrong)} of {len(answers)} answers are wrong "
            f"({', '.join(dict.fromkeys(wrong))}); each line above says what to do"
        )
