"""Test files in requests: the gateway gives the model their text, page by page for a PDF, or a note."""

import asyncio
import base64
import json
import runpy
import sys
import time
import zlib
from io import BytesIO
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PdfReader, PdfWriter

from gateway import config
from gateway.errors import BadRequest
from gateway.request import Request
from gateway.server.fetch import pdf_pages, pdf_reader
from gateway.server.fetch.attachments import inline_request_files as read_beside
from gateway.server.fetch.pdf_reader import Pdfs, joined
from gateway.server.http import memory
from gateway.transforms import attachments
from gateway.warnings import Warnings
from support.app import gateway, problem
from support.pdf import pdf, stream, words
from support.sampling import examples
from support.upstream import HELLO, whole
from support.upstream import completion_body as body
from support.wait import until
from support.web import HERE, hanging, page, web

NOTHING = "[no text could be read from this file]"
NOWHERE = config.FetchSettings()
CUT = "\n[the rest of this file was left out]"


def pdf_text(data):
    """Read a PDF as the program does, in this process."""
    *pages, whole = pdf_pages.pages(data)
    return joined(pages, whole=whole)


def encoded(data):
    return base64.b64encode(data).decode()


def uri(data, type="application/octet-stream"):
    return f"data:{type};base64,{encoded(data)}"


def file(data, name="x", **more):
    return {"type": "file", "file": {"file_data": data, "filename": name, **more}}


def request_with(*parts, role="user"):
    return Request(model="m", messages=({"role": role, "content": [*parts]},))


def read(part):
    """Return the text of a file part without the tags around it, and the outcome for the file."""
    request, outcomes = attachments.files_to_text(request_with(part), pdf_text)
    ((file_part,),) = (message["content"] for message in request.messages)
    assert file_part["type"] == "text"
    inner = file_part["text"].removeprefix(f'<file name="{part["file"]["filename"]}">').removesuffix("</file>")
    assert len(inner) < len(file_part["text"]) - 20
    (outcome,) = outcomes
    return inner, outcome


# Texts

