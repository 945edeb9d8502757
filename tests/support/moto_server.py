"""moto's server at the loopback address, with what its CloudFormation lacks, and a record of all calls.

Run as a program it serves; imported, it starts that program and talks to it. moto makes all parts of a
network by CloudFormation, but deletes only some; it has schedules, but not by CloudFormation. That much is
added.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

ACCOUNT = "123456789012"
REGION = "us-west-2"
_IMAGE = {
    "name": "aws-parallelcluster-3.16.1-ubuntu-2204-lts-hvm-x86_64-202601010000",
    "ami_id": "ami-0123456789abcdef0",
    "description": "an image of ParallelCluster",
    "owner_id": "247102896272",
    "public": True,
    "virtualization_type": "hvm",
    "architecture": "x86_64",
    "state": "available",
    "platform": None,
    "image_type": "machine",
    "hypervisor": "xen",
    "root_device_name": "/dev/sda1",
    "root_device_type": "ebs",
    "sriov": "simple",
    "creation_date": "2026-01-01T00:00:00.000Z",
}


@dataclass(frozen=True)
class Moto:
    """A server that is up."""

    url: str

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables with which every client of AWS talks to it, and to nothing else."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_SESSION_TOKEN": "",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_MAX_ATTEMPTS": "1",
        }

    def reset(self) -> None:
        """An empty account, and an empty record."""
        self._post("/moto-api/reset")
        self._post("/kitae/forget")

    def run_state_machines(self) -> None:
        """From now on, state machines that are made by the API really run."""
        self._post("/moto-api/config", {"stepfunctions": {"execute_state_machine": True}})

    def refuse(self, action: str, times: int) -> None:
        """Answer the next calls of an action, such as `cloudformation:DeleteStack`, with an error."""
        self._post("/kitae/refuse", {"action": action, "times": times})

    def answer(self, action: str, body: Any, containing: str = "") -> None:
        """Answer an action with this from now on: JSON, or text as it is; where a request contains a word."""
        text = body if isinstance(body, str) else json.dumps(body)
        self._post("/kitae/answer", {"action": action, "body": text, "containing": containing})

    def calls(self) -> list[str]:
        """Actions so far, in order, such as `ec2:RunInstances`."""
        with urllib.request.urlopen(f"{self.url}/kitae/calls") as answer:
            found: list[str] = json.load(answer)
        return found

    def requests(self) -> list[dict[str, str]]:
        """The same with what was asked: `action`, `region`, `path`, `query`, `body`."""
        with urllib.request.urlopen(f"{self.url}/kitae/requests") as answer:
            found: list[dict[str, str]] = json.load(answer)
        return found

    def _post(self, path: str, body: Any = None) -> None:
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), method="POST")
        urllib.request.urlopen(request).close()


@contextmanager
def moto_server(folder: Path) -> Iterator[Moto]:
    """A server in a process of its own."""
    images = folder / "images.json"
    images.write_text(json.dumps([_IMAGE]))
    environment = {**os.environ, "MOTO_AMIS_PATH": str(images), "MOTO_EC2_LOAD_DEFAULT_AMIS": "true"}
    with (folder / "moto.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, __file__], stdout=subprocess.PIPE, stderr=log, env=environment, text=True
        )
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            assert port, (folder / "moto.log").read_text()
            yield Moto(f"http://127.0.0.1:{port}")
        finally:
            server.terminate()
            server.wait()


_DRY_RUN = (
    b"<Response><Errors><Error><Code>DryRunOperation</Code><Message>fine</Message></Error></Errors>"
    b"<RequestID>1</RequestID></Response>"
)


class _Record:
    """A layer of the server that notes which action each request asks for."""

    def __init__(self, below: Any) -> None:
        self.below = below
        self.calls: list[str] = []
        self.requests: list[dict[str, str]] = []
        self.refused: dict[str, int] = {}
        self.answers: list[dict[str, str]] = []

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        path = environ.get("PATH_INFO", "")
        if path.startswith("/kitae/"):
            return self._own(path, environ, start)
        if path.startswith("/moto-api"):
            return self.below(environ, start)
        action = _action(environ)
        self.calls.append(action)
        self.requests.append(
            {
                "action": action,
                "region": _region(environ),
                "path": path,
                "query": environ.get("QUERY_STRING", ""),
                "body": "" if path.count("/") > 1 else _body(environ),  # not objects
            }
        )
        if self.refused.get(action, 0):
            self.refused[action] -= 1
            start("403 Forbidden", [("Content-Type", "text/xml")])
            return [
                b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>refused</Message></Error><RequestId>1</RequestId></ErrorResponse>"
            ]
        if "DryRun=true" in _body(environ):  # moto makes some things all the same
            start("412 Precondition Failed", [("Content-Type", "text/xml")])
            return [_DRY_RUN]
        told = self._told(action, environ)
        if told is not None:
            start(
                "200 OK",
                [("Content-Type", "application/x-amz-json-1.1" if told.startswith("{") else "text/xml")],
            )
            return [told.encode()]
        return self.below(environ, start)

    def _told(self, action: str, environ: dict[str, Any]) -> str | None:
        body = _body(environ)
        for one in reversed(self.answers):
            if one["action"] == action and one["containing"] in body:
                return one["body"]
        return None

    def _own(self, path: str, environ: dict[str, Any], start: Any) -> list[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if path.endswith("/forget"):
            self.calls.clear()
            self.requests.clear()
            self.refused.clear()
            self.answers.clear()
        if path.endswith("/answer"):
            self.answers.append(json.loads(body))
        if path.endswith("/refuse"):
            order = json.loads(body)
            self.refused[order["action"]] = order["times"]
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(self.requests if path.endswith("/requests") else self.calls).encode()]


def _body(environ: dict[str, Any]) -> str:
    """The request's body, which stays there to be read."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = BytesIO(body)
    return body.decode(errors="replace")


def _region(environ: dict[str, Any]) -> str:
    scope = re.search(r"Credential=[^/]+/\d+/([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
    return "" if scope is None else scope[1]


def _action(environ: dict[str, Any]) -> str:
    """Service and operation, as a policy names them."""
    scope = re.search(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
    service = scope[1] if scope is not None else "unsigned"
    target = environ.get("HTTP_X_AMZ_TARGET")
    if target:
        return f"{service}:{target.rpartition('.')[2]}"
    if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        found = parse_qs(_body(environ)).get("Action", ["?"])[0]
        return f"{service}:{found}"
    return f"{service}:{environ['REQUEST_METHOD']} {environ.get('PATH_INFO', '')}"


def _serve() -> None:
    from moto_server_gaps import add_what_is_missing
    from werkzeug.serving import WSGIRequestHandler, make_server

    add_what_is_missing()
    from moto.server import DomainDispatcherApplication, create_backend_app

    record = _Record(DomainDispatcherApplication(create_backend_app))

    class Handler(WSGIRequestHandler):
        """Answers at once: else the rest of an answer waits 40 ms until its beginning is acknowledged."""

        disable_nagle_algorithm = True

    server = make_server("127.0.0.1", 0, record, threaded=True, request_handler=Handler)
    # State machines of moto call AWS themselves.
    os.environ["MOTO_PORT"] = str(server.server_port)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve()
