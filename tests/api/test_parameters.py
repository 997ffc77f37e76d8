"""Test the parameters that the operator sets for a model: their faults, and requests with them."""

import pytest

from gateway.api import completions
from gateway.api.chat import schema
from gateway.api.parameters import ModelParameters, parameter_faults
from gateway.config import ConfigError, build_config, read_document
from gateway.request import Request
from gateway.warnings import Warnings

OLLAMA, VLLM = ("ollama",), ("vllm",)


# What can be set


@pytest.mark.parametrize(
    ("parameters", "kinds"),
    [
        ({"temperature": 0.6, "top_p": 0.95, "max_tokens": 8192, "seed": 1, "stop": ["a"]}, OLLAMA),
        ({"num_ctx": 32768, "top_k": 20, "think": False, "keep_alive": "1h", "options": {"num_gpu": 1}}, OLLAMA),
        ({"n_ctx": 8192}, OLLAMA),
        ({"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}}, VLLM),
        ({"logit_bias": {"5": 1}, "service_tier": "flex", "verbosity": "low"}, ("openai",)),
        ({"of_a_new_server": {"a": [1]}}, ("openai", "vllm")),
        ({"num_ctx": 8192}, ("vllm", "ollama")),
        ({"temperature": 1}, ()),
    ],
)
def test_parameters_of_the_api_and_of_the_kind_are_accepted(parameters, kinds):
    assert [*parameter_faults(parameters, kinds)] == []


@pytest.mark.parametrize(
    ("name", "value", "kinds", "message"),
    [
        ("temperatures", 1, OLLAMA, "unknown parameter; did you mean 'temperature'?"),
        ("num_ctxx", 1, ("openai",), "unknown parameter; did you mean 'num_ctx'?"),
        ("of_no_server", 1, OLLAMA, "the model's backend (kind ollama) does not know it"),
        ("num_ctx", 8192, VLLM, "the model's backend (kind vllm) does not support it"),
        ("num_ctx", 8192, ("vllm", "sglang", "vllm"), "the model's backend (kind sglang, vllm) does not support it"),
        ("service_tier", "flex", VLLM, "the model's backend (kind vllm) does not support it"),
        ("messages", [], OLLAMA, "is no parameter of a model; only the client can set it"),
        ("response_format", {}, OLLAMA, "is no parameter of a model; only the client can set it"),
        ("max_completion_tokens", 1, OLLAMA, "is no parameter of a model; write max_tokens"),
        ("temperature", None, OLLAMA, "has no value"),
        ("temperature", "hot", OLLAMA, "invalid type for 'temperature': expected a decimal, but got a string instead"),
        ("reasoning_effort", "huge", VLLM, "invalid value: 'huge'. Supported values are: "),
        ("num_ctx", "8k", OLLAMA, "invalid type for 'num_ctx': expected an integer, but got a string instead"),
        ("num_ctx", 0, OLLAMA, "invalid 'num_ctx': integer below minimum value. Expected a value >= 1, but got 0"),
        ("chat_template_kwargs", 1, VLLM, "invalid type for 'chat_template_kwargs': expected an object, but got "),
    ],
)
def test_parameters_with_a_fault_are_refused(name, value, kinds, message):
    ((found, text),) = parameter_faults({name: value}, kinds)
    assert found == name and text.startswith(message), text


def config_of(model, kind="ollama"):
    text = f"backends: {{gpu: {{kind: {kind}, url: 'http://h'}}}}\nmodels:\n  m: {model}\n"
    return build_config(read_document(text, "g", {}), ("auto",), check_parameters=parameter_faults)


def test_parameters_are_checked_with_the_configuration():
    assert config_of("{defaults: {num_ctx: 8192}}").models["m"].defaults == {"num_ctx": 8192}
    assert config_of("{defaults: , overrides: }").models["m"].overrides == {}
    for model, kind, message in [
        ("{overrides: {num_ctx: 1.5}}", "ollama", "g:3: models.m.overrides.num_ctx: invalid type for 'num_ctx': "),
        ("{defaults: {num_ctx: 8192}}", "vllm", "g:3: models.m.defaults.num_ctx: the model's backend (kind vllm) does"),
        ("{backends: [{name: gpu}], defaults: {a: 1}}", "ollama", "g:3: models.m.defaults.a: the model's backend"),
        ("{defaults: {seed: 1}, overrides: {seed: 2}}", "vllm", "g:3: models.m.defaults.seed: is also in overrides"),
        ("{defaults: 8192}", "vllm", "g:3: models.m.defaults: should be a mapping"),
        ("{backends: [{name: no}], defaults: {num_ctx: 1}}", "vllm", "g:3: models.m.backends[0]: unknown backend 'no'"),
        ("{defaults: {num_ctx: 8192}}", "vlm", "g:1: backends.gpu.kind: unknown value 'vlm'; did you mean 'vllm'?"),
    ]:
        with pytest.raises(ConfigError) as caught:
            config_of(model, kind)
        assert len(caught.value.faults) == 1 and str(caught.value).startswith(message), str(caught.value)


# What becomes of a request


def applied(client, limit=None, fields=schema.KNOWN, **parameters):
    """Return the fields and the limit of a client's request with the parameters, their names and the warnings."""
    ledger = Warnings()
    request = Request(model="m", messages=(), max_tokens=limit, rest=client)
    both = ModelParameters(parameters.get("defaults", {}), parameters.get("overrides", {}))
    made, names = both.apply(request, fields, "max_output_tokens", ledger)
    assert request.rest is client and names <= made.own_fields
    return made.rest, made.max_tokens, set(names), ledger.entries()


@pytest.mark.parametrize(
    ("client", "defaults", "fields", "names"),
    [
        ({}, {"temperature": 0.6}, {"temperature": 0.6}, {"temperature"}),
        ({"temperature": 0}, {"temperature": 0.6}, {"temperature": 0}, set()),
        ({"n_ctx": 1}, {"num_ctx": 2}, {"n_ctx": 1}, set()),
        ({"options": {"num_ctx": 1}}, {"num_ctx": 2}, {"options": {"num_ctx": 1}}, set()),
        ({"think": False}, {"reasoning_effort": "high"}, {"think": False}, set()),
        (
            {"chat_template_kwargs": {"enable_thinking": False}},
            {"reasoning_effort": "high"},
            {"chat_template_kwargs": {"enable_thinking": False}},
            set(),
        ),
        (
            {"reasoning_effort": "high"},
            {"chat_template_kwargs": {"enable_thinking": False, "style": 1}},
            {"reasoning_effort": "high", "chat_template_kwargs": {"style": 1}},
            {"chat_template_kwargs"},
        ),
        (
            {"chat_template_kwargs": {"a": 1}},
            {"chat_template_kwargs": {"a": 2, "b": 3}},
            {"chat_template_kwargs": {"a": 1, "b": 3}},
            set(),
        ),
        ({"options": "x"}, {"options": {"num_gpu": 1}}, {"options": "x"}, set()),
    ],
)
def test_default_parameters_apply_where_the_client_sent_nothing(client, defaults, fields, names):
    assert applied(client, defaults=defaults) == (fields, None, names, [])


@pytest.mark.parametrize(
    ("client", "overrides", "fields", "warnings"),
    [
        ({}, {"temperature": 0.6}, {"temperature": 0.6}, []),
        ({"temperature": 0.6}, {"temperature": 0.6}, {"temperature": 0.6}, []),
        ({"temperature": 0}, {"temperature": 0.6}, {"temperature": 0.6}, ["dropped:temperature"]),
        ({"n_ctx": 1}, {"num_ctx": 2}, {"num_ctx": 2}, ["dropped:n_ctx"]),
        (
            {"options": {"num_ctx": 1, "seed": 1}},
            {"num_ctx": 2},
            {"options": {"seed": 1}, "num_ctx": 2},
            ["dropped:options.num_ctx"],
        ),
        (
            {"chat_template_kwargs": {"a": 1, "b": 2, "c": 3}},
            {"chat_template_kwargs": {"a": 1, "b": 4}},
            {"chat_template_kwargs": {"a": 1, "b": 4, "c": 3}},
            ["dropped:chat_template_kwargs.b"],
        ),
        ({"think": True}, {"reasoning_effort": "none"}, {"reasoning_effort": "none"}, ["dropped:think"]),
        # A server in Go ignores the case of letters, also that of a Kelvin sign.
        ({"Temperature": 0}, {"temperature": 0.6}, {"temperature": 0.6}, ["dropped:Temperature"]),
        ({"top_\u212a": 1}, {"top_k": 2}, {"top_k": 2}, ["dropped:top_?"]),
        ({"Options": {"Num_Ctx": 1}}, {"num_ctx": 2}, {"Options": {}, "num_ctx": 2}, ["dropped:Options.Num_Ctx"]),
        ({"GuardRails": []}, {"guardrails": ["x"]}, {"guardrails": ["x"]}, ["dropped:GuardRails"]),
        (
            {"options": {"a": 1}, "OPTIONS": {"a": 2}},
            {"options": {"b": 3}},
            {"options": {"a": 1, "b": 3}},
            ["dropped:OPTIONS"],
        ),
        (
            {"extra_body": {"temperature": 0, "x": 1}},
            {"temperature": 0.6},
            {"extra_body": {"x": 1}, "temperature": 0.6},
            ["dropped:extra_body.temperature"],
        ),
    ],
)
def test_override_parameters_replace_what_the_client_sent(client, overrides, fields, warnings):
    found, _, _, warned = applied(client, overrides=overrides)
    assert (found, warned) == (fields, warnings)


def test_override_of_a_defaults_other_name_is_no_warning():
    assert applied({}, defaults={"n_ctx": 1}, overrides={"num_ctx": 2})[3] == []


@pytest.mark.parametrize(
    ("client", "limit", "overrides", "expected"),
    [
        ({"num_predict": 900}, None, {"max_tokens": 50}, ({}, 50, ["dropped:num_predict"])),
        (
            {"options": {"num_predict": 900}, "max_tokens": 9},
            9,
            {"max_tokens": 50},
            ({"options": {}, "max_tokens": 9}, 50, ["dropped:max_output_tokens", "dropped:options.num_predict"]),
        ),
        ({"Max_Tokens": 900}, None, {"max_tokens": 50}, ({}, 50, ["dropped:Max_Tokens"])),
        (
            {"extra_body": {"max_tokens": 900}},
            None,
            {"max_tokens": 50},
            ({"extra_body": {}}, 50, ["dropped:extra_body.max_tokens"]),
        ),
        ({}, 900, {"n_predict": 50}, ({"n_predict": 50}, None, ["dropped:max_output_tokens"])),
        ({}, 900, {"num_predict": -1}, ({"num_predict": -1}, None, ["dropped:max_output_tokens"])),
        ({}, None, {"max_new_tokens": 50}, ({"max_new_tokens": 50}, None, [])),
    ],
)
def test_override_of_the_token_limit_replaces_it_under_all_its_names(client, limit, overrides, expected):
    rest, tokens, _, warnings = applied(client, limit, overrides=overrides)
    assert (rest, tokens, warnings) == expected


def test_token_limit_is_a_parameter_of_each_api():
    limit = {"max_tokens": 9}
    assert applied({}, defaults=limit) == ({}, 9, {"max_tokens", "max_output_tokens"}, [])
    assert applied({}, 5, defaults=limit) == ({}, 5, set(), [])
    assert applied({}, 9, overrides=limit)[1:] == (9, {"max_tokens", "max_output_tokens"}, [])
    assert applied({}, 5, overrides=limit)[1:] == (
        9,
        {"max_tokens", "max_output_tokens"},
        ["dropped:max_output_tokens"],
    )


def test_parameters_of_chats_alone_are_left_out_of_a_completion():
    both = {"reasoning_effort": "low", "temperature": 1, "num_ctx": 8192}
    assert applied({}, fields=completions.KNOWN, defaults=both)[0] == {"temperature": 1, "num_ctx": 8192}


def test_warnings_about_parameters_are_discarded():
    ledger = Warnings()
    for name in ("stop", "a"):
        ledger.add("dropped", name)
    mark = ledger.savepoint()
    for name in ("stop_token_ids", "a.b", "c"):
        ledger.add("forwarded", name)
    assert ledger.take_unsent().endswith("forwarded:c")
    ledger.add("dropped", "d")
    ledger.discard(mark, {"stop", "a", "x"})
    assert ledger.entries() == ["dropped:stop", "dropped:a", "forwarded:stop_token_ids", "forwarded:c", "dropped:d"]
    assert ledger.take_unsent() == "dropped:d"
    ledger.discard(mark, {"x"})
    assert ledger.take_unsent() == ""
