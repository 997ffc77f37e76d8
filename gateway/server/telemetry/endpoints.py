"""Map the path of a request to one of few names, as a client may send any path."""

_ASKING = frozenset(
    (
        "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/responses/compact",
        "/v1/responses/input_tokens", "/v1/embeddings", "/v1/rerank", "/v1/tokenize", "/v1/detokenize",
    )
)  # fmt: skip
_STORED = {  # and all that is below
    "/v1/responses": "/v1/responses/{id}",
    "/v1/chat/completions": "/v1/chat/completions/{id}",
    "/v1/conversations": "/v1/conversations",
    "/v1/models": "/v1/models",
}
_OURS = frozenset(("/health", "/ready", "/metrics", "/"))
_CONSOLE = ("/admin/", "/assets/")
RESPONSES = "/v1/responses"
OTHER = "other"


def endpoint_label(method: str, path: str) -> str:
    """The path where it is a question for a model; "" for what asks after the gateway itself."""
    if method == "POST" and path in _ASKING:
        return path
    if path in _OURS or path.startswith(_CONSOLE):
        return ""
    return next((name for root, name in _STORED.items() if f"{path}/".startswith(f"{root}/")), OTHER)