UMLAUT = "Grüße – “so”: 1 €"
TEXTS = {
    "plain": (uri(b"Hello", "text/plain"), "a.txt", "Hello"),
    "bare base64": (encoded(b"Hello"), "a.txt", "Hello"),
    "base64 in lines": (encoded(b"Hello " * 20)[:40] + "\r\n" + encoded(b"Hello " * 20)[40:], "a", "Hello " * 20),
    "not base64": ("data:text/plain,Hello%20%C3%BC", "a.txt", "Hello ü"),
    "no type": ("data:;base64," + encoded(b"Hello"), "a", "Hello"),
    "capitals": ("DATA:text/plain;BASE64," + encoded(b"Hello"), "a", "Hello"),
    "json": (uri(b'{"a": 1}', "application/json"), "a.json", '{"a": 1}'),
    "csv": (uri(b"a;b\r\n1;2\r\n", "text/csv"), "a.csv", "a;b\r\n1;2\r\n"),
    "markdown": (uri(b"# A\n"), "a.md", "# A\n"),
    "xml": (uri(b"<a/>", "application/xml"), "a.xml", "<a/>"),
    "source of an unknown language": (uri("sub ü;".encode()), "a.qqq", "sub ü;"),
    "no name of a language": (encoded(b"FROM x"), "Dockerfile", "FROM x"),
    "with a mark": (uri(b"\xef\xbb\xbfHello"), "a", "Hello"),
    "UTF-8": (uri(UMLAUT.encode(), "text/plain"), "a", UMLAUT),
    "UTF-16": (uri(UMLAUT.encode("utf-16")), "a", UMLAUT),
    "Windows": (uri(UMLAUT.encode("windows-1252"), "text/plain"), "a", UMLAUT),
    "Windows, by its name": (uri("print('ü')".encode("latin-1")), "a.PY", "print('ü')"),
    "latin-1": (uri("\x81 ü".encode("latin-1"), "text/plain"), "a", "\x81 ü"),
    "latin-1 in XML": (uri("<ü/>".encode("latin-1"), "image/svg+xml"), "a", "<ü/>"),
    "a charset": (uri("Привет".encode("koi8-r"), "text/plain;charset=KOI8-R"), "a", "Привет"),
    "a charset in quotes": (uri("日本".encode("shift-jis"), 'text/plain;charset="shift_jis"'), "a", "日本"),
    "the wrong charset": (uri(UMLAUT.encode(), "text/plain;charset=ascii"), "a", UMLAUT),
    "a charset that nobody knows": (uri(b"Hello", "text/plain;charset=latin-77"), "a", "Hello"),
    "a charset that is a trap": (uri(b"\\xfc-", "text/plain;charset=unicode_escape"), "a", "\\xfc-"),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_file_of_text_is_put_in_as_it_is(case):
    data, name, text = TEXTS[case]
    assert read(file(data, name)) == (text, "translated")


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe"
OTHERS = {
    "an image": (uri(PNG, "image/png"), "x.png"),
    "an image that is said to be a text": (uri(PNG, "text/plain"), "x.txt"),
    "UTF-16 without a mark": (uri("a text".encode("utf-16-le")), "x"),
    "UTF-16 cut in two": (uri("ab".encode("utf-16")[:-1]), "x"),
    "an encoding that nobody names": (uri("ü".encode("latin-1")), "x.bin"),
    "an archive": (uri(b"PK\3\4" + bytes(range(256))), "x.docx"),
    "nothing": (uri(b""), "x.txt"),
    "nothing at all": ("", "x.txt"),
    "white space": (uri(b" \n\t"), "x.txt"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_file_without_text_becomes_a_note(case):
    assert read(file(*OTHERS[case])) == (NOTHING, "dropped")


def test_file_name_is_escaped_and_shortened():
    for name, written in {
        "a\"> <b>&'": "a&quot;&gt; &lt;b&gt;&amp;&#x27;",
        "a\n\tb": "a b",
        None: "file",
        "n" * 300: "n" * 255,
    }.items():
        request, _ = attachments.files_to_text(request_with(file(uri(b"Hello"), name)), pdf_text)
        assert request.messages[0]["content"][0]["text"] == f'<file name="{written}">Hello</file>'


def test_file_parts_are_replaced_and_other_parts_stay():
    text, image = {"type": "text", "text": "q"}, {"type": "image_url", "image_url": {"url": "data:,"}}
    done = {"type": "text", "text": '<file name="x">Hello</file>'}
    messages = (
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
        {"role": "tool", "tool_call_id": "c", "content": [text, file(uri(b"Hello"))]},
        {"role": "user", "content": [file(uri(b"Hello")), image, file(uri(PNG), "p")], "name": "n"},
    )
    request = Request(model="m", messages=messages, stream=True)
    assert attachments.has_files(request)
    got, outcomes = attachments.files_to_text(request, pdf_text)
    note = {"type": "text", "text": f'<file name="p">{NOTHING}</file>'}
    assert got.messages == (
        *messages[:2],
        {**messages[2], "content": [text, done]},
        {**messages[3], "content": [done, image, note]},
    )
    assert outcomes == {"translated", "dropped"} and got.stream and not attachments.has_files(got)


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=60), st.sampled_from(["text/plain", "application/pdf", "text/plain;charset=utf-7", ""]))
def test_file_of_any_bytes_is_read_or_dropped(data, type):
    for start in (b"", b"%PDF-1.7\n"):
        text, outcome = read(file(uri(start + data, type)))
        assert (outcome == "dropped") == (text == NOTHING)


WRONG = {
    "no base64": ({"file_data": "Hello!"}, "file_data", "invalid_value"),
    "half a base64": ({"file_data": "data:text/plain;base64,SGVsb"}, "file_data", "invalid_value"),
    "no ASCII": ({"file_data": "data:;base64,ü"}, "file_data", "invalid_value"),
    "nothing": ({"filename": "a"}, "file_data", "missing_required_parameter"),
}


@pytest.mark.parametrize("case", WRONG)
def test_file_part_with_an_error_is_refused_with_its_path(case):
    file_member, member, code = WRONG[case]
    messages = (
        {"role": "user", "content": "q"},
        *request_with({"type": "text", "text": "q"}, {"type": "file", "file": file_member}).messages,
    )
    with pytest.raises(BadRequest) as caught:
        attachments.files_to_text(Request(model="m", messages=messages), pdf_text)
    found = caught.value.problem
    assert (found.status, found.code, found.param) == (400, code, f"messages[1].content[1].file.{member}")
    assert "Hello" not in found.message


def test_file_with_bytes_is_read():
    assert read(file(b"Hello")) == ("Hello", "translated")


def test_file_with_a_control_character_behind_its_first_slice_is_no_text():
    assert read(file(b"x" * attachments.SLICE + b"\0")) == (NOTHING, "dropped")


# PDF


def locked(data, password, algorithm="AES-256"):
    writer = PdfWriter(clone_from=PdfReader(BytesIO(data)))
    writer.encrypt(password, "owner", algorithm=algorithm)
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


TWO_PAGES = pdf(words("Hellö"), words("World"))


@pytest.mark.parametrize("type", ["application/pdf", "application/octet-stream", "text/plain"])
def test_pdf_is_read_page_by_page(type):
    assert read(file(uri(TWO_PAGES, type), "x.pdf")) == ("Hellö\n\nWorld", "translated")


HOSTILE = {
    "encrypted with a password": (locked(TWO_PAGES, "secret"), NOTHING, "dropped"),
    "encrypted for rights only": (locked(TWO_PAGES, ""), "Hellö\n\nWorld", "translated"),
    "encrypted long ago": (locked(TWO_PAGES, "", "RC4-40"), "Hellö\n\nWorld", "translated"),
    "a scan": (pdf(b"", b""), NOTHING, "dropped"),
    "an empty page": (pdf(words("a"), b"", words("b")), "a\n\nb", "translated"),
    "no pages": (pdf(), NOTHING, "dropped"),
    "only a head": (b"%PDF-1.7", NOTHING, "dropped"),
    "white space before its head": (b"\r\n" + TWO_PAGES, "Hellö\n\nWorld", "translated"),
    "a broken table": (TWO_PAGES.replace(b"0000000015", b"0000099999"), "Hellö\n\nWorld", "translated"),
    "no table": (TWO_PAGES[: TWO_PAGES.index(b"xref")], NOTHING, "dropped"),
    "cut": (TWO_PAGES[:200], NOTHING, "dropped"),
    "a huge count": (pdf(words("a"), count=2_000_000_000), "a", "translated"),
    "a tree that is a ring": (pdf(words("a"), kids=b"2 0 R 4 0 R"), NOTHING, "dropped"),
    "a page that does not end": (pdf(words("a"), kids=b"4 0 R " * 600), "\n\n".join("a" * 500) + CUT, "truncated"),
    "a bomb": (pdf(words("a"), stream(zlib.compress(bytes(64 << 20)), b"/Filter/FlateDecode")), "a" + CUT, "truncated"),
    "a page that is no page": (pdf(words("a"), words("b")).replace(b"6 0 R", b"3 0 R"), "a", "translated"),
    "a stream of another filter": (pdf(words("a"), stream(b"x", b"/Filter/Nonsense")), "a" + CUT, "truncated"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_pdf_that_is_hostile_is_read_or_dropped_within_seconds(case, caplog):
    data, wanted, outcome = HOSTILE[case]
    begun = time.process_time()
    got = read(file(uri(data), "x.pdf"))
    assert got == (wanted, outcome)
    assert time.process_time() - begun < 5 and not [one for one in caplog.messages if "Hell" in one]


def test_pdf_with_too_much_text_is_cut():
    line = b"(" + b"a" * 1000 + b") Tj "
    many = pdf(*[b"BT /F 1 Tf 0 700 Td " + line * 110 + b"ET"] * 12)
    text, outcome = read(file(uri(many), "x.pdf"))
    assert outcome == "truncated" and text.endswith(CUT)
    assert 1_000_000 < len(text) <= (1 << 20) + len(CUT)
    assert len([*pdf_pages.pages(many)]) < 13, "the last page is not looked at"


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, len(TWO_PAGES) - 1), st.binary(max_size=8), st.integers(0, 20))
def test_pdf_that_is_damaged_is_read_or_dropped(place, patch, gone):
    text, outcome = read(file(uri(TWO_PAGES[:place] + patch + TWO_PAGES[place + gone :]), "x.pdf"))
    assert (outcome == "dropped") == (text == NOTHING)


def test_pdf_program_bounds_its_time_and_memory(monkeypatch):
    bounds = {}
    fake = SimpleNamespace(RLIMIT_CPU="cpu", RLIMIT_AS="memory", setrlimit=bounds.__setitem__)
    monkeypatch.setitem(sys.modules, "resource", fake)
    pdf_pages.limit()
    assert bounds == {"cpu": (20, 20), "memory": (1 << 30, 1 << 30)}
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    pdf_pages.limit()


async def test_pdf_process_reads_what_the_program_reads():
    for data, *_ in HOSTILE.values():
        assert await Pdfs().text(data, "", 60) == pdf_text(data)


def test_pdf_program_prints_a_line_for_each_page(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "resource", None)  # this process is not to be bounded
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(TWO_PAGES)))
    runpy.run_path(pdf_pages.__file__, run_name="__main__")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ["Hellö", "World", True]


