"""Test the table of the endpoints that are passed on."""

from gateway.backends.kinds import ROWS
from gateway.backends.openai.usage import usage_at_end
from gateway.backends.pass_through import ALIASES, OPERATIONS, PASS_THROUGH
from gateway.events import Usage
from gateway.server.http.paths import canonical


def test_pass_through_rows_are_unique_and_are_all_the_endpoints_of_the_kinds():
    paths = [row.path for row in PASS_THROUGH]
    assert len({*paths}) == len(paths) and all(path.startswith("/v1/") for path in paths)
    for row in PASS_THROUGH:
        assert row.kinds
        assert row.place == "json" or not row.example
    assert {path for row in ROWS.values() for path in row.endpoints} == {*paths}
    assert OPERATIONS["/v1/audio/speech"] == "audio_speech" and OPERATIONS["/pooling"] == "pooling"


def test_pass_through_alias_leads_to_its_endpoint():
    assert [canonical(path, {"rerank"}) for path in ("/rerank", *ALIASES)] == ["/v1/rerank", *ALIASES.values()]


def test_usage_at_the_end_of_a_response_is_read():
    counts = b'"usage": {"type": "tokens", "input_tokens": 3, "output_tokens": 4}'
    assert usage_at_end(b'lf of a text", ' + counts + b"}") == Usage(3, 4)
    assert usage_at_end(b'data: {"usage": {"prompt_tokens": 1}}\n\ndata: {' + counts + b"}\n\n") == Usage(3, 4)
    assert usage_at_end(b'{"usage": {"prompt_tokens": 9}, "usage": {"cut') == Usage(9, 0)
    assert usage_at_end(b'{"usage": {"input_tokens_details": 5}}') is None
    assert usage_at_end(b'{"text": "\\"usage\\": {}", "usage": null}') is None
