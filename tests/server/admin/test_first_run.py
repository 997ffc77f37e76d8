"""Test what the first-run page says: the model of its texts, what to paste, and whom the gateway has served."""

import pytest

from gateway.server.admin.first_run import build_first_run, is_first_run
from gateway.server.admin.overview_model import ModelView, Overview, ThroughputView, WorkersView
from support.app import bearer, gateway
from support.overview import KEYS
from support.upstream import HELLO

REST = ThroughputView(0, 0, 0)
SMALL = ModelView("small", "listed", [], 4096, ["tools"], REST, [])
LARGE = ModelView("large", "listed", [], 65536, ["tools"], REST, [])
WORDLESS = ModelView("wordless", "listed", [], None, None, REST, [])


def overview(*models):
    return Overview("1", 0, 60, WorkersView(1, 1), REST, [*models], 0, [], [], [])


def first_run(*models, keyed=False, wanted=""):
    return build_first_run(overview(*models), "http://host:1", keyed=keyed, wanted=wanted)


def texts(guide):
    return {client.name: "\n".join(step.text for step in client.steps) for client in guide.clients}


@pytest.mark.parametrize(
    ("models", "wanted", "chosen"),
    [
        ([SMALL, LARGE], "", "large"),
        ([SMALL, LARGE], "small", "small"),
        ([SMALL], "other", "small"),
        ([], "any", "MODEL"),
    ],
)
def test_first_run_takes_the_wanted_model_or_the_one_that_fits_an_agent(models, wanted, chosen):
    guide = first_run(*models, wanted=wanted)
    assert guide.model == chosen and guide.models == [one.id for one in models]
    for name, text in texts(guide).items():
        assert name == "open-webui" or chosen in text


def test_first_run_has_the_address_and_no_key_where_none_is_needed():
    shown = texts(first_run(LARGE))
    assert list(shown) == ["curl", "openai-python", "codex", "claude", "open-webui"]
    for name, text in shown.items():
        assert "http://host:1" in text and "GATEWAY_KEY" not in text, name
    assert "model_context_window = 65536" in shown["codex"]


def test_first_run_names_the_variable_of_the_key_and_never_a_key():
    guide = first_run(WORDLESS, keyed=True)
    for name, text in texts(guide).items():
        assert "GATEWAY_KEY" in text, name
    assert all("Set GATEWAY_KEY to an API key of this gateway." in client.notes for client in guide.clients)


def test_first_run_says_which_clients_a_model_does_not_fit():
    problems = {client.name: len(client.problems) for client in first_run(SMALL).clients}
    assert problems == {"curl": 0, "openai-python": 0, "codex": 1, "claude": 1, "open-webui": 0}


def test_first_run_code_for_python_compiles():
    for keyed in (True, False):
        compile(texts(first_run(LARGE, keyed=keyed))["openai-python"], "example", "exec")


def test_first_run_ends_with_a_request():
    assert is_first_run(overview())


async def test_first_run_page_shows_backends_with_their_causes_and_the_chosen_model():
    more_backends = {"gone": {"url": "http://127.0.0.1:1", "kind": "vllm"}}
    more_models = {"other": {"backends": ["up"]}} | {f"m{number}": {"backends": ["up"]} for number in range(5)}
    async with gateway(HELLO, more_backends=more_backends, more_models=more_models) as site:
        text = (await site.client.get("/?model=other")).text
    assert "connection refused" in text and "vllm at http://127.0.0.1:1" in text
    assert "m, other, m0, m1, m2 and 2 more" in text and "<option selected>other</option>" in text
    assert "http://gateway/v1" in text and "no API key needed" in text


async def test_first_run_page_says_what_to_start_where_there_is_no_backend_or_model(monkeypatch):
    async with gateway(HELLO, model=False) as site:
        text = (await site.client.get("/")).text
        assert "<option>MODEL</option>" in text and "It lists no model." in text
        with monkeypatch.context() as patch:  # the gateway closes the connections of its backends at its end
            patch.setattr(site.app.state.directory, "backends", {})
            assert "The configuration has no backend." in (await site.client.get("/")).text


async def test_first_run_is_a_document_for_the_scope_admin():
    async with gateway(HELLO, auth={"keys": KEYS}) as site:
        refused = await site.client.get("/admin/first-run")
        answer = await site.client.get("/admin/first-run", params={"model": "m"}, headers=bearer("eve-key"))
    assert refused.status_code == 401
    found = answer.json()
    assert (found["root"], found["keyed"], found["model"]) == ("http://gateway", True, "m")
    assert [one["name"] for one in found["backends"]] == ["up"] and found["clients"][0]["steps"][0]["text"]
    assert answer.headers["cache-control"] == "no-store"
