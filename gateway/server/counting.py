"""How many tokens a prompt has: as the server of its model counts them, or estimated where it does not."""

from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.types import Send

from gateway import config
from gateway.ledger import Warnings
from gateway.server import heads, images
from gateway.server.preparing import build_round
from gateway.server.questions import ModelRequest
from gateway.server.rounds import UpstreamRound
from gateway.server.ways import RetryPolicy
from gateway.upstream import estimate_tokens_from_characters


class TokenCounting(Struct, frozen=True):
    """A count of the tokens of a request, without a response."""

    http: HttpRequest
    question: ModelRequest
    ways: RetryPolicy
    settings: config.Config

    async def run(self, send: Send) -> bool:
        http, ledger, route = self.http, self.question.ledger, self.ways.first().route
        request = await self.question.without_files(self.settings.files, self.ways.asker.tenant)
        request = await images.inline_request_images(request, route.backend.kind, self.settings.images, ledger)
        round = await build_round(request, route, ledger, self.settings.limits.frame_bytes)
        heads.reject_if_strict(heads.strict_route(http, route), ledger.entries())
        said = {"object": "response.input_tokens", "input_tokens": await count_input_tokens(round, ledger)}
        response = JSONResponse(said, headers=heads.gateway_headers(http, route, round.chosen, ledger))
        await response(http.scope, http.receive, send)
        return True


async def count_input_tokens(round: UpstreamRound, ledger: Warnings) -> int:
    counted = await round.route.backend.count(round.bodies[0])
    if counted is None:
        ledger.note("estimated", "input_tokens")
        return estimate_tokens_from_characters(round.size)
    return counted
