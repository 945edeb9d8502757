"""The table of checks. A new one is a function that yields findings, and a row here."""

from __future__ import annotations

from collections.abc import Iterator

from kitae.doctor import driver, host, machine, network, sdk, target, vocabulary
from kitae.doctor.finding import Check, Finding, Patient
from kitae.errors import KitaeError

CHECKS: dict[str, Check] = {
    "python": machine.python,
    "packages": machine.packages,
    "extras": machine.extras,
    "backend": machine.backend,
    "cache": machine.disk,
    "target": target.target,
    "ranks": target.ranks,
    "variables": target.variables,
    "torch-neuronx": sdk.package,
    "neuron sdk": sdk.release_of,
    "neuron driver": driver.driver,
    "neuron devices": driver.devices,
    "cores": driver.cores,
    "limits": host.limits,
    "room": host.room,
    "clock": host.clock,
    "ports": network.ports,
    "host name": network.names,
    "efa": network.efa,
    "recipe": vocabulary.reach,
    "tokenizer": vocabulary.tokenizer,
    "embedding": vocabulary.embedding,
    "dictionary": vocabulary.dictionary,
    "vocabulary": vocabulary.vocabulary,
    "dictionary of the vocabulary": vocabulary.same_dictionary,
}
"""What is looked at, in this order."""


def examine(patient: Patient) -> Iterator[Finding]:
    """Every finding of every check; what is in a check's way is a finding, told once."""
    told: set[str] = set()
    for name, check in CHECKS.items():
        try:
            yield from check(patient)
        except (KitaeError, ImportError, OSError) as error:
            if str(error) not in told:
                told.add(str(error))
                yield Finding("fail", name, str(error))
        except (
            Exception
        ) as error:  # on a machine that nobody foresaw, the other checks are still worth having
            yield Finding("note", name, f"could not be looked at: {type(error).__name__}: {error}")
