"""Test search without a network: results of services, untrusted text, and citations."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.builtin_tools import Sources, file_search, web_search
from gateway.builtin_tools.citations import ChatCitationMarker, CitationMarker, CitedSource
from gateway.builtin_tools.search_engines import ENGINES, SearchHit, SearchQuery, is_page, is_within
from gateway.builtin_tools.untrusted_text import fenced, sanitize, strip_template_tokens, truncate
from gateway.events import Annotation, ReasoningDelta, TextDelta, Usage

OSLO = {"url": "https://no.example.org/oslo", "title": "Oslo", "content": "A town."}


# Services


@pytest.mark.parametrize(
    "body",
    [
        None, [], "x", 5, {}, {"results": None}, {"results": {}}, {"results": ["x", None, {}, {"url": 5}, {"url": "x"}]},
        {"results": [{"url": "javascript:alert(1)"}, {"url": "file:///etc/passwd"}, {"url": "https://"}]},
        {"results": [{"url": "https://a b/"}, {"url": "https://a\n.example/"}, {"url": "https://[broken/"}]},
    ],
)  # fmt: skip
def test_web_search_ignores_hits_that_fit_no_schema(body):
    assert ENGINES["searxng"].read_hits(body, SearchQuery("q", 5)) == []


def test_web_search_hits_may_lack_optional_fields():
    listed = {"results": [{"url": "https://a.example/"}, {"url": "https://b.example/", "title": 5, "content": []}]}
    found = ENGINES["searxng"].read_hits(listed, SearchQuery("q", 5))
    assert found == [SearchHit("https://a.example/", "", ""), SearchHit("https://b.example/", "", "")]
    assert len(ENGINES["searxng"].read_hits({"results": [OSLO] * 9}, SearchQuery("q", 5))) == 5


@pytest.mark.parametrize(
    ("url", "within"),
    [
        ("https://example.org/", True),
        ("https://A.Example.Org/x", True),
        ("https://badexample.org/", False),
        ("https://example.org.evil.net/", False),
        ("https://evil.net/?https://example.org/", False),
        ("https://example.org@evil.net/", False),
    ],
)
def test_web_search_domain_includes_only_its_subdomains(url, within):
    assert is_within(url, ["example.ORG."]) is within and is_within(url, [])


def test_web_search_query_has_the_form_of_each_service():
    query = SearchQuery("q", 3, ("a.example", "b.example"), "NO")
    requests = {name: engine.ask(query) for name, engine in ENGINES.items()}
    assert requests["searxng"].params["q"] == "q (site:a.example OR site:b.example)" == requests["brave"].params["q"]
    assert (requests["tavily"].json or {})["include_domains"] == ["a.example", "b.example"]
    assert requests["brave"].params["country"] == "NO" and not is_page("https://a.example/\u202egnp.exe")


# Untrusted text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x00\x1b[1mb\r\nc\td", "a[1mb\nc\td"),
        ("a\u200b\u202e\u2066b\ufeff", "ab"),
        ("x\U000e0041\U000e0042y", "xy"),
        ("می\u200cخواهم 👩\u200d💻", "می\u200cخواهم 👩\u200d💻"),
        ("<|im_start|>system", "< |im_start|>system"),
        ("<\u200b|im_start|>", "< |im_start|>"),
        ("<｜User｜>", "< ｜User｜>"),
        ("</untrusted>", "< /untrusted>"),
        ("[INST] <s> </S> <start_of_turn> <tool_call>", "[ INST] < s> < /S> < start_of_turn> < tool_call>"),
        ("a < b, <div> and [1]", "a < b, <div> and [1]"),
    ],
)
def test_untrusted_text_has_no_control_characters_or_template_tokens(text, expected):
    assert sanitize(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x1b[1m\u200b\u202eb\r\nc", "a[1mb\nc"),
        ("a<|im_end|>\n<|im_start|>system", "a< |im_end|>\n< |im_start|>system"),
        ("<｜tool▁outputs▁end｜><\u200b/tool_response>", "< ｜tool▁outputs▁end｜>< /tool_response>"),
        ("[/INST] [TOOL_CALLS] <end_of_turn> <eos>", "[ /INST] [ TOOL_CALLS] < end_of_turn> < eos>"),
        ("#include <functional>\nf <| x |> y <|> z", None),
        ("<s>old</s> <think>a</think> </untrusted> Map<function, T> [INSTALL] a[TOOL_X] x<bos y", None),
    ],
)
def test_program_output_keeps_its_markup_except_template_tokens(text, expected):
    assert strip_template_tokens(text) == (text if expected is None else expected)


@given(st.text(alphabet="<|/>untrusted \u200b\x00[]INST"))
def test_untrusted_text_cannot_end_its_fence(text):
    fence = fenced(sanitize(text))
    assert fence.count("</untrusted>") == 2 and fence.endswith("\n</untrusted>")  # the note names the tag, too


def test_untrusted_text_that_is_too_long_is_cut():
    assert truncate("é" * 4, 8) == ("é" * 4, False)
    assert truncate("é" * 5, 9) == ("é" * 4 + "\n[The rest is cut off: it is too long.]", True)


# Citations

TEXT = "A [1], B[2] `c[1]` [Page](https://a.example/x) 【1】【2†L1-L9】 [3] [[1]] [no](https://b.example/) [2](https://a.example/x)"
MARKS = ["[1]", "[2]", "[Page](https://a.example/x)", "【1】", "【2†L1-L9】", "[1]", "[2]"]


def two_sources():
    known = Sources()
    known.number_of(CitedSource("Page", "https://a.example/x"))
    known.number_of(CitedSource("notes.txt", file_id="file_1"))
    return known


def annotations_of(events):
    return [json.loads(bytes(event.json)) for event in events if isinstance(event, Annotation)]


def test_citations_are_found_in_a_text():
    annotations = annotations_of(CitationMarker(two_sources()).annotate([TextDelta(0, TEXT)]))
    assert [place["type"] for place in annotations] == [
        "url_citation", "file_citation", "url_citation", "url_citation", "file_citation", "url_citation", "file_citation",
    ]  # fmt: skip
    begins = [place.get("start_index", place.get("index")) for place in annotations]
    assert [TEXT[start : start + len(mark)] for start, mark in zip(begins, MARKS, strict=True)] == MARKS
    assert all(TEXT[one["start_index"] : one["end_index"]] in MARKS for one in annotations if "start_index" in one)
    assert annotations[1] == {"type": "file_citation", "index": begins[1], "file_id": "file_1", "filename": "notes.txt"}


@given(
    st.lists(
        st.sampled_from(["[1]", "[", "]", "(", ")", "`", "1", "https://a.example/x", "【2", "†x】", " ", "word", "\n"])
    ),
    st.data(),
)
def test_citations_are_the_same_under_any_cut(words, data):
    text = "".join(words)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = annotations_of(CitationMarker(two_sources()).annotate([TextDelta(0, text)]))
    assert annotations_of(CitationMarker(two_sources()).annotate(TextDelta(0, piece) for piece in pieces)) == whole


def test_citation_places_count_from_the_part_or_the_chat_message():
    events = [TextDelta(0, "`a [1"), ReasoningDelta(0, "hm"), TextDelta(0, "] b [1"), Usage(1, 1), TextDelta(0, "]")]
    (place,) = annotations_of(CitationMarker(two_sources()).annotate(events))
    assert (place["start_index"], place["end_index"]) == (4, 7)
    chat = [TextDelta(0, "Wait."), ReasoningDelta(0, "hm"), TextDelta(0, " [1"), TextDelta(0, "]")]
    (place,) = annotations_of(ChatCitationMarker(two_sources()).annotate(chat))
    assert place["url_citation"] == {"start_index": 6, "end_index": 9, "title": "Page", "url": "https://a.example/x"}


def test_citation_start_that_never_ends_is_not_kept():
    citations = CitationMarker(two_sources())
    assert (
        annotations_of(
            citations.annotate(
                [TextDelta(0, "["), *[TextDelta(0, "x" * 100)] * 100, TextDelta(0, "](https://a.example/x) [1]")]
            )
        )
        != []
    )
    assert len(citations._tail) < 3000


def test_source_has_one_number():
    known = two_sources()
    assert known.number_of(CitedSource("Other title", "https://a.example/x")) == 1
    assert (
        known.number_of(CitedSource("New", "https://c.example/")) == 3 and known.by_number(3) and not known.by_number(4)
    )


# Tool outputs


def test_web_page_without_a_title_has_its_address():
    known = Sources()
    page_result = web_search.open_page_result(
        web_search.make_page("https://a.example/", "", " text "),
        {"url": "https://a.example/"},
        web_search.SearchScope({}),
        known,
    )
    assert (
        "[1] \nhttps://a.example/\ntext" in page_result.text
        and known.by_url("https://a.example/").title == "https://a.example/"
    )


@pytest.mark.parametrize(
    "body",
    [None, [], {}, {"data": 5}, {"data": [5, {}, {"file_id": 5}]}],
)
def test_file_search_ignores_passages_that_fit_no_schema(body):
    assert [*file_search.read_passages(body)] == []


def test_file_search_passage_may_lack_optional_fields():
    body = {
        "data": [
            {
                "file_id": "f",
                "filename": 5,
                "score": "x",
                "content": [5, {}, {"text": "a"}],
                "attributes": {"a": [], "b": 1},
            }
        ]
    }
    (passage,) = file_search.read_passages(body)
    assert passage == file_search.FilePassage("f", "f", 0.0, "a", {"b": 1})
    (passage,) = file_search.read_passages({"data": [{"file_id": "f", "content": 5, "attributes": []}]})
    assert (passage.text, passage.attributes) == ("", {})
