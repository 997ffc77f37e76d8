"""A gateway on a socket in front of one server, and a client of it that speaks plain HTTP."""

import json
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

from gateway.config import parse
from gateway.formats import format_names
from support.threaded_gateway import served
from wire.answer import Answer

MODEL = "m"


class Question(NamedTuple):
    """A body of these fields, or as it is, for a POST; a GET has none."""

    path: str
    fields: dict[str, Any]
    raw: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    method: str = "POST"

    def but(self, **fields):
        """The same with other fields; those that are None are left out."""
        return self._replace(fields={**self.fields, **fields})

    def body(self, stream):
        if self.raw is not None:
            return self.raw
        fields = {name: value for name, value in self.fields.items() if value is not None}
        return json.dumps({**fields, **({"stream": True} if stream else {})}).encode()


class Gate:
    """server: its row; client: of the gateway."""

    def __init__(self, server, client):
        self.server, self.client = server, client

    def ask(self, question, stream=False):
        headers = {"content-type": "application/json", **dict(question.headers)}
        body = question.body(stream) if question.method == "POST" else None
        http_response = self.client.request(question.method, question.path, content=body, headers=headers)
        return Answer(self, question, stream, http_response)

    def begin(self, question):
        """A stream that is to be read, or left."""
        headers = {"content-type": "application/json"}
        return self.client.stream("POST", question.path, content=question.body(True), headers=headers)

    def get(self, path):
        """The decoded body of a GET."""
        return self.ask(Question(path, {}, method="GET")).body


@contextmanager
def opened(server, url):
    """The Gate of a gateway with this server, which listens at `url`, as the model `m`."""
    backends = {server.name: {**server.backend, "url": url}}
    models = {MODEL: {**server.model, "backends": [server.name]}}
    configuration = json.dumps({"backends": backends, "models": models})
    with (
        served(parse(configuration, "wire.yaml", {}, format_names())) as root,
        httpx.Client(base_url=root, timeout=100, trust_env=False) as client,
    ):
        yield Gate(server, client)
