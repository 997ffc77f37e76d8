"""Test the data of the clients, their settings as text, and the choice of a model."""

import json
import re
import shlex

import msgspec
import pytest

from clients.pages import CLIENTS_PAGE
from gateway.launch import CLIENTS, Client, LaunchTarget, OfferedModel, choose_model
from gateway.launch.docs_page import clients_page
from gateway.launch.model_choice import read_models
from gateway.launch.rendering import render_diff, render_list, render_needs, render_settings, shell_lines
from support.paths import ROOT

PLAIN = LaunchTarget(root="http://127.0.0.1:8900", model="qwen")
KEYED = LaunchTarget(root="https://gateway.lan", model="it's a model", window=8192, keyed=True)


# Data


def test_clients_page_is_generated_from_the_data():
    assert (ROOT / CLIENTS_PAGE).read_text("utf-8") == clients_page(CLIENTS), "make regenerate"


def test_clients_page_links_each_section():
    page = clients_page(CLIENTS)
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert sorted(headings) == sorted(one.title for one in CLIENTS.values())
    assert re.findall(r"^\| \[.+?\]\(#(.+?)\)", page, re.MULTILINE) == [
        one.lower().replace(" ", "-") for one in headings
    ]


@pytest.mark.parametrize("name", CLIENTS)
def test_client_is_a_program_with_settings_or_a_library_with_code(name):
    client = CLIENTS[name]
    assert client.apis and client.text
    if client.command:
        assert client.environment or client.setup or client.file
        assert client.environment or not (client.file and client.file.optional)
    else:
        assert not (client.environment or client.setup or client.file)
        assert "```" in client.text


@pytest.mark.parametrize("name", CLIENTS)
def test_client_uses_the_address_of_its_api(name):
    page = "\n".join(render_settings(name, CLIENTS[name], KEYED, "~/file"))
    found = re.findall(r"https://gateway\.lan(/v1)?(?![\w.])", page.partition("\n")[2])
    if name in (
        "anthropic",
        "anthropic-node",
        "claude",
        "claude-agent-sdk",
        "langchain-anthropic",
        "pydantic-ai-anthropic",
    ):
        assert set(found) == {""}
    else:
        assert set(found) == ({"/v1"} if found else set())
        assert found or name == "curl"


# Text


def test_settings_name_the_key_by_its_variable():
    lines = shell_lines(CLIENTS["claude"], KEYED)
    assert (
        'export ANTHROPIC_AUTH_TOKEN="$GATEWAY_KEY"' in lines and "export ANTHROPIC_MODEL='it'\"'\"'s a model'" in lines
    )
    assert lines[-2:] == ["export CLAUDE_CODE_MAX_CONTEXT_TOKENS=8192", "claude"]
    assert "export ANTHROPIC_AUTH_TOKEN=none" in shell_lines(CLIENTS["claude"], PLAIN)
    assert shell_lines(CLIENTS["vibe"], KEYED) == ["vibe"]
    assert shell_lines(CLIENTS["vibe"], PLAIN) == ["export GATEWAY_KEY=none", "vibe"]


def test_settings_of_curl_have_the_key_in_each_command():
    for target, count in ((KEYED, 4), (PLAIN, 0)):
        block = CLIENTS["curl"].text_for(target).split("```")[1]
        commands = block.split("\n\n")
        assert len(commands) == 4 and all(one.strip().removeprefix("sh\n").startswith("curl ") for one in commands)
        assert sum('-H "authorization: Bearer $GATEWAY_KEY"' in one for one in commands) == count


@pytest.mark.parametrize("keyed", [False, True])
def test_settings_of_curl_can_be_pasted(keyed):
    """The model's name has quotes, and zsh takes the brackets of the address for a pattern."""
    target = LaunchTarget(root="http://[::1]:8900", model='it\'s "m"', keyed=keyed)
    curl = CLIENTS["curl"]
    block = curl.text_for(target).split("```")[1].removeprefix("sh\n")
    for command in [*block.split("\n\n"), curl.example_for(target)]:
        assert "'http://[::1]:8900/v1/" in command
        assert json.loads(shlex.split(command)[-1])["model"] == target.model


def test_settings_of_a_client_without_a_file_are_lines_for_a_shell():
    setup, start = shell_lines(CLIENTS["cline"], KEYED)
    assert shlex.split(setup) == [
        *("cline", "auth", "-p", "openai", "-k", "$GATEWAY_KEY", "-m", "it's a model", "-b", "https://gateway.lan/v1")
    ]
    assert start == "cline"


def test_settings_have_paragraphs_in_the_order_of_use():
    head, file, entries, shell, lines, needs, text = render_settings("codex", CLIENTS["codex"], PLAIN, "~/x.toml")
    assert head == "# Codex at http://127.0.0.1:8900 with the model qwen"
    assert file == "# Add this to ~/x.toml; `gateway launch codex --write` does it:"
    assert entries.startswith('model = "qwen"\n') and "env_key" not in entries
    assert (shell, lines) == ("# In a shell:", "codex")
    assert needs == "Codex needs a model that calls tools, and room for its own prompt of about 10,000 tokens."
    assert text.startswith("Codex sends plain tools only to a model ")
    assert "(or set the variables below)" in "".join(render_settings("claude", CLIENTS["claude"], PLAIN, "~/x.json"))
    bare = Client(title="bare", apis=("chat",))
    assert list(render_settings("bare", bare, PLAIN, "")) == ["# bare at http://127.0.0.1:8900 with the model qwen"]


