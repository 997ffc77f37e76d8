"""Send the doctor's probes to a model, one at a time."""

import asyncio
from collections.abc import Callable

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace

from gateway import config
from gateway.backends import KINDS
from gateway.doctor.findings import Findings
from gateway.doctor.probe_requests import PROBE_REQUESTS, ProbeRequest, build_probe_body, omitted_fields
from gateway.doctor.probe_response import ProbeResponse, ProbeResponseReader
from gateway.errors import GatewayError, Problem
from gateway.formats import FORMATS
from gateway.formats.selection import FormatChoice
from gateway.request import Request
from gateway.server.relay.format_selection import choose_format
from gateway.server.upstream import model_registry
from gateway.server.upstream.backend import Backend
from gateway.server.upstream.model_registry import BackendRoute
from gateway.server.upstream.upstream_call import HttpUpstreamCall
from gateway.warnings import Warnings

_LIMIT = 1 << 20  # bytes of a response of an endpoint below


class _OtherApi(Struct, frozen=True):
    """An API that the server may have itself: a request, and the member by which its response is known."""

    path: str
    request: dict[str, object]
    known_by: tuple[str, str]


_RESPONSES = _OtherApi(
    "/v1/responses", {"input": "Hello!", "max_output_tokens": 16, "stream": False}, ("object", "response")
)
_MESSAGES = _OtherApi(
    "/v1/messages",
    {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 16, "stream": False},
    ("type", "message"),
)


class ModelExaminer:
    """Examine models of one backend.

    settings: those of the backend.
    until: the end of the examination, in the time of the event loop.
    seconds: for one response.
    tick: called after each probe, for the progress bar.
    """

    def __init__(
        self, backend: Backend, settings: config.BackendSettings, until: float, seconds: float, tick: Callable[[], None]
    ) -> None:
        self._backend, self._settings, self._until, self._max_seconds, self._tick = (
            backend,
            settings,
            until,
            seconds,
            tick,
        )
        self._now = asyncio.get_running_loop().time

    async def examine(self, model: str, configured: config.ModelSettings | None = None) -> Findings:
        """Send all probes to a model and return the findings.  If the first probe fails, the others are skipped.

        configured: the model in the configuration, which may set the context length.
        """
        chosen = await self._choose_format(model)
        response: dict[str, ProbeResponse] = {}
        for name, probe in PROBE_REQUESTS.items():
            if self._seconds() and not ("plain" in response and response["plain"].problem):
                response[name] = await self._send_probe(probe, model, special=FORMATS[chosen.format].special)
            self._tick()
        responses, messages = [
            await self._has_api(one, model) if self._seconds() else None for one in (_RESPONSES, _MESSAGES)
        ]
        # The metadata comes last: some servers know it only once the model is loaded.
        route = BackendRoute(model, configured or config.ModelSettings(), self._backend, model)
        known = await model_registry.metadata_of_route(route)
        return Findings(
            kind=self._settings.kind,
            probe_responses=response,
            chosen=chosen,
            metadata=known,
            responses=responses,
            messages=messages,
            ignores=self._settings.ignores,
        )

    def _seconds(self) -> float:
        """Return the seconds that a response may take, within both limits."""
        return max(min(self._max_seconds, self._until - self._now()), 0)

    def _route(self, model: str, format: str = "auto") -> BackendRoute:
        return BackendRoute(model, config.ModelSettings(format=format), self._backend, model)

    async def _choose_format(self, model: str) -> FormatChoice:
        """Choose the format by name or template, and learn if the prompt opens a thought.

        The second choice names a format, so that the prompt is checked even if the server parses the reasoning.
        """
        nothing = Request(model=model, messages=())
        chosen = await choose_format(self._route(model), nothing)
        named = await choose_format(self._route(model, "think" if chosen.format == "auto" else chosen.format), nothing)
        return replace(chosen, thought_open=named.thought_open)

    async def _send_probe(self, probe: ProbeRequest, model: str, *, special: bool) -> ProbeResponse:
        ledger, begun = Warnings(), self._now()
        kind = KINDS[self._settings.kind]
        request, body = build_probe_body(probe, model, kind, special, ledger)
        reader = ProbeResponseReader(probe, request, kind)
        call, seconds = HttpUpstreamCall(self._backend, body, reader.set_content_type), self._seconds()
        try:
            async with asyncio.timeout(seconds):
                await self._read_response(call, reader, begun)
        except TimeoutError:
            reader.fail(Problem(504, f"the response did not end within {seconds:.0f} s"))
        except GatewayError as error:
            reader.fail(error.problem)
        finally:
            call.close()
        return self._mask_key(replace(reader.response(), omitted_fields=omitted_fields(ledger)))

    async def _read_response(self, call: HttpUpstreamCall, reader: ProbeResponseReader, begun: float) -> None:
        while not reader.done:
            await call.ready()
            data = call.read()
            call.report_outcome(None)
            if not data:
                reader.close(self._now() - begun)
                return
            reader.feed(data, self._now() - begun)

    def _mask_key(self, response: ProbeResponse) -> ProbeResponse:
        """Mask the API key in a problem; a server may repeat the key in its error message."""
        return replace(response, problem=self._backend.mask_problem(response.problem)) if response.problem else response

    async def _has_api(self, api: _OtherApi, model: str) -> bool | None:
        """Return True if the server has this API itself; None if unknown."""
        body = json.encode({"model": model, **api.request})
        call = HttpUpstreamCall(self._backend, body, lambda _: None, api.path)
        raw = b""
        try:
            async with asyncio.timeout(self._seconds()):
                while len(raw) < _LIMIT and await call.ready() and (data := call.read()):
                    raw += data
            call.report_outcome(None)
            member, value = api.known_by
            return json.decode(raw, type=dict[str, object]).get(member) == value
        except GatewayError as error:
            return False if error.problem.code == "unsupported_value" else None
        except (TimeoutError, DecodeError, RecursionError):
            return None
        finally:
            call.close()
