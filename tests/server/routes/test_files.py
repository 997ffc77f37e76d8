"""Test /v1/files over HTTP: forms, limits, ownership, and bodies that end early."""

import httpx
import pytest

from gateway.store import files
from support.app import gateway, listening, problem
from support.stored import ANN, BOB, TENANTS, get_json
from support.wait import until

FORM = {"purpose": "user_data"}
LARGE = b"x" * 3_000_000
TOO_LARGE = 413, "invalid_request_error", "file_too_large", None


async def create(site, content=b"Hello", headers=None, name="a.txt", **fields):
    """POST a file."""
    return await site.client.post("/v1/files", files={"file": (name, content)}, data=FORM | fields, headers=headers)


async def created(site, *args, **fields):
    """POST a file, and return it."""
    response = await create(site, *args, **fields)
    assert response.status_code == 200, response.text
    return response.json()


async def test_file_is_stored_listed_and_downloaded():
    async with listening() as site:
        file = await created(site, LARGE, name="ä\n.txt")
        assert (
            file.items() >= {"object": "file", "bytes": len(LARGE), "purpose": "user_data", "expires_at": None}.items()
        )
        assert await get_json(site.client, f"files/{file['id']}") == file
        content = await site.client.get(f"/v1/files/{file['id']}/content")
        assert content.content == LARGE
        assert content.headers["content-disposition"].startswith("attachment; filename*=UTF-8''%C3%A4")
        assert content.headers["x-content-type-options"] == "nosniff"
        head = await site.client.head(f"/v1/files/{file['id']}/content")
        assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(LARGE)))
        other = await created(site, b"{}", name="b.jsonl", purpose="batch")
        assert other["expires_at"] == other["created_at"] + 30 * 86_400
        pages = [await get_json(site.client, "files", limit=1)]
        pages.append(await get_json(site.client, "files", limit=1, after=pages[0]["last_id"]))
        assert [page["has_more"] for page in pages] == [True, False]
        assert (await get_json(site.client, "files"))["data"] == [page["data"][0] for page in pages]
        assert (await get_json(site.client, "files", order="asc"))["data"] == [page["data"][0] for page in pages[::-1]]
        assert (await get_json(site.client, "files", purpose="batch"))["data"] == [other]
        gone = await site.client.delete(f"/v1/files/{file['id']}")
        assert gone.json() == {"id": file["id"], "object": "file", "deleted": True}
        for path in ("", "/content"):
            missing = await site.client.get(f"/v1/files/{file['id']}{path}")
            assert problem(missing) == (404, "invalid_request_error", None, "id")
        assert [path.name for path in site.app.state.store.folder.iterdir()] != []
        await site.client.delete(f"/v1/files/{other['id']}")
        assert [*site.app.state.store.folder.iterdir()] == []


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"limit": 10_001}, (400, "invalid_request_error", "integer_above_max_value", "limit")),
        ({"after": "file-none"}, (400, "invalid_request_error", "invalid_value", "after")),
    ],
)
async def test_file_list_with_an_invalid_parameter_is_refused(params, expected):
    async with gateway() as site:
        assert problem(await site.client.get("/v1/files", params=params)) == expected


async def test_file_belongs_to_its_key():
    async with gateway(auth=TENANTS) as site:
        file = await created(site, b"Hello", ANN)
        assert (await site.client.get("/v1/files", headers=BOB)).json()["data"] == []
        path = f"/v1/files/{file['id']}"
        for method, url in (("GET", path), ("GET", f"{path}/content"), ("DELETE", path)):
            assert (await site.client.request(method, url, headers=BOB)).status_code == 404
            assert (await site.client.request(method, url)).status_code == 401
        assert (await site.client.get(f"{path}/content", headers=ANN)).content == b"Hello"


async def test_file_has_the_limits_of_its_key():
    keys = [{**key, "limits": {"file_bytes": 8, "tenant_file_bytes": 10}} for key in TENANTS["keys"][:1]]
    async with gateway(
        auth={"keys": [*keys, TENANTS["keys"][1]]}, limits={"file_bytes": 6, "tenant_file_bytes": 7}
    ) as site:
        assert problem(await create(site, b"123456789", ANN)) == TOO_LARGE
        await created(site, b"12345678", ANN)
        assert problem(await create(site, b"123", ANN)) == (400, "invalid_request_error", "file_quota_exceeded", None)
        assert problem(await create(site, b"1234567", BOB)) == TOO_LARGE
        file = await created(site, b"123456", BOB)
        assert problem(await create(site, b"12", BOB)) == (400, "invalid_request_error", "file_quota_exceeded", None)
        await site.client.delete(f"/v1/files/{file['id']}", headers=BOB)
        await created(site, b"12", BOB)