@pytest.mark.parametrize("end", ["", '"b', "{}\n"], ids=["nothing", "half a line", "no page"])
async def test_pdf_process_that_crashes_leaves_the_pages_before(monkeypatch, end):
    output = json.dumps("a") + "\n" + end
    program = f"import sys; sys.stdout.write({output!r}); sys.exit(1)"
    monkeypatch.setattr(pdf_reader, "_COMMAND", (sys.executable, "-I", "-c", program))
    pdfs = Pdfs()
    assert await pdfs.text(TWO_PAGES * 100, "", 60) == ("a", False)
    with pytest.raises(LookupError):
        pdfs.known(TWO_PAGES * 100)


async def test_pdfs_that_were_read_to_the_end_are_remembered(monkeypatch):
    pdfs, one, other = Pdfs(), pdf(words("a" * 60)), pdf(words("b" * 60))
    found = await asyncio.gather(*(pdfs.text(one, "", 60) for _ in range(2)))
    assert found == [("a" * 60, True)] * 2 == [pdfs.known(one)] * 2
    monkeypatch.setattr(pdf_reader, "_REMEMBERED", 100)
    await pdfs.text(other, "", 60)
    assert pdfs.known(other) == ("b" * 60, True)
    with pytest.raises(LookupError):
        pdfs.known(one)
    monkeypatch.setattr(pdf_reader, "_COMMAND", ("false",))
    assert await pdfs.text(other, "", 60) == pdfs.known(other)


