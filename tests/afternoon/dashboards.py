"""A real Prometheus with the configuration of deploy/, and what its dashboard shows."""

import asyncio
import json
import re
import shutil
from contextlib import asynccontextmanager
from math import isfinite

import httpx

from support.deployment import documents, expressions, text_of
from support.paths import ROOT
from support.ports import free_port
from support.wait import until

_FOLDER = "deploy/compose"
_VARIABLES = {"model": ".*", "backend": ".*", "key": ".*", "objective": "99.5", "__range": "5m"}
_PATH = "/usr/local/bin:/usr/bin"


class Prometheus:
    """client: of its API; expressions: those of the dashboard, with a value for each variable."""

    def __init__(self, client):
        self._client = client
        board = json.loads(text_of(f"{_FOLDER}/grafana/gateway.json"))
        self.expressions = [_filled(expr) for expr, _ in expressions(board)]
        (panel,) = (one for one in board["panels"] if one["title"] == "Cost by model")
        # Of all tokens so far: an increase is an estimate.
        self._costs = re.sub(r"increase\((.*?})\[\w+]\)", r"\1", _filled(panel["targets"][0]["expr"]))

    async def without_data(self):
        """Return the expressions that have no number at this moment."""
        return [expr for expr in self.expressions if not any(map(isfinite, await self._values(expr)))]

    async def _values(self, expr):
        return [float(one["value"][1]) for one in await self._query(expr)]

    async def costs(self):
        """Return what the tokens of each model cost by its panel, rounded."""
        return {one["metric"]["model"]: round(float(one["value"][1]), 9) for one in await self._query(self._costs)}

    async def _query(self, expr):
        return (await self._get("query", query=expr))["result"]

    async def keys(self):
        """Return the values of the dashboard's variable `key`."""
        return await self._get("label/key/values", **{"match[]": "gateway_requests_total"})

    async def rules(self):
        """Return the states of the alerts: `ok` if an alert can be evaluated."""
        groups = (await self._get("rules"))["groups"]
        return [rule["health"] for group in groups for rule in group["rules"]]

    async def is_ready(self):
        """Return whether it takes requests."""
        try:
            return (await self._client.get("/-/ready")).is_success
        except httpx.TransportError:
            return False

    async def _get(self, path, **parameters):
        answer = await self._client.get(f"/api/v1/{path}", params=parameters)
        assert answer.is_success, answer.text
        return answer.json()["data"]


@asynccontextmanager
async def prometheus(folder, targets, key):
    """Run Prometheus within the block.  targets: addresses of gateways; key: one of the scope admin."""
    program = shutil.which("prometheus", path=_PATH)
    assert program, "the afternoon needs Prometheus: apt-get install prometheus"
    (config,) = documents(text_of(f"{_FOLDER}/prometheus.yml"))
    (job,) = config["scrape_configs"]
    job |= {"scrape_interval": "1s", "authorization": {"credentials": key}, "static_configs": [{"targets": targets}]}
    config |= {"global": {"evaluation_interval": "1s"}, "rule_files": [f"{ROOT}/{_FOLDER}/alerts.yml"]}
    file, port, quiet = folder / "prometheus.yml", free_port(), asyncio.subprocess.DEVNULL
    file.write_text(json.dumps(config))
    where = f"--storage.tsdb.path={folder}/prometheus", f"--web.listen-address=127.0.0.1:{port}"
    child = await asyncio.create_subprocess_exec(program, f"--config.file={file}", *where, stdout=quiet, stderr=quiet)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            found = Prometheus(client)
            await until(found.is_ready)
            yield found
    finally:
        child.kill()
        await child.wait()


def _filled(expr):
    """Return an expression with a value for each variable."""
    return re.sub(r"\$(\w+)", lambda found: _VARIABLES[found[1]], expr)