async def test_file_that_is_too_large_is_refused_by_its_announced_length():
    async with gateway(limits={"file_bytes": 100, "tenant_file_bytes": 3_000_000}) as site:
        assert problem(await create(site, LARGE)) == TOO_LARGE
        length = {"content-length": str(4_500_000), "content-type": "multipart/form-data; boundary=XX"}
        response = await site.client.post("/v1/files", content=b"--XX--", headers=length)
        assert problem(response)[2] == "file_quota_exceeded"


def part(name, value=b"x", file=""):
    return b'--XX\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n' % (name, file.encode(), value)


FILE = part(b"file", file='; filename="a.txt"')


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (part(b"purpose", b"evals"), (400, "missing_required_parameter", "file")),
        (FILE, (400, "missing_required_parameter", "purpose")),
        (FILE + FILE, (400, "invalid_value", "file")),
        (part(b"purpose", b"x" * 66_000), (400, "string_above_max_length", None)),
        (b"x" * 1_000_000 + b"\r\n", (400, "invalid_value", None)),
        (b"\r\n" * 700_000, (413, "file_too_large", None)),
    ],
)
async def test_file_form_that_is_invalid_leaves_nothing(body, expected):
    async def pieces():
        for i in range(0, len(body), 100_000):
            yield body[i : i + 100_000]
        yield b"--XX--\r\n"

    async with gateway(limits={"file_bytes": 1000}) as site:
        headers = {"content-type": "multipart/form-data; boundary=XX"}
        response = await site.client.post("/v1/files", content=pieces(), headers=headers)
        status, _, code, param = problem(response)
        assert (status, code, param) == expected
        assert (await get_json(site.client, "files"))["data"] == []
        assert not (folder := site.app.state.store.folder).exists() or [*folder.iterdir()] == []


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"content-type": "application/json"}, "unsupported_content_type"),
        (
            {"content-type": "multipart/form-data; boundary=XX", "content-encoding": "gzip"},
            "unsupported_content_encoding",
        ),
    ],
)
async def test_file_in_an_unsupported_form_is_refused(headers, code):
    async with gateway() as site:
        assert problem(await site.client.post("/v1/files", content=b"{}", headers=headers))[::2] == (415, code)


async def test_file_whose_client_leaves_is_forgotten(caplog):
    async def pieces():
        yield FILE[:-2] + LARGE
        await until(site.app.state.store.folder.exists)
        raise RuntimeError

    async with listening() as site:
        with pytest.raises(RuntimeError):
            headers = {"content-type": "multipart/form-data; boundary=XX"}
            await site.client.post("/v1/files", content=pieces(), headers=headers)
        await until(lambda: [*site.app.state.store.folder.iterdir()] == [])
        assert (await get_json(site.client, "files"))["data"] == []
    assert "failed" not in caplog.text


async def test_file_that_is_damaged_breaks_off_its_download():
    async with listening() as site:
        file = await created(site, LARGE)
        (path,) = site.app.state.store.folder.iterdir()
        path.write_bytes(LARGE[:1_500_000])
        with pytest.raises(httpx.RemoteProtocolError):
            await site.client.get(f"/v1/files/{file['id']}/content")


async def test_file_whose_reader_leaves_is_closed():
    async with listening() as site:
        file = await created(site, b"x" * 20_000_000)
        async with site.client.stream("GET", f"/v1/files/{file['id']}/content") as response:
            await anext(response.aiter_bytes())
        assert (await site.client.get("/v1/files")).status_code == 200


async def test_file_that_expired_is_missing(monkeypatch):
    async with gateway() as site:
        file = await created(site, b"{}", name="b.jsonl", purpose="batch")
        monkeypatch.setattr(files, "find", lambda db, tenant, id, now: _FIND(db, tenant, id, file["expires_at"]))
        assert (await site.client.get(f"/v1/files/{file['id']}")).status_code == 404


_FIND = files.find
