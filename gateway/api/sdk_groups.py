"""List the groups of methods of the OpenAI SDK, and what the gateway does with each."""

from typing import Literal

from msgspec import Struct

Treatment = Literal["served", "own", "passed on", "refused"]


class MethodGroup(Struct, frozen=True):
    """Groups of methods that the gateway treats alike.

    names: of the groups as in `client.NAME`, each with the groups below it.
    paths: beginnings of the methods' paths, without `/v1`.
    note: on the treatment, in sentences; of a refused group the reason, with what to use in its place.
    treatment: `served` by a model of a backend, the gateway's `own` data, `passed on` to a backend, or `refused`.
    """

    names: tuple[str, ...]
    paths: tuple[str, ...]
    note: str = ""
    treatment: Treatment = "refused"


_REFUSED = (
    MethodGroup(
        ("vector_stores",),
        ("/vector_stores",),
        "The gateway stores no vectors. Use the tool `file_search` with a server of `tools.file_search`.",
    ),
    MethodGroup(
        ("beta.assistants", "beta.threads"),
        ("/assistants", "/threads"),
        "OpenAI replaces this API by Responses. Use `/v1/responses` with `/v1/conversations`.",
    ),
    MethodGroup(
        ("beta.agents", "beta.chatkit"),
        ("/agents", "/vaults", "/chatkit"),
        "OpenAI hosts these agents. Run an agent as a client of `/v1/responses`.",
    ),
    MethodGroup(
        ("containers",),
        ("/containers",),
        "The gateway runs no code. Use a tool of an MCP server of `tools.mcp`.",
    ),
    MethodGroup(("skills",), ("/skills",), "The gateway stores no skills. Send their text in `instructions`."),
    MethodGroup(
        ("fine_tuning",),
        ("/fine_tuning",),
        "Model servers train no models. Train the model elsewhere, and add it to `models`.",
    ),
    MethodGroup(
        ("evals",),
        ("/evals",),
        "The gateway runs no evaluations. Run them as a client of `/v1/chat/completions`.",
    ),
    MethodGroup(
        ("videos", "decisions"),
        ("/videos", "/decisions"),
        "The gateway does not pass these on. Use the address of the model server.",
    ),
    MethodGroup(
        (
            "realtime.calls",
            "realtime.client_secrets",
            "realtime.translations",
            "beta.realtime.sessions",
            "beta.realtime.transcription_sessions",
        ),
        (
            "/realtime/calls",
            "/realtime/client_secrets",
            "/realtime/translations",
            "/realtime/sessions",
            "/realtime/transcription_sessions",
        ),
        "The gateway issues no short-lived keys and makes no calls. Open a WebSocket at `/v1/realtime`.",
    ),
    MethodGroup(
        ("live",),
        ("/live",),
        "The gateway does not pass these sessions on. Open a WebSocket at `/v1/realtime`.",
    ),
    MethodGroup(
        ("audio.voices", "audio.voice_consents"),
        ("/audio/voices", "/audio/voice_consents"),
        "The model server has the voices. Name one of them in `voice` of `/v1/audio/speech`.",
    ),
    MethodGroup(
        ("webhooks.event_types",),
        ("/webhook_event_types",),
        "The gateway sends no webhooks. Retrieve a response in the background with `stream`.",
    ),
    MethodGroup(
        ("admin",),
        ("/organization", "/projects"),
        "The gateway has no organizations. Use `/admin/keys` for keys, and `/admin/usage` for usage.",
    ),
    MethodGroup(
        ("content_provenance_checks", "safety"),
        ("/content_provenance_checks", "/safety"),
        "Only OpenAI has this service. Use `https://api.openai.com/v1` for it.",
    ),
)
SDK_GROUPS = (
    MethodGroup(
        ("chat.completions", "beta.chat.completions"),
        ("/chat/completions",),
        "The gateway stores those with `store: true`.",
        "served",
    ),
    MethodGroup(("completions",), ("/completions",), treatment="served"),
    MethodGroup(
        ("responses", "beta.responses"),
        ("/responses",),
        "The gateway stores them, and runs them in the background.",
        "served",
    ),
    MethodGroup(("embeddings",), ("/embeddings",), treatment="served"),
    MethodGroup(("models",), ("/models",), "The configuration has the models, so `delete` gets a 405.", "own"),
    MethodGroup(("conversations",), ("/conversations",), treatment="own"),
    MethodGroup(("files", "uploads"), ("/files", "/uploads"), treatment="own"),
    MethodGroup(("batches",), ("/batches",), "They run on slots that other requests leave free.", "own"),
    MethodGroup(
        ("audio.transcriptions", "audio.translations", "audio.speech"),
        ("/audio/transcriptions", "/audio/translations", "/audio/speech"),
        treatment="passed on",
    ),
    MethodGroup(("images",), ("/images",), treatment="passed on"),
    MethodGroup(("moderations",), ("/moderations",), treatment="passed on"),
    MethodGroup(("realtime", "beta.realtime"), ("/realtime",), "The WebSocket of `connect`.", "passed on"),
    *_REFUSED,
)


def refusal(path: str) -> str | None:
    """Return why the gateway refuses a path, and what to use in its place; None for a path of no refused group."""
    plain = f"{path.removeprefix('/v1')}/"
    return next((group.note for group in _REFUSED if plain.startswith(tuple(f"{one}/" for one in group.paths))), None)
