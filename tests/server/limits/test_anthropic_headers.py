"""Test the headers of Anthropic's API for rate limits."""

from gateway.server.limits import ANTHROPIC_HEADERS, with_anthropic_headers

STANDING = {"x-ratelimit-limit-tokens": "30", "x-ratelimit-remaining-tokens": "20", "x-ratelimit-reset-tokens": "90s"}


def test_limits_have_names_of_both_apis():
    added = {
        "anthropic-ratelimit-tokens-limit": "30",
        "anthropic-ratelimit-tokens-remaining": "20",
        "anthropic-ratelimit-tokens-reset": "2027-01-15T08:01:30Z",
    }
    assert with_anthropic_headers(STANDING, 1_800_000_000.9) == {**STANDING, **added}
    assert added.keys() <= {*ANTHROPIC_HEADERS}


def test_limits_of_another_header_are_unchanged():
    assert with_anthropic_headers({"retry-after": "1"}) == {"retry-after": "1"}
