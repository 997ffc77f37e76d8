"""Servers of embeddings of images, as strict as the APIs that vLLM 0.33 and llama.cpp publish.

    async with embedding_site(VllmEmbeddings(), kind="vllm") as site:
        answer = await site.client.post("/v1/embeddings", json={"model": "m", "messages": [...]})
        assert site.server.bodies[0]["messages"]

The vector of an input has two numbers: the length of its texts, and the number of its media.
"""

import base64
import json
import struct
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from gateway.server.app import create_app
from support.app import Site, running, settings
from support.wait import DEADLINE

MARKER = "<__media__>"
_OPTIONS = {
    "model": str, "encoding_format": str, "dimensions": int, "user": str, "add_special_tokens": bool, "cache_salt": str,
    "embed_dtype": str, "endianness": str, "mm_processor_kwargs": dict, "padding": str, "priority": int,
    "request_id": str, "truncate_prompt_tokens": int, "truncation_side": str, "use_activation": bool,
}  # fmt: skip
_CHAT = {
    "add_generation_prompt": bool, "continue_final_message": bool, "chat_template": str, "chat_template_kwargs": dict,
    "media_io_kwargs": dict,
}  # fmt: skip
_MEDIA = ("image_url", "video_url", "audio_url")


class Refusal(Exception):
    """A request that the API does not allow.  status: of the response."""

    def __init__(self, message, status=400):
        super().__init__(message)
        self.status = status


def check(condition, message, status=400):
    """Raise Refusal unless the condition holds."""
    if not condition:
        raise Refusal(message, status)


def packed(numbers):
    """Return the base64 of 32-bit floats."""
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


class EmbeddingServer:
    """A server; `bodies`: the bodies of the requests, `paths`: their paths."""

    paths_served = ("/v1/embeddings",)

    def __init__(self):
        self.bodies, self.paths = [], []
        self.app = Starlette(routes=[Route(path, self._answer, methods=["POST"]) for path in self.paths_served])

    async def _answer(self, http):
        body = json.loads(await http.body())
        self.bodies.append(body)
        self.paths.append(http.url.path)
        try:
            return JSONResponse(self.embed(http.url.path, body))
        except Refusal as error:
            fields = {"message": str(error), "type": "BadRequestError", "code": error.status, "param": None}
            return JSONResponse({"error": fields}, error.status)

    def embed(self, path, body):
        """Return the response to a request; raise Refusal."""
        raise NotImplementedError


class VllmEmbeddings(EmbeddingServer):
    """vLLM: `/v1/embeddings` has a vector for each input or conversation, `/pooling` one for each of its parts."""

    paths_served = ("/v1/embeddings", "/pooling")

    def embed(self, path, body):
        pooling = path == "/pooling"
        known = {**_OPTIONS, **(_CHAT if "messages" in body else {}), **({"task": str} if pooling else {})}
        for name, value in body.items():
            check(name in ("input", "messages") or type(value) is known.get(name), f"bad field {name}")
        check(("input" in body) != ("messages" in body), "send either input or messages")
        both = body.get("add_generation_prompt") and body.get("continue_final_message")
        check(not both, "Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        check(not pooling or body.get("task") == "token_embed", "Unsupported task")
        found = [self._conversation(body["messages"])] if "messages" in body else [[i, 0] for i in self._inputs(body)]
        shown = [[one, one] if pooling else one for one in found]
        if body.get("encoding_format") == "base64":
            shown = [packed([number for row in one for number in row] if pooling else one) for one in shown]
        member, kind = ("data", "pooling") if pooling else ("embedding", "embedding")
        data = [{"index": i, "object": kind, member: one} for i, one in enumerate(shown)]
        return {
            "object": "list",
            "data": data,
            "model": body["model"],
            "usage": {"prompt_tokens": 5, "total_tokens": 5},
        }

    def _inputs(self, body):
        given = body["input"] if isinstance(body["input"], list) else [body["input"]]
        check(all(isinstance(one, str) for one in given), "input: expected strings")
        return [len(one) for one in given]

    def _conversation(self, messages):
        texts = media = 0
        for message in messages:
            check(isinstance(message["role"], str), "bad role")
            content = message["content"]
            for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                texts += len(part.get("text", ""))
                check(part["type"] in ("text", *_MEDIA), f"Unknown part type: {part['type']}")
                if part["type"] in _MEDIA:
                    url = part[part["type"]]["url"]
                    check(url.startswith(("http://", "https://", "data:image/png;base64,iVBOR")), f"bad URL {url}")
                    media += 1
        return [texts, media]


class LlamaCppEmbeddings(EmbeddingServer):
    """llama.cpp with a multimodal model.  pooling: `mean` or `none`."""

    paths_served = ("/v1/embeddings", "/embeddings")
    refusal = "Pooling type 'none' is not OAI compatible. Please use a different pooling type"

    def __init__(self, pooling="mean"):
        super().__init__()
        self._pooling = pooling

    def embed(self, path, body):
        compatible = path == "/v1/embeddings"
        check(not compatible or self._pooling != "none", self.refusal)
        check("input" in body, '"input" or "content" must be provided')
        given = body["input"] if isinstance(body["input"], list) else [body["input"]]
        rows = [self._rows(one) for one in given]
        if not compatible:
            return [{"index": i, "embedding": one} for i, one in enumerate(rows)]
        base64_wanted = body.get("encoding_format") == "base64"
        shown = [packed(row) if base64_wanted else row for (row,) in rows]
        data = [{"index": i, "object": "embedding", "embedding": one} for i, one in enumerate(shown)]
        return {"object": "list", "data": data, "model": "up", "usage": {"prompt_tokens": 3, "total_tokens": 3}}

    def _rows(self, one):
        one = {"prompt_string": one} if isinstance(one, str) else one
        check("prompt_string" in one, '"prompt" elements must be a string, …', 500)
        media = one.get("multimodal_data", [])
        for data in media:
            check(base64.b64decode(data).startswith(b"\x89PNG"), "Failed to load image or audio file", 500)
        check(one["prompt_string"].count(MARKER) == len(media), "Failed to tokenize prompt", 500)
        text = one["prompt_string"].replace(MARKER, "")
        return [[float(len(text)), float(len(media))]] * (len(text) if self._pooling == "none" else 1)


@asynccontextmanager
async def embedding_site(server, kind, **sections):
    """Yield a Site whose backend `up` is this server, as `site.server`."""
    async with running(server.app) as upstream:
        config = settings(upstream, backend={"kind": kind}, **sections)
        app = create_app(config)
        async with (
            running(app, config) as url,
            httpx.AsyncClient(base_url=url, timeout=DEADLINE, verify=False) as client,
        ):
            site = Site(None, client, app)
            site.server = server
            yield site
