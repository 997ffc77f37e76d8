"""Test the metadata of models as Anthropic lists them."""

from gateway.backends.kinds import ROWS
from gateway.backends.model_metadata import ModelMetadata

ON, OFF = {"supported": True}, {"supported": False}


def read(**members):
    (ask,) = ROWS["anthropic"].metadata.models
    assert (ask.path, ask.fields("", {})) == ("/v1/models", {"limit": 1000})
    return ask.read({"data": [{"id": "claude", "type": "model", **members}]})["claude"]


def test_metadata_of_anthropic_has_window_and_abilities():
    capabilities = {"thinking": ON, "image_input": OFF, "batch": ON, "citations": None}
    known = read(max_input_tokens=200000, capabilities=capabilities)
    assert known == ModelMetadata(200000, frozenset(("tools", "reasoning")))
    assert read(capabilities={"image_input": ON, "thinking": None}).abilities == {"tools", "vision"}


def test_metadata_of_anthropic_may_be_unknown():
    assert read(max_input_tokens=None, capabilities=None) == ModelMetadata()
