"""Define a request for a model: what each API gives to the relay."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.api import responses
from gateway.api.chat import schema
from gateway.api.parameters import ModelParameters
from gateway.config import FetchSettings, ModelSettings
from gateway.errors import Problem, StoreFailed
from gateway.events import Usage
from gateway.pipeline.pipeline import Pipeline, ResponseEncoder
from gateway.request import Request
from gateway.server.conversations.reasoning_memory import NoReasoningMemory
from gateway.server.conversations.stored_context import StoredObject
from gateway.server.fetch import attachments
from gateway.server.fetch.pdf_reader import Pdfs
from gateway.server.http.memory import Room
from gateway.server.relay import token_limit
from gateway.server.relay.round_builder import build_round
from gateway.server.relay.rounds import UpstreamRound
from gateway.server.tools import Toolset
from gateway.server.upstream.model_registry import BackendRoute
from gateway.warnings import Warnings

_log = logging.getLogger("gateway")
_NO_NAMES: frozenset[str] = frozenset()
_NO_USAGE = Usage(0, 0)


class CompactionPlan(Struct, frozen=True):
    """Summarize the conversation before the response if its prompt has more than `threshold` tokens.

    encoder: makes the encoder of the summary.
    """

    threshold: int
    encoder: Callable[[], responses.SummaryEncoder]


class ModelRequest(ABC):
    """A validated request for a model, with all that depends on its API.  Each API has a subclass.

    request: neutral between the APIs; memory: the reasoning that the client does not send back.
    pdfs: reads the PDF files of the request; None: it has none that are read.
    sticky: the client's own name for requests that should reach the same backend.
    pipelines: those of its response so far; the usage of the request is theirs.
    request_id: the id of the HTTP request, for errors amid a stream and for the log.
    can_outlive_client: the response goes on as a job if its connection ends.
    keeps_headers: the API keeps headers of the client.
    room: counts the memory of what the gateway fetches for the request; None if it names nothing by a URL.
    """

    conversation = "messages"  # the API's name of the parameter that holds the messages
    fields = schema.KNOWN  # of the API, as a chat completion has them
    compaction: CompactionPlan | None = None
    can_outlive_client = keeps_headers = False
    request_id = ""
    room: Room | None = None

    def __init__(
        self,
        request: Request,
        ledger: Warnings,
        memory: NoReasoningMemory,
        pdfs: Pdfs | None = None,
        sticky: str | None = None,
    ) -> None:
        self.request, self.ledger, self.memory, self.pdfs, self.sticky = request, ledger, memory, pdfs, sticky
        self.pipelines: list[Pipeline] = []

    @abstractmethod
    def encoder(self, model: ModelSettings) -> ResponseEncoder:
        """Return the encoder of the response, for the model that gives it."""

    async def store(self, record: StoredObject) -> None:  # noqa: B027 - some APIs store nothing
        """Store the response, if the API stores any.  Raise StoreFailed."""

    def toolset(self, model: ModelSettings) -> Toolset | None:
        """Return the tools that run at the gateway for this model; None if there are none."""
        return None

    def build_round(
        self, request: Request, route: BackendRoute, ledger: Warnings, max_frame_bytes: int
    ) -> Awaitable[UpstreamRound]:
        """Build the round that sends `request`, a version of this one, to the backend of a route."""
        return build_round(request, route, ledger, max_frame_bytes)

    def accept(self, headers: Callable[[], dict[str, str]]) -> Awaitable[bool] | None:
        """Accept the request once nothing can refuse it any more; await True if the client has its headers by that.

        None: there is nothing to wait for, and the client does not have them.
        """
        return None

    async def on_tools_start(self) -> None:  # noqa: B027 - only a job has to
        """Prepare for tools: Attempts calls this before they run.  Raise StoreFailed if they must not run."""

    def usage(self) -> Usage:
        """Return the usage so far."""
        if len(self.pipelines) == 1:
            return self.pipelines[0].usage
        return sum([pipeline.usage for pipeline in self.pipelines], _NO_USAGE)

    def used_tokens(self) -> int:
        """Return the tokens used so far."""
        usage = self.usage()
        return usage.prompt + usage.completion

    def keep_headers(self, headers: Mapping[str, str]) -> None:  # noqa: B027 - for one API
        """Keep the client's headers that a backend of the same API gets."""

    def keep_to_models(self, allowed: Collection[str]) -> None:  # noqa: B027 - for one API
        """Leave out fallbacks to other models than these, which some clients send by themselves."""

    async def without_files(self, request: Request, settings: FetchSettings, tenant: str) -> Request:
        """Return a request with the text of its files.  Raise BadRequest for a file that cannot be read."""
        assert self.pdfs  # only a prompt has none, and a prompt names no files
        return await attachments.inline_request_files(request, settings, self.ledger, self.pdfs, tenant, room=self.room)

    def with_parameters(
        self, request: Request, model: ModelSettings, ledger: Warnings, *, limited: bool = False
    ) -> tuple[Request, frozenset[str]]:
        """Return a version of the request with the model's parameters, and the names of the fields that they set.

        limited: the token limit fits the backend already.
        """
        if not (model.defaults or model.overrides):
            return request, _NO_NAMES
        limit_name = token_limit.name(self.request, self.conversation)
        made, names = ModelParameters(model.defaults, model.overrides).apply(request, self.fields, limit_name, ledger)
        return (replace(made, max_tokens=request.max_tokens) if limited else made), names

    async def store_or_warn(self, record: StoredObject) -> bool:
        """Store the response; return False, with a warning, if the store fails: the client gets it all the same."""
        try:
            await self.store(record)
        except StoreFailed as error:
            extra = {"request_id": self.request_id}  # "" if this process continues another one's job
            _log.warning("the response could not be stored: %s", error.reason, extra=extra)
            self.ledger.add("dropped", "store")
            return False
        return True

    def localizer(self) -> Callable[[Problem], Problem]:
        """Return a function that gives a problem the name of the parameter, and the place in it, that the client knows.

        The pipelines of this request have the function, so a reference to this object would be a cycle.
        """
        return partial(_localized, self.request, self.conversation, self._place_finder())

    def _place_finder(self) -> Callable[[str], str]:
        """Return a function that finds the place in the client's body of a part of the chat messages."""
        conversation = self.conversation
        return lambda param: param if conversation == "messages" else conversation

    def token_count(self, tokens: int) -> dict[str, Any]:
        """Return the response to a request for a count of its tokens."""
        return {"input_tokens": tokens}


class InputRequest(ModelRequest):
    """A request whose messages come from the `input` of the Responses API."""

    conversation = "input"
    body: Mapping[str, Any] = {}  # where the messages come from, if an error may name a part of it

    def keep_body_with_parts(self, body: Mapping[str, Any]) -> None:
        """Keep a body whose parts an error may name; any other is freed while the model responds."""
        if not self.request.is_text_only and responses.has_parts(self.request.messages):
            self.body = body

    def _place_finder(self) -> Callable[[str], str]:
        body, messages, conversation = self.body, self.request.messages, self.conversation
        return lambda param: responses.place(body, messages, param) or conversation

    def token_count(self, tokens: int) -> dict[str, Any]:
        return {"object": "response.input_tokens", "input_tokens": tokens}


def _localized(request: Request, conversation: str, find_place: Callable[[str], str], problem: Problem) -> Problem:
    if problem.param in ("max_tokens", "max_completion_tokens"):
        return replace(problem, param=token_limit.name(request, conversation))
    param = problem.param or ""
    place = find_place(param) if param.startswith("messages") else param
    return replace(problem, param=place, message=problem.message.replace(param, place)) if place != param else problem