async def test_pdfs_are_read_a_few_at_a_time_and_fewer_of_a_client():
    some, begun, go = Pdfs(3), [], asyncio.Event()

    async def read_for(tenant):
        async with some._turn(tenant):
            begun.append(tenant)
            await go.wait()

    tasks = [asyncio.create_task(read_for(tenant)) for tenant in ("a", "a", "a", "b", "c")]
    await until(lambda: len(begun), 3)
    assert begun == ["a", "a", "b"]
    go.set()
    await asyncio.gather(*tasks)
    assert sorted(begun) == ["a", "a", "a", "b", "c"] and not some._running


# Gateway


@pytest.mark.parametrize("content", ["q", None, [{"type": "text", "text": "q"}], ["file"]])
def test_request_without_files_is_recognized(content):
    assert not attachments.has_files(Request(model="m", messages=({"role": "user", "content": content},)))


async def test_request_without_files_is_returned_unchanged():
    request, ledger = request_with({"type": "text", "text": "q"}), Warnings()
    assert await read_beside(request, NOWHERE, ledger, Pdfs()) is request
    assert ledger.entries() == []


async def test_warning_of_each_file_outcome_is_listed_once():
    ledger = Warnings()
    parts = [file(uri(data)) for data in (b"Hello", b"World", PNG, PNG, HOSTILE["a bomb"][0])]
    request = await read_beside(request_with(*parts), NOWHERE, ledger, Pdfs())
    assert [part["text"][15:20] for part in request.messages[0]["content"]] == [
        "Hello",
        "World",
        NOTHING[:5],
        NOTHING[:5],
        "a\n[th",
    ]
    assert ledger.entries() == ["dropped:file", "translated:file", "truncated:file"]


