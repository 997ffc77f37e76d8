"""Test which models a body names besides its `model`."""

import pytest

from gateway.api.named_models import models_in_fields

SCHEMA = {"type": "object", "properties": {"model": {"type": "string", "enum": ["a"]}}}


@pytest.mark.parametrize(
    ("fields", "models"),
    [
        ({"models": ["a", "b"], "route": "fallback"}, {("models", "a"), ("models", "b"), ("route", "fallback")}),
        ({"fallbacks": [{"model": "a"}, "b"]}, {("fallbacks", "a"), ("fallbacks", "b")}),
        ({"context_window_fallbacks": [{"m": ["a"]}]}, {("context_window_fallbacks", "a")}),
        ({"lora_path": "a"}, {("lora_path", "a")}),
        ({"lora": [{"id": 0}]}, {("lora", "0")}),
        ({"LoRAs": ["a"], "Draft_Model": "b"}, {("LoRAs", "a"), ("Draft_Model", "b")}),
        ({"draft_mode\u017f": "a", "adapter\u017f": "b"}, {("adapter\u017f", "b")}),
        ({"adapters": "a", "adapter_id": "b"}, {("adapters", "a"), ("adapter_id", "b")}),
        ({"extra_body": {"model": "a"}}, {("extra_body", "a")}),
        ({"plugins": [{"id": "auto", "allowedModels": ["a"]}]}, {("plugins", "a")}),
        ({"tools": [{"type": "advisor", "name": "advisor", "model": "a"}]}, {("tools", "a")}),
    ],
)
def test_fields_name_models(fields, models):
    assert {*models_in_fields({"model": "m", **fields})} == models


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": "", "model": "a"}], "input": [{"model": "a"}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]},
        {"tools": [{"name": "f", "input_schema": SCHEMA}]},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
        {"extra_body": {"guided_json": SCHEMA}},
        {"metadata": {"model": "a"}, "chat_template_kwargs": {"model_identity": "You are a."}},
        {"fallback_credit_token": "a"},
        {"provider": {"allow_fallbacks": False}, "models": [], "lora_path": "", "fallbacks": None},
        {"return_routed_experts": 1, "exploration": 0.5, "modalities": ["text"]},
    ],
)
def test_fields_name_no_models(fields):
    assert [*models_in_fields({"model": "m", **fields})] == []


def test_deeply_nested_fields_name_models():
    value = {"model": "a"}
    for _ in range(10_000):
        value = {"x": [value]}
    assert [*models_in_fields({"x": value})] == [("x", "a")]
