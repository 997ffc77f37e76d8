"""Test that settings are merged into files of users: foreign entries and comments stay, and a second merge changes nothing."""

import json
import tomllib

import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gateway.launch import CLIENTS, LaunchTarget, UnmergeableFile, merge_entries
from support.sampling import examples

TARGET = LaunchTarget(root="http://127.0.0.1:8900", model="qwen", window=32768)
OTHER = LaunchTarget(root="https://gateway.lan", model='a "b"/c', keyed=True)
WITH_FILES = {name: client for name, client in CLIENTS.items() if client.file}
KEYED = LaunchTarget(root="http://127.0.0.1:8900", model="qwen", keyed=True)


def load(format, text):
    """Return the data of a text in a format."""
    return {"toml": tomllib.loads, "json": json.loads, "yaml": YAML(typ="safe").load}[format](text)


def dump(format, data):
    """Return a text for data; YAML contains JSON."""
    return tomlkit.dumps(data) if format == "toml" else json.dumps(data, indent=2) + "\n"


def assert_contains(whole, part):
    """Assert that all entries of a part are in the whole."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert_contains(whole[key], value)
    elif isinstance(part, list):
        for item in part:
            assert any(contains(one, item) for one in whole), item
    else:
        assert whole == part


def contains(whole, part):
    try:
        assert_contains(whole, part)
    except (AssertionError, KeyError, TypeError):
        return False
    return True


@pytest.mark.parametrize("name", WITH_FILES)
@pytest.mark.parametrize("target", [TARGET, OTHER, KEYED], ids=["plain", "strange", "keyed"])
def test_entries_of_each_client_are_valid_and_merge_with_an_empty_file(name, target):
    file, entries = CLIENTS[name].file, CLIENTS[name].entries_for(target)
    assert json.dumps(target.model)[1:-1] in json.dumps(load(file.format, entries))
    for empty in ("", "\n"):
        text = merge_entries(empty, entries, file.format)
        assert load(file.format, text) == load(file.format, entries)
        assert merge_entries(text, entries, file.format) == text


@pytest.mark.parametrize("name", WITH_FILES)
def test_entries_of_each_client_replace_those_of_another_gateway(name):
    file = CLIENTS[name].file
    before = CLIENTS[name].entries_for(TARGET)
    wanted = CLIENTS[name].entries_for(OTHER).replace("YOUR_KEY", "none")
    after = merge_entries(before, wanted, file.format)
    assert_contains(load(file.format, after), load(file.format, wanted))
    assert merge_entries(after, wanted, file.format) == after


SCALARS = st.one_of(st.booleans(), st.integers(-9, 9), st.text("abc #:\"'ü", max_size=8))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("abx-", min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)
FOREIGN = st.dictionaries(st.text("uvwx-", min_size=1, max_size=6), VALUES, max_size=4)


@pytest.mark.parametrize("name", [name for name in WITH_FILES if name != "llm"])
@given(foreign=FOREIGN)
@settings(max_examples=examples(60))
def test_merge_keeps_foreign_entries_and_is_idempotent(name, foreign):
    client = CLIENTS[name]
    format, entries = client.file.format, client.entries_for(TARGET)
    before = dump(format, foreign)
    after = merge_entries(before, entries, format)
    assert load(format, after) == load(format, before) | load(format, entries)
    assert merge_entries(after, entries, format) == after


@given(mine=st.lists(st.dictionaries(st.sampled_from(["a", "model_name", "x"]), SCALARS, min_size=1), max_size=4))
@settings(max_examples=examples(60))
def test_merge_keeps_foreign_items_of_a_list(mine):
    before = [{"model_id": f"m{number}", **one} for number, one in enumerate(mine)]
    entries = CLIENTS["llm"].entries_for(TARGET)
    after = merge_entries(dump("yaml", before), entries, "yaml")
    assert load("yaml", after) == [*before, *load("yaml", entries)]


TOML = """\
# My settings
approval_policy = "never"  # brave
model = "gpt-5.5"

[model_providers.other]
base_url = "https://other/v1"

[mcp_servers.toy]
command = "toy"
args = [
  "a",  # first
]
"""


def test_merge_keeps_comments_and_order_in_toml():
    after = merge_entries(TOML, CLIENTS["codex"].entries_for(TARGET), "toml")
    first, second = '# My settings\napproval_policy = "never"  # brave\nmodel = "qwen"\n', TOML[TOML.index("[mcp") :]
    assert after.startswith(first) and second in after
    assert set(tomllib.loads(after)["model_providers"]) == {"other", "gateway"}


YAML_TEXT = """\
# My settings
name: mine
models:
  # the best
  - name: other
    provider: ollama   # local
rules:
  - "Be brief."
