"""Work on one batch in this process: check its lines, send them, and write its files.

A line is a request through the application.  It is finished once its result is in the store, in a transaction that
also shows that this process holds the batch.
"""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from msgspec import Struct, json
from msgspec.structs import replace
from starlette.types import ASGIApp, Message, Scope

from gateway.api.batches import (
    ENDED,
    Batch,
    BatchLine,
    InputCheck,
    LineError,
    LineSplitter,
    Status,
    expired_line,
    read_line,
    response_line,
)
from gateway.server.ids import new_id
from gateway.server.jobs.log_writer import Lease
from gateway.server.middleware.auth import BATCH_TENANT
from gateway.server.worker_thread import parse_body, run_in_thread
from gateway.store import batches, blobs, files
from gateway.store.database import Database
from gateway.store.file_store import FileStore
from gateway.store.records import BatchLease, FileQuota, LineResult, StoredFile
from gateway.store.write_queue import GroupCommit

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_CANCELLED = 499
_FOREVER = (429, 503)  # statuses that end with time alone
_BRIEFLY = (500, 502, 504)
_TRIES = 5  # of a request that gets one of these
_LONGEST = 60  # seconds between two tries
LINES = 16  # of a batch that are sent at a time
_RESULTS = 32  # read at a time
_EXPIRED = 500  # lines that are written at a time
_GONE = "The input file '{}' was deleted or has expired."
_FILES = (("output_file_id", True), ("error_file_id", False))


class LineResponse(Struct, frozen=True):
    """A response to a line.  body: JSON on one line; headers: their first values."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def request_id(self) -> str:
        """The id of the request in logs and traces."""
        return self.headers.get(b"x-request-id", b"").decode()

    def pause(self, tries: int) -> float | None:
        """Return the seconds until the next try; None if the response is final.  tries: so far."""
        if self.headers.get(b"x-should-retry") == b"false":
            return None
        if self.status in _FOREVER or (self.status in _BRIEFLY and tries < _TRIES):
            wished = self.headers.get(b"retry-after", b"")
            return min(int(wished) if wished.isdigit() else 2 ** min(tries - 1, 6), _LONGEST)
        return None


class _LineClient:
    """The client of a request: it sends the body, and disconnects when it is told to."""

    def __init__(self, body: bytes, left: asyncio.Event) -> None:
        self._request: Message | None = {"type": "http.request", "body": body, "more_body": False}
        self._left, self._pieces = left, list[bytes]()
        self._status, self._headers = 0, dict[bytes, bytes]()

    async def receive(self) -> Message:
        """Return the body, then wait for the disconnect."""
        if message := self._request:
            self._request = None
            return message
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Keep the response."""
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], dict(message["headers"])
        else:
            self._pieces.append(message.get("body", b""))

    def response(self) -> LineResponse | None:
        """Return the response; None if the client disconnected before."""
        body = b"".join(self._pieces)
        if self._left.is_set() and (not body or self._status == _CANCELLED):
            return None
        return LineResponse(self._status, self._headers, json.format(body or b"null", indent=-1))


async def request_line(app: ASGIApp, path: str, tenant: str, body: bytes, left: asyncio.Event) -> LineResponse | None:
    """Return the response to a request of this tenant; None if `left` was set before."""
    client = _LineClient(body, left)
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": None,
        "server": ("localhost", 80),
        BATCH_TENANT: tenant,
    }
    await app(scope, client.receive, client.send)
    return client.response()


class BatchLost(Exception):
    """Another process has taken the batch."""


class BatchContext(Struct, frozen=True):
    """The shared objects and limits of all batches of a process."""

    app: ASGIApp
    store: Database
    files: FileStore
    lease: Lease
    max_lines: int
    max_bytes: int

    def batch_lease(self) -> BatchLease:
        """Return a lease that begins now."""
        return BatchLease(self.lease.holder, *self.lease.times())