def test_settings_name_the_key_in_files_as_each_client_reads_it():
    entries = {
        name: CLIENTS[name].entries_for(KEYED) for name in ("codex", "opencode", "continue", "claude", "pi", "llm")
    }
    assert 'env_key = "GATEWAY_KEY"' in entries["codex"]
    assert '"{env:GATEWAY_KEY}"' in entries["opencode"]
    assert '"${{ secrets.GATEWAY_KEY }}"' in entries["continue"]
    assert "TOKEN" not in entries["claude"].replace("TOKENS", "")
    assert '"YOUR_KEY"' in entries["pi"]
    assert "api_key_name: gateway" in entries["llm"]


def test_settings_have_the_window_if_it_is_known():
    for name, keys in {"opencode": ["limit", "context"], "pi": ["contextWindow"], "claude": []}.items():
        with_window, without = (json.dumps(json.loads(CLIENTS[name].entries_for(target))) for target in (KEYED, PLAIN))
        assert "8192" in with_window and "8192" not in without
        assert all(key in with_window and key not in without for key in keys)


def test_diff_hides_secrets_that_are_not_of_the_settings():
    before = 'api_key = "s3cret"\nother = 1\n"Token": "abc", "x": 1\n'
    after = before + 'env_key = "GATEWAY_KEY"\n'
    diff = render_diff("~/x", before, after, 'env_key = "GATEWAY_KEY"')
    assert "s3cret" not in diff and "abc" not in diff
    assert diff == (
        '--- ~/x\n+++ ~/x\n@@ -1,3 +1,4 @@\n api_key = "…"\n other = 1\n "Token": "…", "x": 1\n+env_key = "GATEWAY_KEY"\n'
    )
    assert render_diff("~/x", "", "a\n", "").startswith("--- /dev/null\n+++ ~/x\n")


def test_list_has_each_client_with_its_apis():
    head, *rows = render_list(CLIENTS).splitlines()
    assert head.split() == ["NAME", "CLIENT", "APIS"]
    assert [row.split()[0] for row in rows] == list(CLIENTS)
    assert all(row.endswith(", ".join(one.apis)) for row, one in zip(rows, CLIENTS.values(), strict=True))


# Models

TOOLS = ("tools",)
SMALL = OfferedModel("small", 4096, TOOLS)
WORDS = OfferedModel("words", 65536, ())
GOOD = OfferedModel("good", 65536, TOOLS)
UNKNOWN = OfferedModel("unknown")
EMBEDDER = OfferedModel("embedder", 512, ("embeddings",))


@pytest.mark.parametrize(
    ("models", "wanted", "chosen", "problems"),
    [
        ([EMBEDDER, SMALL, WORDS, GOOD], None, GOOD, 0),
        ([EMBEDDER, UNKNOWN, GOOD], None, UNKNOWN, 0),
        ([SMALL, WORDS], None, SMALL, 1),
        ([OfferedModel("worst", 10, ()), WORDS], None, WORDS, 1),
        ([GOOD, SMALL], "small", SMALL, 1),
        ([GOOD], "alias", OfferedModel("alias"), 0),
        ([], "alias", OfferedModel("alias"), 0),
    ],
)
def test_model_is_the_wanted_one_or_the_first_that_fits(models, wanted, chosen, problems):
    choice = choose_model(CLIENTS["codex"], models, wanted)
    assert (choice.model, len(choice.problems)) == (chosen, problems)


def test_model_is_none_if_no_model_chats():
    assert choose_model(CLIENTS["codex"], [EMBEDDER]) is None


def test_model_that_does_not_fit_has_reasons():
    choice = choose_model(CLIENTS["codex"], [OfferedModel("m", 4096, ())])
    assert choice.problems == (
        "Codex needs a model that calls tools; the template of 'm' has no tools.",
        "The window of 'm' has 4096 tokens. The prompt of Codex alone takes about 10000: give the model a window of at "
        "least 20000 tokens.",
    )
    assert choose_model(CLIENTS["aider"], [OfferedModel("m", 4096, ())]).problems == ()
    assert render_needs(CLIENTS["aider"]) == ""


def test_models_are_read_from_the_list_of_the_gateway():
    body = {
        "object": "list",
        "data": [{"id": "m", "object": "model", "context_length": 9, "capabilities": ["tools"]}, {"id": "n"}],
    }
    assert read_models(json.dumps(body).encode()) == (OfferedModel("m", 9, TOOLS), OfferedModel("n"))
    with pytest.raises(msgspec.MsgspecError):
        read_models(b"{}")
