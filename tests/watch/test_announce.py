"""Command and webhook of the user's: told once of each look, however slow or broken they are."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kitae.watch import announce
from kitae.watch.alarm_book import Change
from kitae.watch.alarms import Alarm
from kitae.watch.announce import Announcer, Listener, line, listeners_of, message, post, run_command

IDLE = Change("began", Alarm("idle-while-paid", "critical", "none of the 32 cores", 10.0, "node-1"))
OVER = Change("ended", Alarm("slow-rank", "warning", "rank 3", 1.0, "node-2", until=9.0))


class Server:
    """A webhook on this machine, which answers with these codes in turn, the last one again and again."""

    def __init__(self) -> None:
        self.codes = [200]
        self.heard: list[dict[str, Any]] = []
        self.hangs = threading.Event()
        self.hangs.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.heard.append({"type": self.headers["Content-Type"], **json.loads(body)})
                outer.hangs.wait(30)
                self.send_response(outer.codes.pop(0) if len(outer.codes) > 1 else outer.codes[0])
                self.end_headers()

            def log_message(self, *words: object) -> None:
                """Keep the tests' output clean."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.hangs.set()
    one.server.shutdown()
    one.server.server_close()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(announce, "BETWEEN_S", 0.0)


def tell(listeners: list[Listener], *looks: list[Change]) -> list[str]:
    """What is noted."""
    notes: list[str] = []
    announcer = Announcer(listeners, notes.append)
    for changes in looks:
        announcer.tell("tiny", changes)
    announcer.finish(30)
    return notes


def test_a_webhook_gets_all_changes_of_a_look_in_one_message(server: Server):
    assert tell(listeners_of({"webhook": server.address}, {}), [IDLE, OVER], []) == []
    (told,) = server.heard
    assert (told["type"], told["run"], told["event"]) == ("application/json", "tiny", "began")
    assert told["alarms"][0] == {
        "event": "began",
        "name": "idle-while-paid",
        "level": "critical",
        "what": "none of the 32 cores",
        "since": 10.0,
        "node": "node-1",
        "until": None,
    }
    assert told["text"] == told["content"]
    assert told["text"].splitlines() == [
        "alarm in tiny: idle-while-paid (critical) on node-1: none of the 32 cores",
        "alarm over in tiny: slow-rank (warning) on node-2: rank 3",
    ]


def test_the_address_may_lie_in_the_environment(server: Server):
    tell(listeners_of({"webhook": "$HOOK"}, {"HOOK": server.address}), [IDLE])
    assert len(server.heard) == 1
    (note,) = tell(listeners_of({"webhook": "$HOOK"}, {}), [IDLE])
    assert "the variable that holds its address is not set" in note


def test_a_busy_webhook_is_tried_again(server: Server):
    server.codes = [503, 429, 200]
    assert tell(listeners_of({"webhook": server.address}, {}), [IDLE]) == []
    assert len(server.heard) == 3


def test_one_that_refuses_is_not_and_is_told_of_once(server: Server):
    server.codes = [404]
    (note,) = tell(listeners_of({"webhook": server.address}, {}), [IDLE], [OVER])
    assert note == (
        "watch.alarms.webhook could not be told of an alarm: HTTP Error 404: Not Found; "
        "it is tried at the next one"
    )
    assert len(server.heard) == 2


def test_nobody_is_there(server: Server):
    server.server.shutdown()
    server.server.server_close()
    (note,) = tell(listeners_of({"webhook": server.address}, {}), [IDLE])
    assert "Connection refused" in note


def test_one_that_hangs_holds_nobody_up(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(announce, "WEBHOOK_S", 0.05)
    monkeypatch.setattr(announce, "TRIES", 1)
    server.hangs.clear()
    (note,) = tell(listeners_of({"webhook": server.address}, {}), [IDLE])
    assert "timed out" in note


def test_the_end_does_not_wait_for_ever():
    waits, done = threading.Event(), threading.Event()

    def hang(told: object) -> None:
        waits.set()
        done.wait(30)

    announcer = Announcer([Listener("slow", hang)], print)
    announcer.tell("tiny", [IDLE])
    assert waits.wait(30)
    announcer.finish(0.01)
    done.set()


def test_too_many_that_wait_are_dropped():
    done, told = threading.Event(), []

    def slow(one: Any) -> None:
        done.wait(30)
        told.append(one)

    announcer = Announcer([Listener("slow", slow)], print)
    for _ in range(300):
        announcer.tell("tiny", [IDLE])
    done.set()
    announcer.finish(30)
    assert 100 <= len(told) <= 101


def test_a_command_gets_json_and_variables(tmp_path: Path):
    kept = tmp_path / "kept"
    command = f'cat > {kept}.json; echo "$KITAE_ALARM_EVENT $KITAE_ALARM_NAMES $KITAE_ALARM_LEVEL" > {kept}'
    assert tell(listeners_of({"command": command}, {}), [IDLE, OVER]) == []
    assert kept.read_text() == "began idle-while-paid,slow-rank critical\n"
    told = json.loads((tmp_path / "kept.json").read_text())
    assert told == message("tiny", [IDLE, OVER])


def test_a_command_that_fails_is_told_of_once():
    notes = tell(listeners_of({"command": "exit 3"}, {}), [IDLE], [IDLE])
    assert [one.split(";")[0] for one in notes] == [
        "watch.alarms.command could not be told of an alarm: it ended with code 3"
    ]


def test_a_command_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(announce, "COMMAND_S", 0.1)
    with pytest.raises(ValueError, match="and was ended"):
        run_command(f"{sys.executable} -c 'import time; time.sleep(60)'; true", message("tiny", [IDLE]))


def test_nobody_listens():
    assert listeners_of({"command": None, "webhook": None}, {}) == []
    assert tell([], [IDLE]) == []


def test_a_line_for_a_person():
    assert line(Alarm("rising-loss", "warning", "up", 1.0)) == "rising-loss (warning): up"


def test_what_is_no_web_address_is_a_failure_as_any_other():
    with pytest.raises(ValueError, match="unknown url type"):
        post("nowhere", message("tiny", [IDLE]))
