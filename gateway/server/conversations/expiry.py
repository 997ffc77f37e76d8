"""Delete stored data that is too old or too large, in the background."""

import asyncio
import logging
import time

from gateway.config import StoreSettings
from gateway.errors import StoreFailed
from gateway.server.observability.logs import survive
from gateway.store import expiry
from gateway.store.database import Database
from gateway.store.file_store import FileStore

_log = logging.getLogger("gateway")
_DAY = 86_400
_EVERY = 600.0  # seconds


async def expire_forever(
    database: Database, files: FileStore, settings: StoreSettings, seconds: float = _EVERY
) -> None:
    """Delete expired data every ten minutes, if a database exists; a gateway that stores nothing creates none."""
    while True:
        await asyncio.sleep(seconds)
        with survive("the deletion of expired data"):
            try:
                if database.exists():
                    await expiry.expire(database, int(time.time()), settings.ttl_days * _DAY, settings.max_bytes)
                    await files.sweep()
            except StoreFailed as error:
                _log.warning("expired data could not be deleted: %s", error.reason)
