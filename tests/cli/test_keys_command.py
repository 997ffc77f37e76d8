"""Test `gateway keys`, which works on the store directly."""

import json
import os
import re

import pytest

from gateway.cli.keys import key_table, log_table, parse_duration, parse_time, user_name
from gateway.config.stored_keys import StoredApiKey
from support.cli import config_writer, run
from support.wait import now

CONFIG = """
store: {{url: "sqlite:///{folder}/gateway.db"}}
auth: {{stored_keys: {stored}, keys: [{{name: ops, key: ops}}], groups: {{team-a: {{tokens_per_day: 5}}}}}}
"""


@pytest.fixture
def keys(tmp_path):
    """Return a function that runs `gateway keys` for a store of its own."""
    file = config_writer(tmp_path)(CONFIG.format(folder=tmp_path, stored="true"))
    return lambda command, *words: run("keys", command, *words, "--config", file)


def listed(keys):
    return {key["name"]: key for key in json.loads(keys("list", "--json")[1])}


@pytest.mark.edge
def test_keys_command_adds_a_key_and_prints_it_once(keys):
    before = int(now())
    code, out, err = keys(
        "add", "ci", "--owner", "Ann", "--note", "pipeline", "--model", "m", "--model", "n", "--endpoint", "/v1/chat",
        "--scope", "admin", "--limit", "tokens_per_day=1000", "--priority", "low", "--group", "team-a", "--expires", "90d",
    )  # fmt: skip
    assert (code, err) == (
        0,
        "Key 'ci': give it to the client.  It is not stored anywhere and cannot be shown again.\n",
    )
    assert re.fullmatch(r"gw-[A-Za-z0-9_-]{43}\n", out)
    key = listed(keys)["ci"]
    fields = {"owner": "Ann", "note": "pipeline", "models": ["m", "n"], "endpoints": ["/v1/chat"], "scopes": ["admin"]}
    assert key.items() >= {**fields, "priority": "low", "group": "team-a"}.items()
    assert key["limits"]["tokens_per_day"] == 1000
    assert before <= key["expires_at"] - 90 * 86_400 <= now()
    assert out.strip() not in keys("list", "--json")[1]


@pytest.mark.edge
def test_keys_command_replaces_and_revokes_a_key(keys):
    _, first, _ = keys("add", "ci")
    code, second, _ = keys("rotate", "ci", "--grace", "24h")
    assert code == 0 and second != first
    former = listed(keys)["ci"]["former_until"]
    assert now() < former <= now() + 86_400
    assert keys("revoke", "ci") == (0, "key 'ci' is revoked\n", "")
    assert keys("list")[1].splitlines()[1].split()[:2] == ["ci", "revoked"]


@pytest.mark.edge
def test_keys_command_logs_the_user_of_each_change(keys, monkeypatch):
    assert keys("log") == (0, "TIME  ACTOR  ACTION  KEY  CHANGES\n", "")
    monkeypatch.setenv("LOGNAME", "root")
    keys("add", "ci", "--owner", "Ann")
    keys("revoke", "ci")
    found = json.loads(keys("log", "--json")[1])
    assert [(entry["actor"], entry["action"], entry["key"]) for entry in found] == [
        ("cli:root", "key.revoked", "ci"),
        ("cli:root", "key.added", "ci"),
    ]
    head, line = keys("log", "--limit", "1")[1].splitlines()
    assert head.split() == ["TIME", "ACTOR", "ACTION", "KEY", "CHANGES"]
    assert re.fullmatch(r"[\d-]{10} [\d:]{8}  cli:root  key.revoked  ci   revoked_at: null → \d+", line)


def test_keys_command_names_a_user_without_a_name_by_its_number():
    def nobody():
        raise KeyError("getpwuid(): uid not found: 5")

    assert user_name(nobody) == str(os.getuid())


