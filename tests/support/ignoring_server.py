"""A server that ignores most fields without an error, with a real model behind it.

    with deaf(url_of_a_llama_cpp) as url: ...

It serves chat completions and the list of its models.
"""

from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from support.threaded_gateway import listening, underneath

HEEDED = {
    "max_completion_tokens": "max_tokens",
    **{name: name for name in ("model", "messages", "max_tokens", "temperature", "top_p", "stream", "stream_options")},
}
CHAT = "/v1/chat/completions"


def deaf(url):
    """Return the context of a server in front of a llama.cpp; its value is the URL."""
    model = underneath(url)

    async def chat(http):
        body = await http.json()
        heeded = {there: body[name] for name, there in HEEDED.items() if name in body}
        if heeded["messages"][-1]["role"] == "assistant":  # the response is a message of its own, as with most servers
            heeded["messages"].append({"role": "user", "content": ""})
        answer = await model.send(model.build_request("POST", CHAT, json=heeded), stream=True)
        type = answer.headers["content-type"]
        return StreamingResponse(answer.aiter_bytes(), answer.status_code, media_type=type)

    async def models(_):
        answer = await model.get("/v1/models")
        return Response(answer.content, media_type="application/json")

    return listening(Starlette(routes=[Route(CHAT, chat, methods=["POST"]), Route("/v1/models", models)]))
