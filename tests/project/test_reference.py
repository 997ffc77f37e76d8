"""Test that the reference pages and the JSON schema are what the code says."""

import re
from functools import cache

import pytest
from jsonschema_rs import Draft7Validator
from ruamel.yaml import YAML

from support import reference
from support.paths import ROOT
from support.reference import errors, schema, source

FILES = sorted([*ROOT.glob("config/*.yaml"), *ROOT.glob("docs/how-to/*.md"), *ROOT.glob("docs/tutorials/*.md")])


@cache
def validator():
    return Draft7Validator(schema.schema())


def faults(document):
    return [str(error) for error in validator().iter_errors(document)]


def loaded(text):
    return YAML(typ="safe", pure=True).load(text)


def documents(file):
    """Return the configurations of a file, or of the blocks of YAML on a page."""
    text = file.read_text("utf-8")
    if file.suffix == ".yaml":
        return [loaded(text), loaded(re.sub(r"^( *)#(?=\S)", r"\1", text, flags=re.MULTILINE))]
    return [loaded(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize("path", reference.GENERATORS, ids=lambda path: path.name)
def test_reference_is_generated_from_the_code(path):
    assert path.read_text("utf-8") == reference.GENERATORS[path](), "make regenerate"


def test_reference_of_errors_names_a_code_without_a_row(monkeypatch):
    monkeypatch.setattr(source, "error_codes", lambda: {"invalid_value", "invalid_moon"})
    with pytest.raises(ValueError, match=r"rows for these codes to gateway/code_texts\.py: invalid_moon"):
        errors.page()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_schema_accepts_the_configurations_of_the_repository(file):
    assert [fault for document in documents(file) for fault in faults(document)] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "server:\nmodels:\nauth: {keys: , open: }",
        "server: {port: '${PORT:-8900}', workers: 2}\ninspector: {enabled: '${INSPECTOR}'}",
        "auth: {keys: ['${KEY}', {name: a, key: b}, {name: c, key: [d, e]}]}",
        "models: {a: , b: {backends: [x, {name: y}], fallback: [a], response_template: own.json, format: '${FORMAT}'}}",
        "models: {a: {response_template: {fields: {}}, format: response_template}}",
    ],
)
def test_schema_accepts_short_forms_variables_and_keys_without_a_value(text):
    assert faults(loaded(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "server: {prot: 1}",
        "server: {port: 65536}",
        "server: {port: many}",
        "backends: {a: {kind: olama, url: 'http://127.0.0.1'}}",
        "backends: {a: {kind: ollama}}",
        "models: {a: {format: morse}}",
        "auth: {keys: [{key: a}]}",
        "auth: {open: 'yes'}",
        "images: {ports: [0]}",
    ],
)
def test_schema_refuses_wrong_keys_and_values(text):
    assert faults(loaded(text)) != []


def test_schema_describes_every_key():
    assert [*undescribed(schema.schema(), ())] == []


def undescribed(node, path):
    """Yield the paths of the keys that have no description."""
    node = node["anyOf"][0] if "anyOf" in node else node
    for key, value in node.get("properties", {}).items():
        if not value.get("description"):
            yield (*path, key)
        yield from undescribed(value, (*path, key))
    for inner in (node.get("items"), node.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from undescribed(inner, (*path, "*"))
