"""Define the row of a kind: all that the gateway knows of a sort of server.  Each file of kinds/ has one."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from gateway.backends.kind import Kind
from gateway.backends.model_metadata import MetadataByModel, MetadataQuery
from gateway.backends.services import BackendServices

AdviceTopic = Literal["calls", "thoughts", "no_thoughts", "no_tools", "schema", "images", "window"]


class KindEndpoint(Struct, frozen=True):
    """The endpoint of a kind for requests that are passed on.

    names: the client's name of a field → the kind's; other fields of a JSON object keep theirs.
    """

    path: str
    names: Mapping[str, str] = {}


def endpoints_at(*paths: str, others: Mapping[str, KindEndpoint] = {}) -> Mapping[str, KindEndpoint]:
    """Return the endpoints of a kind by the gateway's paths.

    paths: endpoints that have the same path at the server.  others: endpoints with another path or other names.
    """
    return MappingProxyType({**{path: KindEndpoint(path) for path in paths}, **others})


class MetadataQueries(Struct, frozen=True, kw_only=True):
    """The queries for the metadata of a model; None for those that the server lacks.

    models: for the context length and the abilities; earlier ones take precedence.
    template: for the chat template.
    prompt: for a rendered prompt, up to the start of the response.
    continues: whether the server continues a last message of the assistant.
    """

    models: tuple[MetadataQuery[MetadataByModel], ...] = ()
    template: MetadataQuery[MetadataByModel] | None = None
    prompt: MetadataQuery[str | None] | None = None
    continues: MetadataQuery[bool] | None = None


class DiscoverySigns(Struct, frozen=True, kw_only=True):
    """The signs by which a server of the kind is found and recognized.

    port: the default port, unless it is the port of another kind.
    server: the header `server` of its responses.
    owner: the `owned_by` of the models that it lists.
    path: a path with a JSON object that confirms the kind.
    mark: a text in that object.
    """

    port: int | None = None
    server: str | None = None
    owner: str | None = None
    path: str | None = None
    mark: bytes = b""


class KindAdvice(Struct, frozen=True, kw_only=True):
    """The doctor's advice for a kind.

    texts: by topic; `{tools}` and `{reasoning}` are the names of the server's parsers.
    tool_parsers, reasoning_parsers: the gateway's name of a format, or an alias → the server's name of its parser.
    """

    texts: Mapping[AdviceTopic, str] = {}
    tool_parsers: Mapping[str, str] = {}
    reasoning_parsers: Mapping[str, str] = {}


class KindRow(Struct, frozen=True, kw_only=True):
    """One kind of server.

    position: its place in lists of the kinds, and in the search for servers on this machine.
    kind: its rules for requests and responses.
    services: its APIs besides chat.
    endpoints: those that the gateway passes on, by the gateway's path.
    default_start, default_tag: the start and the end of a listed model's name that requests may leave out.
    """

    position: int
    kind: Kind
    services: BackendServices
    endpoints: Mapping[str, KindEndpoint] = {}
    default_start: str = ""
    default_tag: str = ""
    metadata: MetadataQueries = MetadataQueries()
    signs: DiscoverySigns = DiscoverySigns()
    advice: KindAdvice = KindAdvice()