"""


def test_merge_keeps_comments_and_order_in_yaml():
    after = merge_entries(YAML_TEXT, CLIENTS["continue"].entries_for(TARGET), "yaml")
    kept = [line for line in YAML_TEXT.splitlines() if line in after.splitlines()]
    assert kept == YAML_TEXT.splitlines()
    assert [one["name"] for one in load("yaml", after)["models"]] == ["other", "qwen"]
    assert load("yaml", after)["models"][1]["roles"] == ["chat", "edit"]


def test_merge_adds_to_a_yaml_file_of_comments_alone():
    entries = CLIENTS["continue"].entries_for(TARGET)
    assert merge_entries("# nothing yet\n", entries, "yaml") == f"# nothing yet\n{entries}"


def test_merge_keeps_the_indentation_of_lists_in_yaml():
    after = merge_entries("models:\n- name: other\n", CLIENTS["continue"].entries_for(TARGET), "yaml")
    assert after.startswith("models:\n- name: other\n- name: ")


@pytest.mark.parametrize("indent", ["\t", "    "])
def test_merge_keeps_the_indentation_of_json(indent):
    before = json.dumps({"theme": "ü", "provider": {"mine": {}}}, indent=indent, ensure_ascii=False)
    after = merge_entries(before, CLIENTS["opencode"].entries_for(TARGET), "json")
    assert after.startswith(f'{{\n{indent}"theme": "ü",\n{indent}"provider": {{\n{indent * 2}"mine": {{}},\n')
    assert after.endswith("}\n")


def test_merge_fills_in_a_key_only_where_none_is():
    wanted = CLIENTS["pi"].entries_for(KEYED)
    assert "YOUR_KEY" in merge_entries(CLIENTS["pi"].entries_for(TARGET), wanted, "json")
    mine = wanted.replace("YOUR_KEY", "secret")
    assert merge_entries(mine, wanted, "json") == mine


def test_merge_adds_only_the_items_that_a_list_lacks():
    assert load("json", merge_entries('{"a": [1, 2]}', '{"a": [2, 3]}', "json")) == {"a": [1, 2, 3]}


def test_merge_replaces_an_entry_without_a_value():
    assert load("yaml", merge_entries("models:\nx: 1\n", "models: [{name: a}]", "yaml")) == {
        "models": [{"name": "a"}],
        "x": 1,
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("codex", 'model_providers = {other = {name = "x"}}\n'),
        ("codex", 'model_providers.other.name = "x"\n'),
        ("vibe", "models = []\n"),
        ("vibe", 'providers = [{name = "a"}]\n'),
    ],
)
def test_merge_refuses_toml_that_would_change_its_meaning(name, text):
    with pytest.raises(UnmergeableFile, match="has a form that"):
        merge_entries(text, CLIENTS[name].entries_for(TARGET), "toml")


@pytest.mark.parametrize(
    "text",
    [
        '[model_providers]\nother = {name = "x"}\n[z]\na = 1\n',
        '[model_providers.other]\nname = "x"\n[z]\na = 1\n[model_providers.more]\nname = "y"\n[q]\nb = 1\n',
        '[model_providers.gateway]\nname = "old"\nextra = 1\n[other]\nx = 1\n',
        'model_providers.gateway = {name = "z", keep = 1}\n',
    ],
)
def test_merge_keeps_tables_of_toml_in_any_form(text):
    entries = CLIENTS["codex"].entries_for(TARGET)
    after = merge_entries(text, entries, "toml")
    lost = text.replace('"old"', '"gateway"').replace('"z"', '"gateway"')
    assert_contains(tomllib.loads(after), tomllib.loads(lost))
    assert_contains(tomllib.loads(after), tomllib.loads(entries))
    assert merge_entries(after, entries, "toml") == after


@pytest.mark.parametrize(
    ("text", "format", "message"),
    [
        ("a = ", "toml", "is not valid TOML: "),
        ('{"a": 1, // why\n}', "json", "is not valid JSON: "),
        ("[" * 200_000, "json", "is not valid JSON: "),
        ("a: [", "yaml", "is not valid YAML: "),
        ("a: 1\na: 2", "yaml", "is not valid YAML: "),
        ("[1]", "json", "has no mapping at the top, but the settings need one"),
        ('"a"', "yaml", "has no mapping at the top, but the settings need one"),
        ('{"a": {"b": 1}}', "json", "has no mapping at a.b, but the settings need one"),
        ('{"l": 1}', "json", "has no list at l, but the settings need one"),
        ('{"l": [{"name": "x", "m": 3}]}', "json", "has no mapping at l[x].m, but the settings need one"),
    ],
)  # fmt: skip
def test_merge_refuses_a_file_that_it_cannot_merge(text, format, message):
    entries = {"a": {"b": {"c": 1}}, "l": [{"name": "x", "m": {"n": 1}}]}
    with pytest.raises(UnmergeableFile) as caught:
        merge_entries(text, dump(format, entries), format)
    assert str(caught.value).startswith(message)
