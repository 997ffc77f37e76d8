"""Test files in the store: their rows, and their bytes in a folder or in rows."""

import asyncio
import itertools

import pytest
from sqlalchemy import func, select

from gateway.errors import BadRequest, StoreFailed
from gateway.store import Database, blobs, expiry, file_store, files, tables
from gateway.store.file_store import FileStore
from gateway.store.records import FileFilter, FileQuota, StoredFile

QUOTA = FileQuota("t", 10_000)
_NUMBERS = itertools.count()


def described(id, created_at=1, expires_at=None, purpose="user_data", size=3):
    return StoredFile(id, created_at, expires_at, purpose, size, f"{id}.txt")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Cut the bytes of small files into chunks."""
    monkeypatch.setattr(file_store, "CHUNK", 4)


@pytest.fixture(params=["folder", "memory", pytest.param("postgresql", marks=pytest.mark.system)])
async def bytes_store(request, tmp_path):
    """Return a store with its bytes in a folder, and two with their bytes in rows."""
    urls = {"folder": f"sqlite:///{tmp_path}/gateway.db", "memory": "sqlite://"}
    if request.param == "postgresql":
        urls["postgresql"] = request.getfixturevalue("postgres").create(f"files{next(_NUMBERS)}")
    database = Database(urls[request.param])
    yield database
    await database.close()


async def save(database, id, *pieces, quota=QUOTA, **fields):
    """Store a file of these pieces."""
    one = FileStore(database)
    async with one.writing(quota, f"blob-{id}", 0) as blob:
        for piece in pieces:
            await blob.write(piece)
        await one.seal(blob)
        async with database.writing() as db:
            await files.save(db, quota.tenant, described(id, size=blob.size, **fields))
            await blobs.keep(db, quota, blob.id, blob.size, file=id)


async def content(database, file):
    return [piece async for piece in FileStore(database).read(file)]


async def count(database, table):
    async with database.reading() as db:
        return await db.scalar(select(func.count()).select_from(table))


def stored_names(database):
    """Return the names in the folder of the bytes; none if the bytes are in rows."""
    folder = database.folder
    return sorted(path.name for path in folder.iterdir()) if folder and folder.exists() else []


@pytest.mark.parametrize(
    ("pieces", "chunks"),
    [
        ([b"abc", b"defgh", b"i"], [b"abcd", b"efgh", b"i"]),
        ([b"abcdefgh"], [b"abcd", b"efgh"]),
        ([], []),
        ([b""], []),
    ],
)
async def test_file_is_read_in_chunks_as_it_was_written(bytes_store, pieces, chunks):
    await save(bytes_store, "f", *pieces)
    size = len(b"".join(pieces))
    assert await content(bytes_store, described("f", size=size)) == chunks
    async with bytes_store.reading() as db:
        assert await files.find(db, "t", "f", 0) == described("f", size=size)
        assert await db.scalar(select(tables.blobs.c.bytes)) == size


async def test_file_has_an_object_of_the_api():
    assert described("f", expires_at=7).shown() == {
        "id": "f", "object": "file", "bytes": 3, "created_at": 1, "expires_at": 7, "filename": "f.txt",
        "purpose": "user_data", "status": "processed", "status_details": None,
    }  # fmt: skip


async def test_file_folder_is_for_its_owner_only(store):
    await save(store, "f", b"abc")
    if store.folder:
        assert store.folder.stat().st_mode & 0o777 == 0o700
        assert [path.stat().st_mode & 0o777 for path in store.folder.iterdir()] == [0o600]
        assert stored_names(store) == ["blob-f"]


async def test_file_is_hidden_from_other_tenants_and_after_its_expiry(store):
    await save(store, "f", b"abc", expires_at=10)
    async with store.reading() as db:
        assert await files.find(db, "t", "f", 9)
        assert await files.find(db, "t", "f", 10) is None
        assert await files.find(db, "other", "f", 9) is None
        assert await files.page(db, "t", FileFilter(9), 9)
        assert not await files.page(db, "t", FileFilter(10), 9)


@pytest.mark.parametrize("count", [1, 20, 21])
async def test_files_are_there_until_one_expires_or_is_deleted(bytes_store, count):
    ids = [f"f{i}" for i in range(count)]
    for id in ids:
        await save(bytes_store, id, b"a", expires_at=10)

    async def has_all(tenant, ids, now):
        return await bytes_store.run_reading(lambda db: files.has_all(db, tenant, ids, now))

    assert await has_all("t", ids, 9) and await has_all("t", [], 11)
    assert not await has_all("t", ids, 10) and not await has_all("other", ids, 9)
    assert not await has_all("t", [*ids, "g"], 9)


@pytest.mark.parametrize(
    ("purpose", "ids"), [(None, ["b", "a", "c", "d"]), ("batch", ["b", "d"]), ("vision", []), ("\0", [])]
)
async def test_files_are_filtered_and_paged_in_both_orders(store, purpose, ids):
    async with store.writing() as db:
        for id, created_at, kind in (("a", 2, "evals"), ("b", 1, "batch"), ("c", 2, "evals"), ("d", 3, "batch")):
            await files.save(db, "t", described(id, created_at, None, kind))
        await files.save(db, "other", described("foreign"))
        for newest_first, expected in ((False, ids), (True, ids[::-1])):
            found, behind = [], None
            while page := await files.page(
                db, "t", FileFilter(0, purpose), 2, newest_first=newest_first, behind=behind
            ):
                found += [file.id for file in page]
                behind = page[-1]
            assert found == expected


async def test_file_that_fails_leaves_nothing(bytes_store):
    one = FileStore(bytes_store)
    with pytest.raises(RuntimeError):
        async with one.writing(QUOTA, "blob", 5) as blob:
            await blob.write(b"abcdef")
            assert await count(bytes_store, tables.blobs) == 1
            assert stored_names(bytes_store) == (["blob.part"] if bytes_store.folder else [])
            raise RuntimeError
    assert await count(bytes_store, tables.blobs) == await count(bytes_store, tables.chunks) == 0
    assert stored_names(bytes_store) == []


async def test_file_beyond_the_quota_of_its_tenant_is_refused(bytes_store):
    quota = FileQuota("t", 10)
    await save(bytes_store, "a", b"123456", quota=quota)
    await save(bytes_store, "b", b"123456", quota=FileQuota("other", 10))
    with pytest.raises(BadRequest, match="would take 11 bytes, more than the limit of 10") as caught:
        async with FileStore(bytes_store).writing(quota, "blob", 5):
            pytest.fail("its announced size is too large")
    assert caught.value.problem.code == "file_quota_exceeded"
    with pytest.raises(BadRequest, match="would take 11 bytes"):
        await save(bytes_store, "c", b"12345", quota=quota)
    await save(bytes_store, "d", b"1234", quota=quota)
    assert await count(bytes_store, tables.files) == 3


async def test_file_that_is_being_written_counts_for_the_quota(store):
    quota = FileQuota("t", 10)
    async with FileStore(store).writing(quota, "a", 6) as blob:
        with pytest.raises(BadRequest, match="would take 11 bytes"):
            async with FileStore(store).writing(quota, "b", 5):
                pytest.fail("no room is left")
        async with store.writing() as db:
            await files.save(db, "t", described("f"))
            await blobs.keep(db, quota, blob.id, 10, file="f")  # its own reservation is no obstacle


async def test_files_of_a_tenant_cannot_exceed_its_quota_together(store):
    quota = FileQuota("t", 10)
    saved = await asyncio.gather(*(save(store, str(i), b"1234", quota=quota) for i in range(4)), return_exceptions=True)
    assert sorted(type(one).__name__ for one in saved) == ["BadRequest", "BadRequest", "NoneType", "NoneType"]


async def test_file_whose_lease_ended_is_refused(bytes_store):
    one = FileStore(bytes_store)
    for late in (lambda blob: blob.write(b"12345"), lambda blob: keep(bytes_store, blob)):
        with pytest.raises(StoreFailed, match="nothing of it arrived for an hour"):
            async with one.writing(QUOTA, "blob", 0) as blob:
                async with bytes_store.writing() as db:
                    await blobs.release(db, "blob")
                await late(blob)


async def keep(database, blob):
    async with database.writing() as db:
        await files.save(db, "t", described("f"))
        await blobs.keep(db, QUOTA, blob.id, 1, file="f")


async def test_file_that_is_deleted_while_it_is_read_fails(store):
    await save(store, "f", b"abcdefgh")
    async with store.writing() as db:
        await files.remove(db, "f")
    with pytest.raises(StoreFailed, match="was deleted while it was read"):
        await content(store, described("f", size=8))
    assert await count(store, tables.blobs) == await count(store, tables.chunks) == 0


async def test_expired_files_and_abandoned_blobs_are_swept(bytes_store):
    one, now = FileStore(bytes_store), 10**10
    await one.sweep()  # there is no folder yet
    await save(bytes_store, "kept", b"abcdef")
    await save(bytes_store, "expired", b"abcdef", expires_at=5)
    async with bytes_store.writing() as db:
        await blobs.reserve(db, QUOTA, "abandoned", 5, 0)
        await blobs.reserve(db, QUOTA, "alive", 5, now)
    if bytes_store.folder:
        for name in ("abandoned.part", "alive.part"):
            (bytes_store.folder / name).write_bytes(b"1234")
    await expiry.expire(bytes_store, now, 0, 0)
    await one.sweep()
    async with bytes_store.reading() as db:
        assert await blobs.known(db, ["blob-kept", "blob-expired", "abandoned", "alive"]) == {"blob-kept", "alive"}
        assert [file.id for file in await files.page(db, "t", FileFilter(0), 9)] == ["kept"]
    assert stored_names(bytes_store) == (["alive.part", "blob-kept"] if bytes_store.folder else [])
    assert b"".join(await content(bytes_store, described("kept", size=6))) == b"abcdef"


async def test_file_folder_that_fails_is_reported(tmp_path):
    failures = []
    database = Database(f"sqlite:///{tmp_path}/gateway.db", lambda: failures.append(1))
    database.folder.write_text("not a folder")
    with pytest.raises(StoreFailed, match="files are unavailable"):
        await save(database, "f", b"abcdef")
    assert failures == [1] and await count(database, tables.blobs) == 0
    await FileStore(database).remove(["f"])  # which the sweep would try again
    await database.close()
