"""The parts of the page, each as a function that runs it and returns its results, but for the date."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from support.paths import ROOT
from support.recorded_servers import EXCHANGES, SERVERS, golden, golden_file

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
LINE = re.compile(r"(ok|FAIL) +(\S.*)")  # of a client: `client · model · check`
VERSIONS = (
    "from importlib.metadata import *; print(version(packages_distributions()['vllm'][0]), version('transformers'))"
)


class Missing(Exception):
    """What a part needs is not there; the text says how it comes there."""


def recordings():
    return {"servers": {server: replayed(server) for server in SERVERS}}


def wire():
    return {"versions": llamacpp(), "servers": outcomes(*PYTEST, "tests/project/test_wire.py")}


def engines():
    environment = Path(os.environ.get("VLLM_VENV", ROOT / ".venv-vllm"))
    if not environment.is_dir():
        raise Missing("no environment with vLLM: `make test-vllm` sets it up, VLLM_VENV names one that is there")
    process_output = subprocess.run(
        [environment / "bin/python", "-c", VERSIONS], check=True, capture_output=True, text=True
    )
    versions = dict(zip(("vLLM", "transformers"), process_output.stdout.split(), strict=True))
    return {"versions": versions, "servers": outcomes("tests/engines/run", "-q")}


def clients():
    """A line that names no check, as of a client that did not start, is a check that failed."""
    found, own = {}, {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(["tests/clients/run"], cwd=ROOT, env=own, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if match := LINE.match(line):
                client, model, check = (*match[2].split(" · ", 2), "", "")[:3]
                found.setdefault(client, {}).setdefault(model, {})[check] = match[1]
    if not found:
        raise Missing("no client told of a check")
    return {"versions": {**llamacpp(), **dict(pinned())}, "clients": found}


PARTS = {part.__name__: part for part in (recordings, wire, engines, clients)}


def llamacpp():
    """The last number of its package is the build: the server itself does not know it."""
    return {"llama.cpp": f"b{version('xllamacpp').rpartition('.')[2]}"}


def pinned():
    """The versions of clients that come alone, and whose lines do not tell them."""
    for file in sorted((ROOT / "tests/clients").glob("*/package.json")):
        manifest = json.loads(file.read_text("utf-8"))
        alone = {*manifest.get("dependencies", {}).values(), *manifest.get("optionalDependencies", {}).values()}
        if len(alone) == 1:
            yield manifest["name"], *alone


def outcomes(*command):
    """What plugin.py tells of a pytest that is run by this command."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcomes.json"
        environment = {**os.environ, "PYTHONPATH": "tests"}
        options = ("-p", "conformance.plugin", "--outcomes", str(file))
        ended = subprocess.run([*command, *options], cwd=ROOT, env=environment, check=False)
        if not file.exists():
            raise Missing(f"{command[0]} ended with status {ended.returncode} before there were outcomes")
        return json.loads(file.read_text("utf-8"))


# Recordings


def replayed(server):
    """How the answers of a recorded server are told, by what they have, and what the ledger lists of them."""
    goldens = json.loads(golden_file(server).read_text("utf-8"))
    names = [name for name in EXCHANGES if name.startswith(f"{server}/")]
    totals, listed = {}, Counter()
    for name in names:
        expected = goldens.get(name) or goldens.get(EXCHANGES[name].like)
        if expected is None:
            continue
        right = golden(name) == expected
        for kind in kinds(expected):
            counts = totals.setdefault(kind, [0, 0])
            counts[0] += right
            counts[1] += 1
        listed.update(expected.get("ledger", ()))
    described = EXCHANGES[names[0]].server.server
    return {"server": described, "exchanges": len(names), "told": totals, "listed": dict(sorted(listed.items()))}


def kinds(expected):
    """What a golden has."""
    events = {event for event, _ in expected.get("events", ())}
    if "problem" in expected:
        yield "failures"
    else:
        yield "answers"
    if "Reasoning" in events:
        yield "thoughts"
    if "ToolStart" in events:
        yield "calls"
    if "Usage" in events and "estimated:usage" not in expected["ledger"]:
        yield "usage"