def test_keys_log_has_a_line_for_each_entry():
    reload = {"created_at": 0, "actor": "gateway:a", "action": "configuration.reloaded", "key": None}
    changes = [{"path": "stream.keepalive_seconds", "from": 15, "to": 5}, {"path": "store.url", "secret": "changed"}]
    assert log_table([{**reload, "changes": changes}]).splitlines() == [
        "TIME                 ACTOR      ACTION                  KEY  CHANGES",
        "1970-01-01 00:00:00  gateway:a  configuration.reloaded  -    stream.keepalive_seconds: 15 → 5, store.url changed",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("add", "ops"), "The name 'ops' is in use, perhaps by a revoked key. Choose another name.\n"),
        (("add", "a b"), "name: a name should consist of letters, digits, dots, dashes and underscores.\n"),
        (
            ("add", "ci", "--group", "team-b"),
            "group: unknown group 'team-b' in auth.groups; did you mean 'team-a'? one of: team-a.\n",
        ),
        (("revoke", "ci"), "The store has no key of the name 'ci'.\n"),
        (("rotate", "ci", "--grace", "1"), "'1' should be a number and a unit (m, h, d, w), like 90d."),
        (("add", "ci", "--limit", "tokens_per_day"), "'tokens_per_day' should be NAME=N"),
        (("add", "ci", "--expires", "soon"), "'soon' should be a number and a unit (m, h, d, w), like 90d."),
        (("add", "ci", "--expires", "999999w"), "after the year 9999. Give it in Unix seconds."),
    ],
)
@pytest.mark.edge
def test_keys_command_refuses_what_is_wrong(keys, words, message):
    code, out, err = keys(*words)
    assert (code, out) == (2, "") and message in err


@pytest.mark.edge
def test_keys_command_needs_a_store_that_works(tmp_path):
    write = config_writer(tmp_path)
    file = write(CONFIG.format(folder=f"{tmp_path}/missing", stored="true"))
    code, out, err = run("keys", "list", "--config", file)
    assert (code, out) == (1, "") and err == "The store cannot be used: unable to open database file\n"
    code, _, err = run("keys", "list", "--config", write("auth: {stored_keys: true}"))
    assert code == 2 and "auth.stored_keys: requires store.url" in err


def test_keys_command_needs_a_configuration(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("keys", "list")
    assert code == 2 and "use --config FILE" in err


@pytest.mark.edge
def test_keys_command_says_that_no_gateway_reads_the_keys(tmp_path):
    file = config_writer(tmp_path)(CONFIG.format(folder=tmp_path, stored="false"))
    code, out, err = run("keys", "list", "--config", file)
    assert (code, out) == (0, "NAME  STATE  EXPIRES  OWNER  GROUP  MODELS  SCOPES\n")
    assert err == "No gateway accepts these keys: auth.stored_keys is not true in the configuration.\n"


def test_keys_table_shows_what_a_key_may_do():
    def key(name, **more):
        return StoredApiKey.model_validate({"name": name, "key": "x", **more})

    table = key_table(
        [key("ci", owner="Ann", group="team-a", models=["m", "n"], expires_at=86_400), key("old", expires_at=50), key("ops", scopes=["admin"])],
        now=100,
    )  # fmt: skip
    assert table.splitlines() == [
        "NAME  STATE    EXPIRES           OWNER  GROUP   MODELS  SCOPES",
        "ci    valid    1970-01-02 00:00  Ann    team-a  m,n     inference",
        "old   expired  1970-01-01 00:00  -      -       all     inference",
        "ops   valid    never             -      -       all     admin",
    ]


def test_keys_table_shows_the_last_date_that_a_key_can_have():
    key = StoredApiKey.model_validate({"name": "ci", "key": "x", "expires_at": 253_402_300_799})
    assert "9999-12-31 23:59" in key_table([key], now=100)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90d", 7_776_100), ("12h", 43_300), ("1970-01-03", 172_800), ("5m", 400), ("1w", 604_900)]
)
def test_keys_command_reads_durations_and_dates(text, seconds):
    assert parse_time(text, 100.5) == seconds


@pytest.mark.parametrize("text", ["", "90", "d", "1y", "-1d", "1.5h", "1234567d"])
def test_keys_command_refuses_other_durations(text):
    with pytest.raises(ValueError, match="should be a number and a unit"):
        parse_duration(text)
