"""SIGTERM outside the training loop."""

from __future__ import annotations

import os
import signal

import pytest

from kitae.errors import StoppedError
from kitae.stages.termination import terminable


def wait_for_the_signal() -> None:
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    except Exception as error:
        raise ValueError("the tokenizer cannot be read") from error


def test_a_stop_is_not_hidden_by_code_that_turns_any_exception_into_another():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(StoppedError, match="run the same command again"), terminable():
        wait_for_the_signal()
    assert signal.getsignal(signal.SIGTERM) is before
