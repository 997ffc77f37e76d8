"""Read the files for deployment."""

import re

from ruamel.yaml import YAML

from gateway.config import build_config, read_document
from gateway.server.observability.metrics import METRICS
from support.paths import ROOT

USER = 65532

LABELS = {one.name: {*one.labels, "job", "instance"} | ({"le"} if one.buckets else set()) for one in METRICS}

KNOWN = {**LABELS, "up": {"job", "instance"}}
_FUNCTIONS = {"count", "histogram_quantile", "increase", "max", "min", "rate", "sum", "time", "vector"}
_OPERATORS = {"and", "or", "unless", "group_left"}
_GROUPING = r"\b(?:by|on) \(([^)]*)\)"


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


def stages():
    """Return the stages of the Dockerfile: name, and instructions as pairs of name and arguments; the last has none."""
    text = re.sub(r"\\\n|^#.*\n", "", text_of("Dockerfile"), flags=re.M)
    parts = [part.strip().splitlines() for part in re.split(r"^(?=FROM )", text, flags=re.M)[1:]]
    return {
        head.partition(" AS ")[2]: [tuple(line.split(" ", 1)) for line in (head, *lines) if line]
        for head, *lines in parts
    }


def expressions(board):
    """Yield each expression of a dashboard with the text that names its lines."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"], target["legendFormat"]


def named(expr, text=""):
    """Return the metrics of an expression in PromQL; check its names and labels.

    text: may name labels of the result, like `{{model}}` or `$labels.model`.
    """
    bare = re.sub(r'"[^"]*"|\[[^]]*\]|\$\w+', "", expr)  # without texts, ranges and variables
    grouped = {label.strip() for labels in re.findall(_GROUPING, bare) for label in labels.split(",")}
    found, has = set(), set()
    for name, after in re.findall(r"(?<![\w.])([a-z_]\w*)\s*(\(|{[^}]*}|)", re.sub(_GROUPING, "", bare)):
        if name in _OPERATORS:
            continue
        if after == "(":
            assert name in _FUNCTIONS, name
        else:
            metric = name if name in KNOWN else re.sub("_(bucket|sum|count)$", "", name)
            assert {label for label in re.findall(r"(\w+)[!=]", after)} <= KNOWN[metric], expr
            found, has = found | {metric}, has | KNOWN[metric]
    assert grouped <= has, expr
    assert {*re.findall(r"{{(\w+)}}|\$labels\.(\w+)", text)} <= {*_pairs(grouped or has)}, text
    return found


def _pairs(labels):
    """Yield the labels in both places in which a match may have them."""
    for label in labels:
        yield from ((label, ""), ("", label))
