"""Test embeddings of images: `messages` as vLLM has them, and objects in `input` as llama.cpp and SGLang have them.

https://docs.vllm.ai/en/latest/serving/openai_compatible_server/
"""

import base64
import json

import openai
import pytest
from openai.types import CreateEmbeddingResponse

from gateway.api.embeddings import parse_embeddings
from gateway.backends.kinds import ROWS
from gateway.errors import BadRequest
from gateway.warnings import Warnings
from support.app import bearer, gateway, problem
from support.backends import fleet
from support.batches import RUNNING
from support.embedding_servers import MARKER, LlamaCppEmbeddings, VllmEmbeddings, embedding_site
from support.pdf import pdf, words
from support.stored import ANN, BOB, TENANTS
from support.upstream import CLOSE, whole
from support.wait import DEADLINE, until
from support.web import HERE, PNG, page, web

BAD = "invalid_request_error"
DATA = base64.b64encode(PNG).decode()
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}
TEXT = {"type": "text", "text": "Represent this."}
MESSAGES = [{"role": "user", "content": [IMAGE, TEXT]}]
VECTOR = whole({"data": [{"index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": 3}})
OPTIONS = {
    "chat_template_kwargs": {"instruction": "x"}, "add_generation_prompt": True, "continue_final_message": False,
    "add_special_tokens": False, "mm_processor_kwargs": {"size": 1}, "media_io_kwargs": {"image": {}},
    "truncate_prompt_tokens": 5, "padding": "do_not_pad", "use_activation": True,
}  # fmt: skip


async def embed(site, messages=MESSAGES, *, headers=None, **fields):
    body = {"model": "m", "messages": messages, **fields}
    return await site.client.post(
        "/v1/embeddings", json={k: v for k, v in body.items() if v is not None}, headers=headers
    )


def vectors(answer):
    return [entry["embedding"] for entry in answer.json()["data"]]


# Messages


async def test_messages_reach_vllm_unchanged_with_its_options():
    async with embedding_site(VllmEmbeddings(), "vllm", model={"upstream_model": "qwen3-vl-embedding"}) as site:
        answer = await embed(site, **OPTIONS, headers={"x-gateway-strict": "1"})
        assert site.server.bodies == [{"model": "qwen3-vl-embedding", "messages": MESSAGES, **OPTIONS}]
    assert answer.json() == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [15.0, 1.0]}],
        "model": "m",
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    }
    assert "x-gateway-warnings" not in answer.headers


@pytest.mark.parametrize("content", ["Hello", [{"type": "text", "text": "Hello"}], [IMAGE], None])
async def test_messages_may_have_any_role_and_content(content):
    """A chat template of a model for retrieval has roles such as `query` and `document`."""
    messages = [{"role": "query", **({} if content is None else {"content": content})}]
    async with gateway(VECTOR, backend={"kind": "vllm"}) as site:
        assert vectors(await embed(site, messages)) == [[0.5]]
        assert site.upstream_body["messages"] == messages


async def test_messages_get_a_vector_in_the_requested_form():
    async with embedding_site(VllmEmbeddings(), "vllm") as site:
        packed = await embed(site, encoding_format="base64")
        short = await embed(site, dimensions=1)
    assert base64.b64decode(vectors(packed)[0]) == b"\0\0pA\0\0\x80?"
    assert vectors(short) == [[1.0]] and short.headers["x-gateway-warnings"] == "emulated:dimensions"


async def test_messages_of_an_unknown_server_and_its_fields_are_passed_on():
    async with gateway(VECTOR) as site:
        answer = await embed(site, chat_template_kwargs={})
        assert site.upstream_body == {"model": "m", "messages": MESSAGES, "chat_template_kwargs": {}}
    assert answer.headers["x-gateway-warnings"] == "forwarded:chat_template_kwargs"


@pytest.mark.parametrize("kind", ["llamacpp", "ollama", "lmstudio", "sglang"])
async def test_messages_are_refused_by_kinds_that_lack_them(kind):
    async with gateway(VECTOR, backend={"kind": kind}) as site:
        answer = await embed(site)
        assert problem(answer) == (400, BAD, "unsupported_value", "messages")
        assert "Send 'input' instead of 'messages'" in answer.text and site.upstream.posts == []


