"""For pytest: how each case of wire/ went on each server, by what it is about, and what was told, as JSON.

    pytest -p conformance.plugin --outcomes FILE tests/project/test_wire.py

What is no case is a check of the doctor.  An outcome is a word, and behind a colon what was told: `holds` and `listed`
have entries of the ledger, `refused` the words of the error.  `left` and `untold` are as in wire/server.py; what `fails`
was not what it has to be, or has not come to its end.
"""

import json
import os
from pathlib import Path

import pytest

from conformance.features import DOCTOR, feature
from wire.cases import CASES
from wire.gate import Gate
from wire.server import Listed, Refused

BY_NAME = {str(case): case for case in CASES}


class Noting(Gate):
    """A gate that keeps the answers it gave."""

    def __init__(self, gate):
        super().__init__(gate.server, gate.client)
        self.answers = []

    def ask(self, question, stream=False):
        answer = super().ask(question, stream)
        self.answers.append(answer)
        return answer

    def outcome(self, name):
        """Of a check that has passed, in words."""
        needs = BY_NAME[name].needs if name in BY_NAME else ()
        match [self.server.cannot[need] for need in needs if need in self.server.cannot]:
            case [Refused(), *_]:
                return f"refused: {self.answers[0].problem['message']}"
            case [Listed(entry), *_]:
                return f"listed: {entry}"
            case [other, *_]:
                return type(other).__name__.lower()
        warnings = sorted({entry for answer in self.answers for entry in answer.warnings})
        return f"holds: {', '.join(warnings)}" if warnings else "holds"


class Outcomes:
    """What goes to the file; what has not come to its end has failed."""

    def __init__(self, file):
        self._file, self._servers = file, {}

    def pytest_collection_finish(self, session):
        for item in session.items:
            self._note(item, "fails")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        noting = noted(item.funcargs)
        result = yield
        self._note(item, noting.outcome(name_of(item)))
        return result

    def pytest_sessionfinish(self):
        self._file.write_text(json.dumps(self._servers), "utf-8")

    def _note(self, item, outcome):
        server, name = server_of(item), name_of(item)
        settings = {key: value for key, value in {**server.backend, **server.model}.items() if key != "upstream_model"}
        row = self._servers.setdefault(server.name, {"settings": settings, "features": {}})
        about = feature(BY_NAME[name]) if name in BY_NAME else DOCTOR
        row["features"].setdefault(about, {})[name] = outcome


def server_of(item):
    params = item.callspec.params
    return params["gate"] if "gate" in params else params["running"].server


def name_of(item):
    return item.callspec.id.removeprefix(f"{server_of(item).name}-")


def noted(given):
    """The gate that an item is given from here on, instead of its own."""
    if "gate" in given:
        given["gate"] = gate = Noting(given["gate"])
    else:
        gate = Noting(given["running"].gate)
        given["running"] = given["running"]._replace(gate=gate)
    return gate


def pytest_addoption(parser):
    parser.addoption("--outcomes", type=Path, required=True)


def pytest_configure(config):
    # By which this was found: the servers that are started have modules of their own.
    os.environ.pop("PYTHONPATH", None)
    config.pluginmanager.register(Outcomes(config.getoption("--outcomes")))
