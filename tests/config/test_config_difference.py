"""Test the difference of two configurations: paths and values, and no secret."""

import pytest

from gateway import config as configuration
from gateway.config.difference import MAX_CHANGES, change_text, differences

ENV = {}


def load(text):
    return configuration.parse(text, "gateway.yaml", ENV, ["auto"])


BASE = "backends: {gpu: {url: 'http://gpu:1'}}\n"


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ("", "", []),
        ("", "stream: {keepalive_seconds: 5}", [{"path": "stream.keepalive_seconds", "from": 15, "to": 5}]),
        (
            "auth: {keys: [{name: ci, key: k, models: [m]}]}",
            "auth: {keys: [{name: a, key: l}, {name: ci, key: k, limits: {concurrent: 2}}]}",
            [
                {"path": "auth.keys[ci].models", "from": ["m"], "to": None},
                {"path": "auth.keys[ci].limits.concurrent", "from": 0, "to": 2},
                {"path": "auth.keys[a]", "from": None, "to": {"name": "a", "key": ["**********"]}},
            ],
        ),
        (
            "auth: {keys: [{name: ci, key: k}]}",
            "auth: {keys: [{name: ci, key: other}]}",
            [{"path": "auth.keys[ci].key", "secret": "changed"}],
        ),
        (
            "store: {url: 'postgresql://u:pw@a/b', sealing_keys: [a]}",
            "store: {url: 'postgresql://u:px@a/b'}",
            [{"path": "store.url", "secret": "changed"}, {"path": "store.sealing_keys", "secret": "removed"}],
        ),
        (
            "tools: {mcp: {servers: {d: {url: 'http://d/', headers: {x: a}}}}}",
            "tools: {mcp: {servers: {d: {url: 'http://d/', headers: {x: b, y: c}}}}}",
            [
                {"path": "tools.mcp.servers.d.headers.x", "secret": "changed"},
                {"path": "tools.mcp.servers.d.headers.y", "secret": "added"},
            ],
        ),
        (
            "models: {m: {reasoning: {as: text}}}",
            "models: {n: {overrides: {seed: 1}}}",
            [
                {"path": "models.m", "from": {"backends": [{"name": "gpu"}], "reasoning": {"as": "text"}}, "to": None},
                {"path": "models.n", "from": None, "to": {"backends": [{"name": "gpu"}], "overrides": {"seed": 1}}},
            ],
        ),
        (
            "models: {m: {reasoning: {as: text}}}",
            "models: {m: {reasoning: {as: both}}}",
            [{"path": "models.m.reasoning.as", "from": "text", "to": "both"}],
        ),
    ],
)
def test_config_difference_names_each_changed_setting(before, after, changes):
    assert differences(load(BASE + before), load(BASE + after)) == changes


def test_config_difference_of_added_sections_masks_their_secrets():
    text = "backends: {gpu: {url: 'http://gpu:1', api_key: hidden-secret}}\nstore: {url: 'postgresql://u:hidden@a/b'}\n"
    text += "auth: {keys: [{name: ci, key: hidden}]}\ntools: {mcp: {servers: {d: {url: 'http://d/', headers: {x: hidden}}}}}"
    found = str(differences(load("{}"), load(text)))
    assert "hidden" not in found and "sha256" not in found and "'api_key': '**********'" in found


def test_config_difference_is_bounded():
    many = ", ".join(f"m{number}: {{}}" for number in range(MAX_CHANGES + 7))
    found = differences(load(BASE), load(f"{BASE}models: {{{many}}}"))
    assert len(found) == MAX_CHANGES + 1 and found[-1] == {"more": 7}
    long = f"{BASE}models: {{m: {{aliases: [{'x' * 1000}]}}}}"
    (change,) = differences(load(f"{BASE}models: {{m: {{}}}}"), load(long))
    assert change["to"] == f'["{"x" * 298}…'


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"path": "a.b", "from": 0, "to": [1, "é"]}, 'a.b: 0 → [1, "é"]'),
        ({"path": "a", "from": None, "to": "x"}, "a: null → x"),
        ({"path": "a", "from": "", "to": "x"}, 'a: "" → x'),
        ({"path": "key", "secret": "changed"}, "key changed"),
        ({"more": 7}, "7 more"),
    ],
)
def test_config_difference_has_a_text(change, text):
    assert change_text(change) == text