async def test_pdf_that_takes_too_long_is_dropped_and_other_files_are_read():
    ledger = Warnings()
    request = await read_beside(
        request_with(file(uri(TWO_PAGES)), file(uri(b"Hello"))), NOWHERE, ledger, Pdfs(), seconds=0
    )
    assert [part["text"] for part in request.messages[0]["content"]] == [
        f'<file name="x">{NOTHING}</file>',
        '<file name="x">Hello</file>',
    ]
    assert ledger.entries() == ["dropped:file", "translated:file"]


KINDS = ["openai", "vllm", "llamacpp", "ollama", "lmstudio", "sglang", "transformers"]


@pytest.mark.parametrize("kind", KINDS)
async def test_file_reaches_every_kind_of_backend_as_text(kind):
    native = {"message": {"role": "assistant", "content": "Hi"}, "done": True, "prompt_eval_count": 7}
    async with gateway(whole(native if kind == "ollama" else body("Hi")), backend={"kind": kind}) as site:
        content = [{"type": "text", "text": "Read this."}, file(uri(TWO_PAGES, "application/pdf"), "a.pdf")]
        answer = await site.chat(messages=[{"role": "user", "content": content}])
        assert answer.status_code == 200 and answer.headers["x-gateway-warnings"] == "translated:file"
        assert site.upstream_body["messages"] == [{"role": "user", "content": 'Read this.\n<file name="a.pdf">Hellö\n\nWorld</file>'}]  # fmt: skip


