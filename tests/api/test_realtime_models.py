"""Test which models a message of a speech session names."""

import json

import pytest

from gateway.api.named_models import session_models
from gateway.errors import BadRequest

DEEP = "[" * 100_000 + "]" * 100_000
TOOL = {"type": "function", "name": "f", "parameters": {"properties": {"model": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("message", "models"),
    [
        ('{"type": "session.update", "model": "a"}', {"a"}),
        ('{"session": {"model": "a", "audio": {"input": {"transcription": {"model": "b"}}}}}', {"a", "b"}),
        ('{"response": [{"MODEL": "a"}]}', {"a"}),
        ('{"session": {"mod\\u0065l": "a"}}', {"a"}),
        ('{"session": {"model": "a"}, "session": {}}', {"a"}),
        ('{"model": "a", "model": "b", "big": ' + "1" * 5000 + "}", {"a", "b"}),
        (' \ufeff{"model": "a"} and more', {"a"}),
        ('{"model": "a\n"}', {"a\n"}),
        ('{"model": null, "type": "model"}', set()),
        ('{"type": "input_audio_buffer.append", "audio": "AAAA"}', set()),
        ('{"text": "the model", "x": "\\u00e9"}', set()),
        ('{"model": "a"', set()),
        ('{"item": {"model": "a"}, "metadata": {"model": "b"}, "variables": {"model": "c"}}', set()),
        (json.dumps({"model": "a", "tools": [TOOL]}), {"a"}),
    ],
)
def test_realtime_message_names_models(message, models):
    assert session_models(message.encode()) == models


def test_realtime_message_of_bytes_names_models_as_a_lenient_server_reads_it():
    assert session_models(b'{"x": "\xff", "model": "a"}') == {"a"} and session_models(b"\x00model\xff") == set()


def test_realtime_message_that_is_nested_too_deeply_is_refused():
    with pytest.raises(BadRequest, match="nested too deeply"):
        session_models(f'{{"model": "m", "x": {DEEP}}}'.encode())
