"""Test the long texts of a body: it is decoded to the same value, or refused with the same words, as in one piece."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.body import Counts, decode_body, known
from gateway.api.chat import parse_chat
from gateway.api.long_texts import _LONG, _MARK, fold
from gateway.backends import KINDS
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.openai.request_body import BodyTarget, chat_body
from gateway.errors import BadRequest, TooLarge
from gateway.warnings import Warnings

DATA = "data:image/png;base64," + "iVBOR/+A" * (_LONG // 8)
TEXTS = {
    "an image": DATA,
    "as short as may be": "A" * _LONG,
    "a character too short": "A" * (_LONG - 1),
    "all characters without escapes": "".join(map(chr, [33, *range(35, 92), *range(93, 128), 32])) * 1000,
    "an escape at its end": DATA + "\\n",
    "escapes alone": "\\u0041" * _LONG,
    "an escaped quote": DATA + '\\"' + DATA,
    "backslashes before its end": DATA + "\\\\",
    "other letters": "é" * _LONG,
    "a control character": DATA + "\n" + DATA,
    "a null character": "A" * _LONG + "\0",
    "half a surrogate pair": DATA + "\\ud800",
    "spaces": " " * _LONG,
    "numbers": "1," * _LONG,
    "brackets": "[{:" * _LONG,
}
BODIES = {
    "one": '{"a":"%s"}',
    "two": '{"a":"%s", "b" : ["%s"]}',
    "a short one before": '{"a":"x","b":{"c":[1,null,{"d":"%s"}]}}',
    "a name": '{"%s":1}',
    "a name of the same": '{"%s":"%s"}',
    "the same name twice": '{"a":"%s","a":"%s"}',
    "null": '{"a":null,"b":"%s"}',
    "no object": '["%s"]',
    "a text": '"%s"',
    "no end": '{"a":"%s',
    "no quotes": '{"a":%s}',
    "between two texts": '{"a":"x"%s"y"}',
    "in a list between two texts": '["x",%s,"y"]',
    "behind the end": '{"a":1}%s""',
    "another model": '{"Model":"%s"}',
    "too deep": '{"a":"%s","b":' + "[" * 601 + "]" * 601 + "}",
}


def outcome_of(decode, raw):
    """Return the value, or the words of the error."""
    try:
        return decode(raw)
    except (BadRequest, TooLarge) as error:
        return error.problem


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_long_texts_change_no_body(body):
    for first in TEXTS.values():
        for second in (DATA, first):
            given = body.replace("%s", first, 1).replace("%s", second)
            raw = given.encode()
            assert outcome_of(decode_body, raw) == outcome_of(known, raw), given[:99]


def test_long_texts_are_not_mixed_up_with_a_text_that_reads_like_a_mark():
    raw = f'{{"a":"{DATA}","b":"{_MARK}0"}}'.encode()
    assert decode_body(raw) == {"a": DATA, "b": f"{_MARK}0"}


PIECES = st.sampled_from([*TEXTS.values(), '"', '"', ",", ":", "{", "}", "[", "]", '"a":', "1", "\\", " ", "é"])


@given(st.lists(PIECES, max_size=12), st.booleans())
def test_long_texts_change_no_error(pieces, encloses):
    raw = ("".join(pieces) if not encloses else '{"a":"' + '","'.join(pieces) + '"}').encode()
    assert outcome_of(lambda one: decode_body(one, Counts(items=1 << 30)), raw) == outcome_of(known, raw)


STRINGS = st.sampled_from([DATA, "A" * _LONG, "B" * (_LONG - 1), "é" * _LONG, "a\n" * _LONG]) | st.text(max_size=9)
VALUES = st.recursive(
    STRINGS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4),
    max_leaves=9,
)


@given(st.dictionaries(st.text(max_size=9), VALUES, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_long_texts_are_where_they_were(body, ascii, indent):
    raw = json.dumps(body, ensure_ascii=ascii, indent=indent).encode("utf-8", "surrogatepass")
    assert outcome_of(decode_body, raw) == outcome_of(known, raw)


def test_long_texts_are_taken_out():
    folded = fold(f'{{"a":"{DATA}","b":["{DATA}"],"c":"x"}}'.encode())
    assert len(folded.rest) < 99
    assert [*folded.texts.values()] == [DATA] * 2 and len(folded.sent) == 2


def test_long_texts_do_not_hide_a_body_of_too_many_values():
    raw = f'{{"a":"{DATA}","b":[{",".join(["null"] * 99)}]}}'.encode()
    with pytest.raises(TooLarge, match="more than 16 values"):
        decode_body(raw, Counts(items=2))
    with pytest.raises(BadRequest, match="maximum length 2"):
        decode_body(f'{{"a":"{DATA}","b":["", "", ""]}}'.encode(), Counts(items=2, parts=1))


URLS = [DATA, TEXTS["all characters without escapes"], "A" * (_LONG + 1), DATA + "é", "a\\n" * _LONG, "https://x/y.png"]


@pytest.mark.parametrize("large", [False, True])
def test_long_texts_go_to_the_backend_as_they_came(large):
    parts = [f'{{"type":"image_url","image_url":{{"url":"{url}"}}}}' for url in URLS]
    user = f'{{"role":"user","content":[{",".join(parts)}]}}'
    past = f'{{"role":"user","content":"{"é " * _LONG * 6 * large}{DATA}"}}'
    raw = f'{{"model":"m","messages":[{past},{user}],"x":"{DATA}"}}'.encode()
    request = parse_chat(raw).request
    assert request.large == large and len(request.texts) == 5 - large
    body = chat_body(request, BodyTarget("m", KINDS["vllm"], MessagePolicy()), set(), Warnings())
    assert json.loads(body) == {**json.loads(raw), "stream": False}
    assert all(url.encode() in body for url in URLS)
