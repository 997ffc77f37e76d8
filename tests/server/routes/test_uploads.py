"""Test /v1/uploads over HTTP: parts become a file, and an upload that has ended takes no more."""

import asyncio
import hashlib

import pytest

from gateway.server.routes import uploads
from gateway.store import expiry
from support.app import gateway, listening, problem
from support.stored import ANN, BOB, TENANTS, get_json

PART = b"x" * 1_500_000
CREATE = {"bytes": 10, "filename": "a.txt", "mime_type": "text/plain", "purpose": "user_data"}
INVALID = 400, "invalid_request_error", "invalid_value"


async def post(site, path="", body=None, headers=None):
    return await site.client.post(f"/v1/uploads{path}", json=body or {}, headers=headers)


async def begun(site, headers=None, **fields):
    """Create an upload, and return its id."""
    response = await post(site, body=CREATE | fields, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["id"]


async def add(site, id, data, headers=None):
    return await site.client.post(f"/v1/uploads/{id}/parts", files={"data": ("upload", data)}, headers=headers)


async def part(site, id, data):
    """Add a part, and return its id."""
    response = await add(site, id, data)
    assert response.status_code == 200, response.text
    return response.json()["id"]


def stored_blobs(site):
    return sorted(path.name for path in site.app.state.store.folder.iterdir())


async def test_upload_becomes_a_file_of_its_parts_in_their_order():
    async with listening() as site:
        created = (await post(site, body=CREATE | {"bytes": len(PART) + 5})).json()
        shown = {"object": "upload", "bytes": len(PART) + 5, "filename": "a.txt", "purpose": "user_data", "file": None}
        assert created.items() >= (shown | {"status": "pending", "expires_at": created["created_at"] + 3600}).items()
        id = created["id"]
        second, first = await part(site, id, b"-end"), await part(site, id, PART + b"!")
        digest = hashlib.md5(PART + b"!-end").hexdigest()
        done = (await post(site, f"/{id}/complete", {"part_ids": [first, second], "md5": digest.upper()})).json()
        assert done["status"] == "completed" and done["file"]["bytes"] == len(PART) + 5
        file = await get_json(site.client, f"files/{done['file']['id']}")
        assert file == done["file"]
        content = await site.client.get(f"/v1/files/{file['id']}/content")
        assert content.content == PART + b"!-end"
        await site.client.delete(f"/v1/files/{file['id']}")
        assert stored_blobs(site) == []


async def test_upload_gives_its_file_the_lifetime_that_the_client_chose():
    async with gateway() as site:
        after = {"expires_after": {"anchor": "created_at", "seconds": 3600}}
        id = await begun(site, bytes=2, **after)
        done = (await post(site, f"/{id}/complete", {"part_ids": [await part(site, id, b"ab")]})).json()
        assert done["file"]["expires_at"] == done["file"]["created_at"] + 3600


async def test_upload_leaves_out_parts_that_are_not_named():
    async with gateway() as site:
        id = await begun(site, bytes=4)
        await part(site, id, b"ab")
        kept = [await part(site, id, b"cd")]
        assert problem(await post(site, f"/{id}/complete", {"part_ids": kept})) == (*INVALID, "part_ids")
        assert problem(await add(site, id, b"x")) == (*INVALID, "data")
        id = await begun(site, bytes=2)
        empty, kept = await part(site, id, b""), await part(site, id, b"ab")
        done = (await post(site, f"/{id}/complete", {"part_ids": [kept]})).json()
        assert done["status"] == "completed"
        assert kept in stored_blobs(site) and empty not in stored_blobs(site)


@pytest.mark.parametrize("end", ["complete", "cancel"])
async def test_upload_that_ended_takes_nothing_more(end):
    async with gateway() as site:
        id = await begun(site, bytes=2)
        ids = {"part_ids": [await part(site, id, b"ab")]}
        ended = await post(site, f"/{id}/{end}", ids)
        assert ended.json()["status"] == {"complete": "completed", "cancel": "cancelled"}[end]
        assert len(stored_blobs(site)) == (end == "complete")
        for again in (
            await add(site, id, b""),
            await post(site, f"/{id}/complete", ids),
            await post(site, f"/{id}/cancel"),
        ):
            assert problem(again) == (*INVALID, "id")


async def test_upload_expires_after_an_hour(monkeypatch):
    async with gateway() as site:
        monkeypatch.setattr(uploads, "UPLOAD_SECONDS", -1)
        id = await begun(site)
        answer = await add(site, id, b"x")
        assert problem(answer) == (*INVALID, "id") and "is expired" in answer.text
        await expiry.expire(site.app.state.store, 10**11, 0, 0)
        assert (await post(site, f"/{id}/cancel")).status_code == 404


async def test_upload_that_is_completed_twice_at_once_becomes_one_file():
    async with listening() as site:
        id = await begun(site, bytes=2)
        ids = {"part_ids": [await part(site, id, b"ab")]}
        answers = await asyncio.gather(*(post(site, f"/{id}/complete", ids) for _ in range(5)))
        assert sorted(answer.status_code for answer in answers) == [200, 400, 400, 400, 400]
        assert len((await get_json(site.client, "files"))["data"]) == 1


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"bytes": None}, (400, "missing_required_parameter", "bytes")),
        ({"bytes": -1}, (400, "integer_below_min_value", "bytes")),
        ({"bytes": 1001}, (413, "file_too_large", "bytes")),
        ({"mime_type": None}, (400, "missing_required_parameter", "mime_type")),
        ({"purpose": "batch"}, (400, "invalid_value", "file")),
        ({"expires_after": {"anchor": "created_at", "seconds": 1}}, (400, "integer_below_min_value", "expires_after.seconds")),
    ],
)  # fmt: skip
async def test_upload_that_breaks_a_rule_is_refused(fields, expected):
    async with gateway(limits={"file_bytes": 1000}) as site:
        status, _, code, param = problem(await post(site, body=CREATE | fields))
        assert (status, code, param) == expected


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"part_ids": ["part_none"]}, "part_ids[0]"),
        ({"part_ids": ["ID", "ID"]}, "part_ids[1]"),
        ({"part_ids": ["ID"], "md5": "0" * 32}, "md5"),
    ],
)
async def test_upload_with_other_parts_than_it_has_is_refused(body, param):
    async with gateway() as site:
        id = await begun(site, bytes=2)
        part_id = await part(site, id, b"ab")
        body = body | {"part_ids": [one.replace("ID", part_id) for one in body["part_ids"]]}
        assert problem(await post(site, f"/{id}/complete", body)) == (*INVALID, param)
        assert (await post(site, f"/{id}/complete", {"part_ids": [part_id]})).status_code == 200


async def test_upload_belongs_to_its_key():
    async with gateway(auth=TENANTS) as site:
        id = await begun(site, ANN)
        assert (await add(site, id, b"x", BOB)).status_code == 404
        for end in ("complete", "cancel"):
            assert (await post(site, f"/{id}/{end}", {"part_ids": ["part_x"]}, BOB)).status_code == 404
        assert (await add(site, id, b"x", ANN)).status_code == 200
