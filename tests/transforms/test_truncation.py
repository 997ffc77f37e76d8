"""Test `truncation: auto`: the messages that are left out of a long prompt, and those that always stay."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.request import Request
from gateway.transforms.context_window import truncated_versions


def request_with(*roles, shorten=True):
    """Return a request with a message per letter: s(ystem), u(ser), a(ssistant), t(ool); each contains its place."""
    names = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    messages = tuple({"role": names[role], "content": f"{role}{i}"} for i, role in enumerate("".join(roles)))
    return Request(model="m", messages=messages, shorten=shorten)


def contents_of(request):
    return " ".join(message["content"] for message in request.messages)


def test_truncation_off_has_one_version():
    request = request_with("suauau", shorten=False)
    assert truncated_versions(request) == [request]


def test_truncation_removes_the_oldest_groups_a_fifth_at_a_time():
    assert [*map(contents_of, truncated_versions(request_with("s", "u", "att", "a", "u", "at", "a", "u")))] == [
        "s0 u1 a2 t3 t4 a5 u6 a7 t8 a9 u10",
        "s0 a2 t3 t4 a5 u6 a7 t8 a9 u10",
        "s0 u6 a7 t8 a9 u10",
        "s0 a7 t8 a9 u10",
        "s0 u10",
    ]


def test_truncation_keeps_system_and_last_user_messages_and_the_last_group():
    assert contents_of(truncated_versions(request_with("s", "u", "a", "s", "u", "at", "at"))[-1]) == "s0 s3 u4 a7 t8"


def test_truncation_with_nothing_to_remove_has_one_version():
    request = request_with("su")
    assert truncated_versions(request) == [request]
    assert truncated_versions(request_with("t")) == [request_with("t")]


@given(st.text("suat", min_size=1, max_size=30))
def test_truncation_versions_get_shorter_by_whole_groups(roles):
    request = request_with(roles)
    tried = truncated_versions(request)
    assert tried[0] == request
    assert len(tried) <= 6
    for longer, shorter in pairwise(tried):
        assert len(shorter.messages) < len(longer.messages)
        kept = [message for message in longer.messages if message in shorter.messages]
        assert [*shorter.messages] == kept  # in their order
    for version in tried:
        kept = [message["content"] for message in version.messages]
        assert all(f"s{i}" in kept for i, role in enumerate(roles) if role == "s")
        users = [f"u{i}" for i, role in enumerate(roles) if role == "u"]
        assert not users or users[-1] in kept
        for i, role in enumerate(roles):  # an output stays with the message before it
            if role == "t" and i:
                assert (f"t{i}" in kept) == (f"{roles[i - 1]}{i - 1}" in kept) or roles[i - 1] == "s"