class BatchRun:
    """The work of this process on a batch: `run` it; `update` it with its row, `pause` and `stop` it.

    is_interrupted: another process continues the batch.
    """

    def __init__(self, context: BatchContext, tenant: str, batch: Batch) -> None:
        self._context, self._tenant, self.batch = context, tenant, batch
        self._results = GroupCommit(self._store_results, context.store.queue)
        self._free, self._tasks = asyncio.Semaphore(LINES), set[asyncio.Task[None]]()
        self._paused, self._left = asyncio.Event(), asyncio.Event()
        self._failure: Exception | None = None
        self._input_gone = False
        self._quota = FileQuota(tenant, sys.maxsize)  # no limit: responses that were paid for are not thrown away
        self.is_interrupted = False
        self._look()

    def update(self, batch: Batch | None) -> None:
        """Note the batch as it is in the store now; None: another process has it."""
        if batch:
            self.batch = batch
            self._look()
        else:
            self.is_interrupted = True
            self.stop()

    def pause(self) -> None:
        """Send no further line, and leave the rest to another process."""
        self.is_interrupted = True
        self._paused.set()

    def stop(self) -> None:
        """Send no further line, and cancel those that were sent."""
        self._paused.set()
        self._left.set()

    async def run(self) -> None:
        """Work on the batch until it ends or the run is interrupted.  Raise StoreFailed or BatchLost."""
        if self.batch.status == "validating":
            await self._check_input()
        if self.batch.status == "in_progress":
            await self._send_lines()
        if not self.is_interrupted and self.batch.status not in ENDED:
            await self._end()

    def _look(self) -> None:
        if self.batch.status == "cancelling" or time.time() >= self.batch.expires_at:
            self.stop()

    # The input

    @property
    def _needs_no_check(self) -> bool:
        return self.is_interrupted or self.batch.status == "cancelling"

    async def _check_input(self) -> None:
        check = InputCheck(self.batch.endpoint, self._context.max_lines, self._context.max_bytes)
        file = await self._input_file()
        if not file:
            check.errors.append(LineError("file_not_found", _GONE.format(self.batch.input_file)))
        else:
            async with aclosing(self._context.files.read(file)) as chunks:
                async for chunk in chunks:
                    await run_in_thread(check.feed, chunk)
                    if check.is_over or self._needs_no_check:
                        break
            if not self._needs_no_check:  # else the last line may lack its end
                check.close()
        if not self.is_interrupted:
            await self._save(partial(_checked, check))

    async def _input_file(self) -> StoredFile | None:
        async with self._context.store.reading() as db:
            return await files.find(db, self._tenant, self.batch.input_file, self.batch.created_at)

    async def _unfinished(self) -> AsyncGenerator[BatchLine]:
        """Yield the lines without a result."""
        async with self._context.store.reading() as db:
            done = {*await batches.finished(db, self.batch.id)}
        async with aclosing(self._lines()) as lines:
            async for place, raw in lines:
                if raw and place not in done:
                    line = await parse_body(read_line, raw, place, self.batch.endpoint)
                    assert isinstance(line, BatchLine), "the line was checked"
                    yield line

    async def _lines(self) -> AsyncGenerator[tuple[int, bytes | None]]:
        """Yield all lines with their places; none if the file was deleted."""
        if not (file := await self._input_file()):
            self._input_gone = True
            return
        splitter, places = LineSplitter(self._context.max_bytes), count()
        async with aclosing(self._context.files.read(file)) as chunks:
            async for chunk in chunks:
                for raw in splitter.feed(chunk):
                    yield next(places), raw
        for raw in splitter.close():
            yield next(places), raw

    # The lines

    async def _send_lines(self) -> None:
        """Send the unfinished lines, a few at a time; return when all that were sent have ended."""
        try:
            async with aclosing(self._unfinished()) as lines:
                async for line in lines:
                    await self._free.acquire()
                    if self._paused.is_set():
                        break
                    task = asyncio.create_task(self._send_line(line))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        except BaseException:
            self.stop()
            raise
        finally:
            if self._tasks:
                await asyncio.wait(self._tasks)
        if self._failure:
            raise self._failure

    async def _send_line(self, line: BatchLine) -> None:
        try:
            if response := await self._response(line):
                ok, id = 200 <= response.status < 300, new_id("batch_req_")
                data = response_line(id, line.custom_id, response.status, response.request_id, response.body)
                await self._results.add(LineResult(line.place, ok, data))
        except Exception as error:  # noqa: BLE001 - `_send_lines` raises it
            self._failure = error
            self.stop()
        finally:
            self._free.release()

    async def _response(self, line: BatchLine) -> LineResponse | None:
        """Return the final response to a line; None if the run stops before."""
        tries, endpoint = 0, self.batch.endpoint
        while True:
            tries += 1
            response = await request_line(self._context.app, endpoint, self._tenant, line.body, self._left)
            if not response or (seconds := response.pause(tries)) is None:
                return response
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._paused.wait()
            if self._paused.is_set():
                return None

    # The end

    async def _end(self) -> None:
        """Write the output files, and store the final status."""
        if self.batch.status == "in_progress":
            await self._save(self._finalizing)
        if "expired_at" in self.batch.times:
            await self._add_expired()
        async with AsyncExitStack() as stack:
            made = [one for name, ok in _FILES if (one := await self._write_file(stack, name, ok))]
            await self._save(partial(_ended, made), made)
        while await self._remove_results():
            pass

    def _finalizing(self, batch: Batch) -> Batch:
        """Return the batch with the time that says how it ends, unless it is being cancelled."""
        now = int(time.time())
        if batch.status == "cancelling" or batch.completed + batch.failed >= batch.total:
            return batch.moved("finalizing", now)
        gone = [LineError("file_not_found", _GONE.format(batch.input_file))] if self._input_gone else []
        times = {**batch.times, "failed_at" if gone else "expired_at": now}
        return replace(batch, times=times, errors=gone).moved("finalizing", now)

    async def _add_expired(self) -> None:
        """Store results for the lines that were not finished in time."""
        added: list[LineResult] = []
        async with aclosing(self._unfinished()) as lines:
            async for line in lines:
                added.append(LineResult(line.place, False, expired_line(new_id("batch_req_"), line.custom_id)))
                if len(added) == _EXPIRED:
                    await self._store_results(added)
                    added = []
        await self._store_results(added)

    async def _write_file(self, stack: AsyncExitStack, name: str, ok: bool) -> "_OutputFile | None":
        """Write the results of one sort into a blob; return None if there are none."""
        after, read = -1, partial(self._read_results, ok)
        if not (found := await read(after)):
            return None
        blob = await stack.enter_async_context(self._context.files.writing(self._quota, new_id("blob_"), 0))
        while found:
            for one in found:
                await blob.write(one.data)
            found = await read(found[-1].place)
        await self._context.files.seal(blob)
        batch, now = self.batch, int(time.time())
        filename = f"{batch.id}_{name.removesuffix('_file_id')}.jsonl"
        file = StoredFile(new_id("file-"), now, now + batch.output_lifetime, "batch_output", blob.size, filename)
        return _OutputFile(name, blob.id, file)

    # The store

    async def _read_results(self, ok: bool, after: int) -> list[LineResult]:
        async with self._context.store.reading() as db:
            return await batches.read_results(db, self.batch.id, ok, after, _RESULTS)

    async def _store_results(self, added: Sequence[LineResult]) -> None:
        if added:
            async with self._context.store.writing() as db:
                await self._hold(db)
                await batches.add_results(db, self.batch.id, added)

    async def _remove_results(self) -> bool:
        async with self._context.store.writing() as db:
            return await batches.remove_results(db, self.batch.id)

    async def _save(self, change: Callable[[Batch], Batch], made: "Sequence[_OutputFile]" = ()) -> None:
        """Change the batch, and keep its output files in the same transaction."""
        async with self._context.store.writing() as db:
            batch = change(await self._hold(db))
            for one in made:
                await files.save(db, self._tenant, one.file)
                await blobs.keep(db, self._quota, one.blob, one.file.bytes, file=one.file.id)
            await batches.save(db, batch, int(time.time()))
        self.batch = batch

    async def _hold(self, db: "AsyncConnection") -> Batch:
        if not (batch := await batches.renew(db, self._context.batch_lease(), self.batch.id)):
            raise BatchLost
        return batch


class _OutputFile(Struct, frozen=True):
    """An output file that is not kept yet.  name: its member of the batch object; blob: the id of its bytes."""

    name: str
    blob: str
    file: StoredFile


def _checked(check: InputCheck, batch: Batch) -> Batch:
    """Return the batch after the check of its input."""
    status: Status = "failed" if check.errors else "in_progress"
    return replace(batch, total=check.total, errors=check.errors).moved(status, int(time.time()))


def _ended(made: Sequence[_OutputFile], batch: Batch) -> Batch:
    """Return the batch at its end, with its output files."""
    final: Status = (
        "failed" if "failed_at" in batch.times else "expired" if "expired_at" in batch.times else "completed"
    )
    return replace(batch, files={one.name: one.file.id for one in made}).moved(final, int(time.time()))
