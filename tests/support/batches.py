"""Create batches over HTTP, wait for their end, and read their files."""

import json

from support.wait import until

RUNNING = ("validating", "in_progress", "finalizing", "cancelling")
CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


def line(id, body=BODY, url=CHAT, **more):
    """Return a line of an input file."""
    return json.dumps({"custom_id": id, "method": "POST", "url": url, "body": body, **more}).encode()


def chat_line(id, **more):
    """Return a line whose prompt is its id."""
    return line(id, {**BODY, "messages": [{"role": "user", "content": id}], **more})


async def upload(client, lines, headers=None, purpose="batch"):
    """Store an input file, and return its id."""
    content = b"\n".join(lines)
    response = await client.post(
        "/v1/files", files={"file": ("a.jsonl", content)}, data={"purpose": purpose}, headers=headers
    )
    assert response.status_code == 200, response.text
    return response.json()["id"]


async def post(client, file, headers=None, endpoint=CHAT, **more):
    """Request a batch."""
    body = {"input_file_id": file, "endpoint": endpoint, "completion_window": "24h", **more}
    return await client.post("/v1/batches", json=body, headers=headers)


async def begin(client, lines, headers=None, **more):
    """Create a batch of these lines, and return it."""
    response = await post(client, await upload(client, lines, headers), headers, **more)
    assert response.status_code == 200, response.text
    return response.json()


async def retrieve(client, batch, headers=None):
    """Return the batch as it is now."""
    response = await client.get(f"/v1/batches/{batch['id']}", headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


async def ended(client, batch, headers=None):
    """Wait for the end of a batch, and return it."""
    found = []

    async def runs():
        found.append(await retrieve(client, batch, headers))
        return found[-1]["status"] in RUNNING

    await until(runs, False)
    return found[-1]


async def cancel(client, batch, headers=None):
    """Cancel a batch."""
    return await client.post(f"/v1/batches/{batch['id']}/cancel", headers=headers)


async def output(client, batch, name="output", headers=None):
    """Return the lines of an output file; None without one."""
    if not (id := batch[f"{name}_file_id"]):
        return None
    content = await client.get(f"/v1/files/{id}/content", headers=headers)
    assert content.status_code == 200, content.text
    return [json.loads(one) for one in content.text.splitlines()]