async def test_messages_are_refused_by_kinds_without_embeddings():
    async with gateway(VECTOR, backend={"kind": "transformers"}) as site:
        assert problem(await embed(site)) == (400, BAD, "unsupported_value", "model")


async def test_messages_skip_backends_that_lack_them():
    kinds = [{"kind": "llamacpp"}, {"kind": "transformers"}, {"kind": "vllm"}]
    async with fleet([VECTOR], [VECTOR], [VECTOR], backends=kinds, model={"retries": 0}) as site:
        assert vectors(await embed(site)) == [[0.5]]
        assert site.posts() == [0, 0, 1]
        assert vectors(await embed(site, None, input="Hi")) == [[0.5]]
        assert site.posts() == [1, 0, 1]


async def test_failure_of_a_backend_is_told_before_what_others_lack():
    async with fleet([[CLOSE]], [VECTOR], backends=[{"kind": "vllm"}, {"kind": "ollama"}]) as site:
        assert problem(await embed(site)) == (502, "server_error", "upstream_lost", None)
        assert site.posts() == [1, 0]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input": "x"}, "mutually_exclusive_parameters", "messages"),
        ({"messages": None}, "missing_required_parameter", "input"),
        ({"messages": []}, "empty_array", "messages"),
        ({"messages": "Hi"}, "invalid_type", "messages"),
        ({"messages": ["Hi"]}, "invalid_type", "messages[0]"),
        ({"messages": [{"content": "Hi"}]}, "missing_required_parameter", "messages[0].role"),
        ({"messages": [{"role": "user", "content": 1}]}, "invalid_type", "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "missing_required_parameter", "messages[0].content[0].image_url"),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]}, "missing_required_parameter", "messages[0].content[0].file.file_data"),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}]}, "file_not_found", "messages[0].content[0].file.file_id"),
        ({"messages": [{"role": "user", "content": [{"type": "input_video", "input_video": {}}]}]}, "unsupported_value", "messages[0].content[0].type"),
    ],
)  # fmt: skip
async def test_messages_not_allowed_are_refused(fields, code, param):
    async with gateway(VECTOR, backend={"kind": "vllm"}) as site:
        answer = await embed(site, **{"messages": MESSAGES, **fields})
        assert problem(answer)[2:] == (code, param) and problem(answer)[0] in (400, 404)
        assert site.upstream.posts == []


async def test_refusal_of_vllm_keeps_its_message():
    async with embedding_site(VllmEmbeddings(), "vllm") as site:
        answer = await embed(site, add_generation_prompt=True, continue_final_message=True)
    assert problem(answer)[0] == 400 and "Cannot set both" in answer.text


async def test_prompt_of_messages_that_is_too_long_is_their_fault():
    async with gateway(
        whole({"error": {"message": "input is too long"}}, status=400), backend={"kind": "vllm"}
    ) as site:
        assert problem(await embed(site)) == (400, BAD, "context_length_exceeded", "messages")


async def test_url_of_an_image_reaches_a_server_that_fetches():
    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    async with embedding_site(VllmEmbeddings(), "vllm") as site:
        assert vectors(await embed(site, [{"role": "user", "content": [part]}])) == [[0.0, 1.0]]
        assert site.server.bodies[0]["messages"][0]["content"] == [part]


