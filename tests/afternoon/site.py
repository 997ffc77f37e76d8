"""The site: PostgreSQL with the schema of an older release, two model servers and two gateways."""

import asyncio
import json
import os
import sys
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from itertools import count

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from afternoon.model_server import COUNTED, ModelServer
from gateway.store import migrations
from replicas.proxied import Replica
from support.app import bearer
from support.gateway_process import process
from support.paths import ROOT

ADMIN = "an-admin-key-of-the-configuration"
PRICES = {
    "qwen": {"input": 0.5, "output": 1.5, "cached": 0.05},
    "llama": {"input": 0.1, "output": 0.4},
}
MODELS, TEAMS = (*PRICES,), 5
FAILS_EACH = 25  # requests at the first model server
BEFORE = "0003"  # the schema before keys and usage in the store
TOKENS = 10_000_000
_WORDS = "Say a few words about the weather of this afternoon, and about that of this evening. " * 3
_CHAT = {"messages": [{"role": "user", "content": _WORDS}], "max_tokens": 10}
APIS = {
    "chat": ("/v1/chat/completions", _CHAT),
    "messages": ("/v1/messages", _CHAT),
    "responses": ("/v1/responses", {"input": _WORDS}),
}
_AT_A_TIME = 16
_KINDS = [(api, stream) for api in APIS for stream in (True, False)]


class Site:
    """replicas: the gateways; servers: the model servers; keys: by name; folder: its files."""

    def __init__(self, replicas, servers, database, folder):
        self.replicas, self.servers, self.folder, self._database = replicas, servers, folder, database
        self.keys, self._turns, self._places = {}, count(), asyncio.Semaphore(_AT_A_TIME)

    async def admin(self, method, path, replica=0, **more):
        """Send a request of the operator; return the answer as JSON."""
        answer = await self.replicas[replica].client.request(method, path, headers=bearer(ADMIN), **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def ask(self, key, model="qwen", replica=0, api="chat", *, stream=False):
        """Send a request with a key, and return the whole answer."""
        path, body = APIS[api]
        request = {"model": model, "stream": stream, **body}
        async with self._places:
            return await self.replicas[replica].client.post(path, json=request, headers=bearer(key))

    async def send(self, keys):
        """Send a request of each sort with each key, and return the number of requests."""
        async with asyncio.TaskGroup() as group:
            asking = [
                group.create_task(self.ask(key, MODELS[turn % 3 % 2], turn // 2 % 2, api, stream=stream))
                for key in keys
                for (api, stream), turn in zip(_KINDS, self._turns, strict=False)
            ]
        for one in asking:
            assert one.result().status_code == 200, one.result().text
        return len(asking)

    @property
    def counts(self):
        """What the model servers have answered, by model and by the names of a usage report."""
        return sum((server.counts for server in self.servers), Counter())

    @property
    def costs(self):
        """What the tokens of each model cost, rounded."""
        return {model: self._cost(model, PRICES[model]) for model in MODELS}

    def _cost(self, model, price):
        given, cached, made = (self.counts[model, name] for name in COUNTED[1:])
        cost = (given - cached) * price["input"] + cached * price.get("cached", price["input"]) + made * price["output"]
        return round(cost / 1e6, 9)

    async def usage(self, by, replica=0):
        """Return the sums of the store, by a column and by the names of a report."""
        report = await self.admin("GET", f"/admin/usage?by={by}", replica)
        return Counter({(row[by], name): row[name] for row in report["data"] for name in COUNTED})

    async def command(self, *words):
        """Run a command of the gateway on the configuration, and return its output."""
        command = [sys.executable, "-m", "gateway", *words, "--config", self.folder / "gateway.yaml"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=pipe)
        output, errors = await child.communicate()
        assert child.returncode == 0, f"{words}: {output.decode()}{errors.decode()}"
        return output.decode()

    async def revision(self):
        """Return the revision of the schema."""
        return await _run(self._database, lambda db: db.scalar(text("SELECT version_num FROM alembic_version")))


@asynccontextmanager
async def site(postgres, folder):
    """Start all within the block."""
    database = postgres.url()
    await _run(database, lambda db: db.run_sync(migrations.upgrade, BEFORE))
    async with (
        ModelServer(*MODELS, fails_each=FAILS_EACH).serving() as first,
        ModelServer(*MODELS).serving() as second,
    ):
        sections = _sections(first, second)
        store = {"url": database, "sealing_keys": ["s" * 32]}
        (folder / "gateway.yaml").write_text(json.dumps({**sections, "store": store}))
        begin = partial(process, None, database, folder, usage=True, **sections)
        replicas = [Replica(begin), Replica(begin)]
        async with replicas[0].lives, replicas[1].lives:
            for replica in replicas:
                await replica.start()
            yield Site(replicas, (first, second), database, folder)


def _sections(first, second):
    """Return the configuration, with a budget for each team and a price for each model."""
    return {
        "backends": {"gpu1": {"url": first.url}, "gpu2": {"url": second.url}},
        "models": {
            "qwen": {"backends": ["gpu1", "gpu2"], "price": PRICES["qwen"]},
            "llama": {"backends": ["gpu2"], "price": PRICES["llama"]},
        },
        "auth": {
            "keys": [{"name": "ops", "key": ADMIN, "scopes": ["admin"]}],
            "groups": {f"team-{number}": {"tokens_per_month": 10 * TOKENS} for number in range(TEAMS)},
            "stored_keys": True,
        },
        "metrics": {"keys": 100},
    }


async def _run(database, work):
    engine = create_async_engine(database.replace("postgresql:", "postgresql+asyncpg:"))
    try:
        async with engine.begin() as db:
            return await work(db)
    finally:
        await engine.dispose()