async def test_file_in_a_tool_result_is_read_for_a_stream():
    async with gateway(HELLO) as site:
        called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        messages = [
            {"role": "user", "content": "q"},
            {"role": "assistant", "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "c", "content": [file(uri(PNG), "p.png")]},
        ]
        answer = await site.chat(messages=messages, stream=True)
        assert answer.headers["x-gateway-warnings"] == "dropped:file"
        assert site.upstream_body["messages"][2]["content"] == f'<file name="p.png">{NOTHING}</file>'


REFUSED = [
    ({"file_data": "?"}, "invalid_value", ".file_data"),
    ({"file_id": 5}, "invalid_type", ".file_id"),
    ({"file_id": "file-1", "file_url": "http://a/b"}, "mutually_exclusive_parameters", ""),
    ({"file_data": 5}, "invalid_type", ".file_data"),
    ("x", "invalid_type", ""),
    (None, "missing_required_parameter", ""),
]


@pytest.mark.parametrize(("part", "code", "member"), REFUSED)
async def test_file_error_of_a_chat_completion_names_its_path(part, code, member):
    async with gateway(whole(body("Hi"))) as site:
        answer = await site.chat(messages=[{"role": "user", "content": [{"type": "file", "file": part}]}])
        path = f"messages[0].content[0].file{member}"
        assert problem(answer) == (400, "invalid_request_error", code, path)
        assert not site.upstream.posts and json.loads(answer.content)["error"]["message"]


async def test_file_that_cannot_be_read_is_refused_in_strict_mode():
    async with gateway(whole(body("Hi"))) as site:
        messages = [{"role": "user", "content": [file(uri(PNG))]}]
        answer = await site.chat(messages=messages, headers={"x-gateway-strict": "1"})
        assert problem(answer) == (400, "invalid_request_error", "unsupported_parameter", "file")


# By URL


def fetching(**more):
    return {"files": {"fetch": True, "networks": [HERE], **more}}


def by_url(url, **more):
    return {"role": "user", "content": [{"type": "input_file", "file_url": url, **more}]}


def file_of(site):
    """Return the content of the last message that the backend got."""
    return site.upstream_body["messages"][-1]["content"]


FETCHED = {
    "its name is its URL's": ("/d/gr%C3%BC%C3%9Fe.txt?a=/b.pdf#c", {}, page(b"Hello"), "grüße.txt", "Hello"),
    "or the client's": ("/a.txt", {"filename": "b.txt"}, page(b"Hello"), "b.txt", "Hello"),
    "its charset is its server's": (
        "/a",
        {},
        page("ü".encode("latin-1"), content_type='text/x; charset="ISO-8859-1"'),
        "a",
        "ü",
    ),
    "its type is its server's": ("/a", {}, page(b"\x80", content_type="text/plain"), "a", "€"),
    "which may say nothing": ("/a", {}, page(b"Hello", content_type=";, ;base64,x"), "a", "Hello"),
    "a PDF": ("/a", {}, page(TWO_PAGES, content_type="text/html"), "a", "Hellö\n\nWorld"),
    "no name at all": ("/", {}, page(b"Hello"), "127.0.0.1:{port}", "Hello"),
    "nothing": ("/a", {}, page(b""), "a", NOTHING),
    "packed": ("/a.txt", {}, page(zlib.compress(b"Hello"), content_encoding="deflate"), "a.txt", None),
}


@pytest.mark.parametrize("case", FETCHED)
async def test_file_url_is_fetched_and_read(case):
    path, more, response, name, text = FETCHED[case]
    async with web({path.partition("#")[0]: response}) as there, gateway(HELLO, **fetching()) as site:
        answer = await site.respond(input=[by_url(there.url + path, **more)], stream=True)
        known = "translated" if text not in (NOTHING, None) else "dropped"
        assert {"translated:file_url", f"{known}:file"} <= {*answer.headers["x-gateway-warnings"].split(", ")}
        assert file_of(site) == f'<file name="{name.format(port=there.port)}">{text or NOTHING}</file>'
        ((_, headers),) = there.requests
    assert (headers["accept"], headers["accept-encoding"]) == ("*/*", "identity")


async def test_file_url_is_fetched_once_for_all_its_places():
    async with web({"/a": page(b"Hello")}) as there, gateway(HELLO, HELLO, **fetching()) as site:
        named = by_url(f"{there.url}/a")["content"][0]
        called = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "c1", "output": [named]}
        sent = {"type": "input_file", "file_data": uri(b"World"), "filename": "b"}
        items = [{"role": "user", "content": [named, sent]}, called, output, {"role": "user", "content": "q"}]
        answer = await site.respond(input=items, stream=True)
        assert answer.status_code == 200 and [path for path, _ in there.requests] == ["/a"]
        text = json.dumps(site.upstream_body["messages"])
        assert text.count("Hello") == 2 and text.count("World") == 1

        chat = {"type": "file", "file": {"file_url": f"{there.url}/a"}}
        answer = await site.chat(
            messages=[{"role": "user", "content": [{"type": "text", "text": "q"}, chat]}], stream=True
        )
        assert answer.status_code == 200 and "Hello" in file_of(site)


CHUNKED = b"HTTP/1.1 200 Said\r\ntransfer-encoding: chunked\r\n\r\nc350\r\n" + b"x" * 50_000 + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize("response", [page(b"x" * 50_000), CHUNKED], ids=["length", "chunked"])
async def test_fetched_file_counts_for_the_memory_of_requests(monkeypatch, response):
    monkeypatch.setattr(memory, "_MAX_WAIT", 0.01)
    limits = {"memory_bytes": 160_000}
    async with web({"/a": response}) as there, gateway(HELLO, **fetching(max_bytes=50_000), limits=limits) as site:
        buffers = site.app.state.buffers
        await buffers.take(20_000, 160_000)
        answer = await site.respond(input=[by_url(f"{there.url}/a")])
        assert problem(answer)[:3] == (503, "server_error", "server_is_overloaded")
        assert answer.headers["retry-after"] == "1" and not site.upstream.posts and buffers.taken == 20_000
        buffers.give(20_000)
        assert (await site.respond(input=[by_url(f"{there.url}/a")], stream=True)).status_code == 200
        assert buffers.taken == 0


