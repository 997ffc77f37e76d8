"""Read the files for deployment."""

import re

from ruamel.yaml import YAML

from gateway.config import build_config, read_document
from gateway.server.observability.metrics import METRICS
from support.paths import ROOT

USER = 65532

LABELS = {one.name: {*one.labels, "job", "instance"} | ({"le"} if one.buckets else set()) for one in METRICS}


def documents(text):
    """Return the documents of a YAML text."""
    return [one for one in YAML(typ="safe").load_all(text) if one]


def text_of(path):
    """Return the text of a file."""
    return (ROOT / path).read_text()


def config_of(text):
    """Return the configuration, and the files that it names; each file has a text that fits anywhere."""
    named = set()

    def held(path):
        named.add(path)
        return "sqlite:///x.db" if path.endswith("store_url") else path.rpartition("/")[2]

    return build_config(read_document(text, "gateway.yaml", {}, held), []), named


def instructions(stage):
    """Return the instructions of a stage of the Dockerfile as pairs of name and arguments."""
    text = re.sub(r"\\\n|^#.*\n", "", text_of("Dockerfile"), flags=re.M)
    stages = [part.strip().splitlines() for part in re.split(r"^(?=FROM )", text, flags=re.M)[1:]]
    return [tuple(line.split(" ", 1)) for line in stages[stage] if line]


def named(expr):
    """Return the metrics of an expression, and check that it uses only their labels."""
    names = {name.removesuffix("_bucket") for name in re.findall(r"gateway_\w+", expr)}
    has = set().union(*(LABELS[name] for name in names))
    by = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", expr) for label in labels.split(",")}
    assert by | set(re.findall(r"[{,] ?(\w+)[!=]", expr)) <= has | {"job"}
    return names
