"""Ranks that agree on results and errors."""

import pytest
from ranks import run_ranks

from kitae.backend.group import ALONE
from kitae.checkpoint.agree import agreed
from kitae.errors import StorageError, WeightsError


def work(mesh, failures):
    """Agree on work that fails on some ranks; what came of it."""

    def own():
        if mesh.rank in failures:
            raise failures[mesh.rank]
        return object, 10 * mesh.rank

    try:
        kept, shared = agreed(mesh.control, own)
    except Exception as error:
        return type(error), str(error), type(error.__cause__)
    return kept, shared


def test_every_rank_gets_what_all_shared():
    assert run_ranks(3, work, {}) == [(object, [0, 10, 20])] * 3


def test_the_first_error_is_raised_on_all():
    failures = {1: StorageError("full"), 2: WeightsError("odd")}
    causes = [type(None), StorageError, WeightsError]
    assert run_ranks(3, work, failures) == [(StorageError, "rank 1: full", cause) for cause in causes]


def test_a_fault_of_the_program_is_no_error_of_the_user():
    failed = (RuntimeError, "rank 0 failed: KeyError: 'x'")
    assert run_ranks(2, work, {0: KeyError("x")}) == [(*failed, KeyError), (*failed, type(None))]


def test_alone_an_error_stays_as_it_is():
    error = KeyError("x")

    def fail():
        raise error

    with pytest.raises(KeyError) as caught:
        agreed(ALONE, fail)
    assert caught.value is error
    assert agreed(ALONE, lambda: (1, 2)) == (1, [2])
