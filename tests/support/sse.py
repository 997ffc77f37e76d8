"""Read Server-Sent Events as a client does."""

import json


def payloads(text):
    """Return the `data:` of each event, decoded; comments are left out."""
    blocks = [block[6:] for block in text.strip().split("\n\n") if block.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in blocks]


async def text_of_stream(site, path, on_text, **fields):
    """POST a request for a stream; return headers and body.

    on_text: called with "" at the headers, and with the whole text so far after each read.
    """
    text = ""
    async with site.client.stream("POST", path, json={"model": "m", "stream": True, **fields}) as answer:
        on_text(text)
        async for piece in answer.aiter_text():
            text += piece
            on_text(text)
    return answer.headers, text


def events(text):
    """Return the events of a response, decoded; check that each matches its `event:` line."""
    blocks = [block.split("\n") for block in text.strip().split("\n\n") if block.startswith("event: ")]
    pairs = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]
    assert all(name == event["type"] for name, event in pairs)
    return [event for _, event in pairs]


def comments(text):
    """Return the comments of a stream."""
    return [block for block in text.split("\n\n") if block.startswith(":")]


def text_of(text, field="content", index=0):
    """Return the deltas of one field, joined."""
    deltas = [
        choice["delta"].get(field) or ""
        for chunk in payloads(text)
        if isinstance(chunk, dict)
        for choice in chunk.get("choices", ())
        if choice["index"] == index
    ]
    return "".join(deltas)
