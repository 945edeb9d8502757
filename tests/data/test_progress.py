import io
import sys

from kitae.data.progress import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_draws_on_a_terminal_only(monkeypatch):
    for stream, drawn in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        with progress("prepare", 2048) as advance:
            advance(1024)
        assert ("prepare" in stream.getvalue()) == drawn


def test_draws_nowhere_when_the_stream_was_closed_before_the_start(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with progress("prepare", 2048) as advance:
        advance(1024)