async def test_files_of_messages_are_read():
    document = base64.b64encode(pdf(words("Hello there"))).decode()
    file = {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{document}", "filename": "a.pdf"}}
    async with embedding_site(VllmEmbeddings(), "vllm") as site:
        answer = await embed(site, [{"role": "user", "content": [file]}])
        ((part,),) = [message["content"] for message in site.server.bodies[0]["messages"]]
    assert part["type"] == "text" and "Hello there" in part["text"]
    assert answer.headers["x-gateway-warnings"] == "translated:file"


async def test_files_of_messages_are_fetched_from_configured_networks():
    async with (
        web({"/a.txt": page(b"Hello")}) as pages,
        embedding_site(VllmEmbeddings(), "vllm", files={"fetch": True, "networks": [HERE]}) as site,
    ):
        part = {"type": "file", "file": {"file_url": f"{pages.url}/a.txt"}}
        answer = await embed(site, [{"role": "user", "content": [part]}])
        assert '<file name="a.txt">Hello</file>' in json.dumps(site.server.bodies).replace('\\"', '"')
    assert answer.headers["x-gateway-warnings"] == "translated:file_url, translated:file"


async def test_stored_files_of_messages_belong_to_their_owner():
    async with embedding_site(VllmEmbeddings(), "vllm", auth=TENANTS) as site:
        files, data = {"file": ("a.txt", b"Hello")}, {"purpose": "user_data"}
        id = (await site.client.post("/v1/files", files=files, data=data, headers=ANN)).json()["id"]
        messages = [{"role": "user", "content": [IMAGE, {"type": "file", "file": {"file_id": id}}]}]
        answer = await embed(site, messages, headers=ANN)
        image, text = site.server.bodies[0]["messages"][0]["content"]
        assert (image, text["text"]) == (IMAGE, '<file name="a.txt">Hello</file>')
        assert problem(await embed(site, messages, headers=BOB))[:3] == (404, BAD, "file_not_found")
    assert vectors(answer) == [[31.0, 1.0]]
    assert answer.headers["x-gateway-warnings"] == "translated:file_id, translated:file"


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": [IMAGE, {"type": "text", "text": "a" * 40}]}]},
        {"messages": None, "input": [{"text": "a" * 40, "image": "b" * 4000}]},
        {"messages": None, "input": ["a" * 20, {"prompt_string": "a" * 20, "multimodal_data": [DATA]}]},
        {"messages": [{"role": "user", "content": "a" * 40}]},
    ],
)
async def test_images_are_no_tokens_of_an_estimate(fields):
    key = {"name": "ann", "key": "k", "limits": {"tokens_per_minute": 100}}
    data = [{"index": i, "embedding": [0.5]} for i in range(len(fields.get("input") or "1"))]
    async with gateway(whole({"data": data}), auth={"keys": [key]}) as site:
        answer = await embed(site, **fields, headers=bearer("k"))
    assert answer.json()["usage"] == {"prompt_tokens": 10, "total_tokens": 10}
    assert answer.headers["x-gateway-warnings"] == "estimated:usage"
    assert answer.headers["x-ratelimit-remaining-tokens"] == "90"


async def test_texts_of_messages_count_against_a_token_limit():
    key = {"name": "ann", "key": "k", "limits": {"tokens_per_minute": 100}}
    async with gateway(VECTOR, auth={"keys": [key]}) as site:
        answer = await embed(site, [{"role": "user", "content": "a" * 1000}], headers=bearer("k"))
        assert answer.status_code == 429 and site.upstream.posts == []
        alone = await embed(site, [{"role": "user", "content": [IMAGE]}], headers=bearer("k"))
    assert alone.status_code == 200


async def test_sdk_sends_messages():
    async with embedding_site(VllmEmbeddings(), "vllm") as site:
        url = f"{site.client.base_url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", timeout=DEADLINE, max_retries=0) as client:
            made = await client.embeddings.create(model="m", input=openai.omit, extra_body={"messages": MESSAGES})
            assert site.server.bodies[0]["encoding_format"] == "base64"
            body = {"model": "m", "messages": MESSAGES, "encoding_format": "float"}
            posted = await client.post("/embeddings", cast_to=CreateEmbeddingResponse, body=body)
    assert made.data[0].embedding == posted.data[0].embedding == [15.0, 1.0]
    assert (made.model, made.usage.prompt_tokens) == ("m", 5)


