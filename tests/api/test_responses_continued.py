"""Test a final message of the assistant, before backends that continue it and before backends that do not."""

import pytest

from support.app import gateway
from support.upstream import HELLO, whole

BEGUN = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good"}]
AFTER = [*BEGUN, {"role": "user", "content": ""}]
OPEN = "<|im_start|>assistant\nHello to you"
CONTINUED = {"continue_final_message": True, "add_generation_prompt": False}


@pytest.mark.parametrize(
    ("prompt", "fields", "messages", "warnings"),
    [
        (OPEN, {}, BEGUN, None),
        (OPEN, CONTINUED, BEGUN, "forwarded:continue_final_message, forwarded:add_generation_prompt"),
        (OPEN + "<|im_end|>\n", {}, AFTER, "translated:messages"),
        (OPEN + "<|im_end|>\n", CONTINUED, AFTER, "unenforced:continue_final_message, translated:messages"),
        ("", {"continue_final_message": False}, AFTER, "translated:messages"),
        (None, {}, BEGUN, None),  # the backend has no such path
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_final_message_is_continued_only_if_the_prompt_leaves_it_open(prompt, fields, messages, warnings, stream):
    async with gateway(HELLO, backend={"kind": "llamacpp"}) as site:
        if prompt is not None:
            site.upstream.shown["/apply-template"] = whole({"prompt": prompt})
        answer = await site.chat(messages=BEGUN, stream=stream, **fields)
        assert site.upstream_body["messages"] == messages
        assert answer.headers.get("x-gateway-warnings") == warnings
        passed = {name for name in CONTINUED if name in site.upstream_body}
        assert passed == (set(fields) if messages is BEGUN else set())


async def test_final_message_is_not_checked_for_a_kind_that_cannot_continue():
    async with gateway(HELLO, backend={"kind": "sglang"}) as site:
        await site.chat(messages=BEGUN)
        assert site.upstream_body["messages"] == BEGUN and not site.upstream.aside
