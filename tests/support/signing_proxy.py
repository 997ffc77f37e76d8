"""A proxy that signs users in, as oauth2-proxy does: it replaces the headers of clients by those of the user."""

import httpx
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from support.wait import DEADLINE

_REPLACED = (b"cookie", b"x-forwarded-user", b"x-forwarded-groups", b"x-forwarded-for")


class SigningProxy:
    """An ASGI application in front of a gateway.

    users: the name and the groups of the user, by the session in the cookie.
    """

    def __init__(self, url: str, users: dict[str, tuple[str, str]]) -> None:
        self._url, self._users = url, users

    async def __call__(self, scope, receive, send):
        request = Request(scope, receive)
        user = self._users.get(request.cookies.get("session", ""))
        answer = await self._passed(request, *user) if user else RedirectResponse("/oauth2/sign_in")
        await answer(scope, receive, send)

    async def _passed(self, request: Request, name: str, groups: str) -> Response:
        headers = [one for one in request.headers.raw if one[0] not in _REPLACED]
        headers += [
            (b"x-forwarded-user", name.encode()),
            (b"x-forwarded-groups", groups.encode()),
            (b"x-forwarded-for", b"203.0.113.9"),
        ]
        async with httpx.AsyncClient(base_url=self._url, timeout=DEADLINE, trust_env=False) as client:
            answer = await client.request(
                request.method, request.url.path, headers=headers, content=await request.body()
            )
        return Response(answer.content, answer.status_code, media_type=answer.headers["content-type"])
