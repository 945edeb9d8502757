"""SIGTERM outside the training loop."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from kitae.errors import StoppedError
from kitae.stages.run_folder import RunFolder
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


def test_a_stop_as_soon_as_the_run_tells_of_the_attempt_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = RunFolder(tmp_path / "run")
    write = RunFolder.write

    def write_and_be_stopped(self: RunFolder) -> None:
        write(self)
        monkeypatch.setattr(RunFolder, "write", write)
        wait_for_the_signal()

    monkeypatch.setattr(RunFolder, "write", write_and_be_stopped)
    with pytest.raises(StoppedError, match="run the same command again"), run.attempt():
        raise AssertionError("the attempt was stopped before its work")
    (told,) = json.loads((run.path / "run.json").read_text())["attempts"]
    assert told["outcome"] == "stopped"
    assert told["why"].startswith("stopped by SIGTERM")
