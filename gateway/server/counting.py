"""How many tokens a prompt has: as the server of its model counts them, or estimated where it does not."""

from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.types import Send

from gateway import config
from gateway.ledger import Warnings
from gateway.server import heads, images
from gateway.server.preparing import prepare
from gateway.server.questions import ModelRequest
from gateway.server.rounds import UpstreamRound
from gateway.server.ways import RetryPolicy
from gateway.upstream import tokens


class TokenCounting(Struct, frozen=True):
    """What a question would take, without its answer."""

    http: HttpRequest
    question: ModelRequest
    ways: RetryPolicy
    settings: config.Config

    async def run(self, send: Send) -> bool:
        http, ledger, route = self.http, self.question.ledger, self.ways.first().route
        request = await self.question.without_files(self.settings.files, self.ways.asker.tenant)
        request = await images.read(request, route.backend.kind, self.settings.images, ledger)
        round = await prepare(request, route, ledger, self.settings.limits.frame_bytes)
        heads.check(heads.strictly(http, route), ledger.entries())
        said = {"object": "response.input_tokens", "input_tokens": await input_tokens(round, ledger)}
        response = JSONResponse(said, headers=heads.told(http, route, round.chosen, ledger))
        await response(http.scope, http.receive, send)
        return True


async def input_tokens(round: UpstreamRound, ledger: Warnings) -> int:
    counted = await round.route.backend.count(round.bodies[0])
    if counted is None:
        ledger.note("estimated", "input_tokens")
        return tokens(round.size)
    return counted