async def test_file_url_and_file_data_together_are_refused():
    both = {"file_data": uri(b"World"), "file_url": "https://x/y"}
    async with gateway() as site:
        answer = await site.respond(input=[{"role": "user", "content": [{"type": "input_file", **both}]}])
        named = "mutually_exclusive_parameters", "input[0].content[0]"
        assert problem(answer) == (400, "invalid_request_error", *named)
        answer = await site.chat(messages=[{"role": "user", "content": [{"type": "file", "file": both}]}])
        named = "mutually_exclusive_parameters", "messages[0].content[0].file"
        assert problem(answer) == (400, "invalid_request_error", *named)
        assert "only one of 'file_data' and 'file_url'" in answer.json()["error"]["message"]


async def test_file_url_without_fetching_enabled_is_refused_with_advice():
    async with (
        web({"/a": page(b"Hello")}) as there,
        gateway(HELLO, files={"networks": [HERE]}, images={"fetch": True}) as site,
    ):
        answer = await site.respond(input=[by_url(f"{there.url}/a")])
        assert problem(answer) == (400, "invalid_request_error", "unsupported_value", "input[0].content[0].file_url")
        assert (
            "'files.fetch: true'" in answer.json()["error"]["message"]
            and "'file_data'" in answer.json()["error"]["message"]
        )
        assert there.requests == [] and site.upstream.posts == []


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://example.com/a", "//example.com/a", "data:text/plain,x", ""]
)
async def test_file_url_must_be_http(url):
    async with gateway(HELLO, **fetching()) as site:
        answer = await site.chat(messages=[{"role": "user", "content": [{"type": "file", "file": {"file_url": url}}]}])
        assert problem(answer) == (
            400,
            "invalid_request_error",
            "invalid_value",
            "messages[0].content[0].file.file_url",
        )
        assert site.upstream.posts == []


async def test_file_url_is_fetched_within_limits_and_from_public_addresses():
    pages = {"/large": page(b"x" * 101), "/slow": hanging, "/gone": page(b"", 404)}
    async with (
        web(pages) as there,
        gateway(HELLO, **fetching(max_bytes=100, seconds=60)) as site,
        gateway(HELLO, **fetching(seconds=1)) as hasty,
    ):
        for site_of_row, url, code in (
            (site, f"{there.url}/large", "file_too_large"),
            (hasty, f"{there.url}/slow", "failed_to_download_file"),
            (site, f"{there.url}/gone", "failed_to_download_file"),
            (site, "http://169.254.169.254/latest/meta-data", "failed_to_download_file"),
        ):
            answer = await site_of_row.respond(input=[by_url(url)])
            path = "input[0].content[0].file_url"
            assert problem(answer) == (400, "invalid_request_error", code, path)
        assert site.upstream.posts == hasty.upstream.posts == []


async def test_file_url_is_stored_and_fetched_again_for_the_next_response():
    async with (
        web({"/a": page(b"Hello")}) as there,
        gateway(whole(body("Hi")), whole(body("Ho")), **fetching()) as site,
    ):
        part = by_url(f"{there.url}/a")
        first = (await site.respond(input=[part])).json()
        kept = (await site.client.get(f"/v1/responses/{first['id']}/input_items")).json()["data"]
        assert kept[0]["content"][0]["file_url"] == f"{there.url}/a" and "Hello" not in json.dumps(kept)
        there.pages["/a"] = page(b"World")
        await site.respond(input="q", previous_response_id=first["id"])
        assert "World" in json.dumps(site.upstream_body["messages"]) and len(there.requests) == 2