async def test_batch_has_embeddings_of_messages():
    lines = [
        {"custom_id": id, "method": "POST", "url": "/v1/embeddings", "body": {"model": "m", **body}}
        for id, body in (("a", {"messages": MESSAGES}), ("b", {"input": "Hello"}))
    ]
    async with embedding_site(VllmEmbeddings(), "vllm") as site:
        file = {"file": ("lines.jsonl", b"\n".join(json.dumps(one).encode() for one in lines))}
        id = (await site.client.post("/v1/files", files=file, data={"purpose": "batch"})).json()["id"]
        wanted = {"input_file_id": id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
        batch = (await site.client.post("/v1/batches", json=wanted)).json()["id"]
        found = []

        async def runs():
            found.append((await site.client.get(f"/v1/batches/{batch}")).json())
            return found[-1]["status"] in RUNNING

        await until(runs, False)
        output = await site.client.get(f"/v1/files/{found[-1]['output_file_id']}/content")
    made = {line["custom_id"]: line["response"]["body"] for line in map(json.loads, output.text.splitlines())}
    assert {id: body["data"][0]["embedding"] for id, body in made.items()} == {"a": [15.0, 1.0], "b": [5.0, 0.0]}


# Objects in the input


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_objects_reach_llamacpp_with_their_images(encoding):
    given = ["Hello", {"prompt_string": f"A{MARKER}", "multimodal_data": [DATA]}, {"prompt_string": "Hi"}]
    async with embedding_site(LlamaCppEmbeddings(), "llamacpp") as site:
        answer = await embed(site, None, input=given, embd_normalize=2, headers={"x-gateway-strict": "1"})
        assert site.server.bodies == [{"model": "m", "input": given, "embd_normalize": 2}]
        packed = await embed(site, None, input=given[1], encoding_format=encoding)
        assert site.server.bodies[1]["input"] == [given[1]]
    assert vectors(answer) == [[5.0, 0.0], [1.0, 1.0], [2.0, 0.0]]
    assert vectors(packed) == [[1.0, 1.0] if encoding == "float" else "AACAPwAAgD8="]
    assert "x-gateway-warnings" not in answer.headers


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt_string": "no marker", "multimodal_data": [DATA]},
        {"prompt_string": MARKER, "multimodal_data": ["AAAA"]},
    ],
)
async def test_media_that_llamacpp_cannot_read_are_the_fault_of_the_client(fields):
    async with embedding_site(LlamaCppEmbeddings(), "llamacpp") as site:
        assert problem(await embed(site, None, input=fields))[:2] == (400, BAD)


@pytest.mark.parametrize(
    ("kind", "given", "param"),
    [
        ("llamacpp", {"text": "Hi", "image": DATA}, "input[0]"),
        ("sglang", ["Hi", {"prompt_string": "Hi"}], "input[1]"),
        ("vllm", [{"text": "Hi"}], "input[0]"),
        ("ollama", [{"text": "Hi"}], "input[0]"),
        ("lmstudio", [{}], "input[0]"),
    ],
)
async def test_objects_are_refused_by_kinds_that_lack_them(kind, given, param):
    async with gateway(VECTOR, backend={"kind": kind}) as site:
        answer = await embed(site, None, input=given)
        assert problem(answer) == (400, BAD, "unsupported_value", param) and site.upstream.posts == []


@pytest.mark.parametrize("kind", ["sglang", "openai"])
async def test_objects_of_text_and_image_reach_servers_that_know_them(kind):
    async with gateway(VECTOR, backend={"kind": kind}) as site:
        assert vectors(await embed(site, None, input=[{"text": "Hi", "image": DATA}])) == [[0.5]]
        assert site.upstream_body == {"model": "m", "input": [{"text": "Hi", "image": DATA}]}


@pytest.mark.parametrize(
    ("given", "code", "param"),
    [
        ([{"text": "a"}, ""], "empty_string", "input[1]"),
        ([{"text": "a"}, 7], "invalid_type", "input[1]"),
        ([{"text": "a"}] * 2049, "array_above_max_length", "input"),
    ],
)
async def test_objects_beside_wrong_texts_are_refused(given, code, param):
    async with gateway(VECTOR) as site:
        assert problem(await embed(site, None, input=given)) == (400, BAD, code, param)


@pytest.mark.parametrize("kind", ROWS)
def test_kinds_take_messages_as_their_row_says(kind):
    request = parse_embeddings(json.dumps({"model": "m", "messages": MESSAGES}).encode())
    if not ROWS[kind].services.embeddings:
        assert request.ask(ROWS[kind].services, "m", Warnings()) is None
    elif ROWS[kind].services.embeds_messages:
        assert request.ask(ROWS[kind].services, "m", Warnings())[0] == "/v1/embeddings"
    else:
        with pytest.raises(BadRequest):
            request.ask(ROWS[kind].services, "m", Warnings())
