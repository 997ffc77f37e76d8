"""Test the admin pages: access, content, escaping and the headers for browsers."""

import asyncio
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import get_args

import pytest
from msgspec import json
from msgspec.structs import replace

import gateway as gateway_package
from gateway.server.admin import routes
from gateway.server.admin.hour import HourView
from gateway.server.admin.overview_model import Overview
from gateway.warnings import WarningCode
from support.app import bearer, gateway, problem
from support.backends import extend_pauses, fleet
from support.paths import ROOT
from support.upstream import HELLO, whole

HERE = ROOT / "gateway" / "server" / "admin"
KEYS = [
    {"name": "ann", "key": "ann-key"},
    {"name": "eve", "key": "eve-key", "scopes": ["admin"]},
]
ON = {"inspector": {"enabled": True}}
EVIL = "<img/src=x/onerror=alert(1)>\"'"


class Read(HTMLParser):
    """A parsed page: its `tags` with their attributes, its `text` and its `ids`."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)
        self.ids = [given["id"] for _, given in self.tags if "id" in given]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    @property
    def view(self):
        (view,) = [given["data-view"] for _, given in self.tags if "data-view" in given]
        return view


async def read(site, headers=None, path="/"):
    answer = await site.client.get(path, headers=headers)
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
    return Read(answer.text)


# Access


async def test_admin_page_without_keys_shows_what_to_paste_and_then_the_overview():
    async with gateway(HELLO) as site:
        assert (await read(site)).view == "first-run"
        await site.chat()
        assert (await read(site)).view == "overview"
        assert (await site.client.get("/", headers={"host": "evil.example"})).status_code == 403


@pytest.mark.parametrize(("inspector", "view"), [(False, "key-form"), (True, "first-run")])
async def test_admin_page_of_a_gateway_that_is_open_to_others_is_closed_unless_the_inspector_is_enabled(
    inspector, view
):
    more = {"server": {"host": "0.0.0.0"}, "auth": {"open": True}, "inspector": {"enabled": inspector}}
    async with gateway(HELLO, **more) as site:
        shown = await read(site)
    assert shown.view == view and ("This page is closed" in shown.text) is not inspector


async def test_admin_page_without_a_key_shows_only_public_facts():
    async with gateway(HELLO, auth={"keys": KEYS}, **ON) as site:
        await site.chat(headers={**bearer("ann-key"), "x-request-id": "of-a-request"})
        shown = await read(site)
        text = (await site.client.get("/")).text
    assert shown.view == "key-form"
    assert "API key required" in shown.text and gateway_package.__version__ in shown.text
    for private in ("of-a-request", "ann", "eve", "up", "127.0.0.1"):
        assert not re.search(rf"\b{private}\b", text), private


@pytest.mark.parametrize("enabled", [True, False])
async def test_inspector_page_says_how_to_enable_it(enabled):
    async with gateway(HELLO, inspector={"enabled": enabled}) as site:
        text = (await site.client.get("/inspector")).text
        assert (await site.client.get("/admin/exchanges")).status_code == (200 if enabled else 404)
        one = (await site.client.get("/inspector?id=a")).text
    assert ("The inspector is off" in text) is not enabled
    assert ("Replay and compare" in one) is enabled and "Replay and compare" not in text


@pytest.mark.parametrize(("key", "status"), [("ann-key", 403), ("no-key", 401)])
@pytest.mark.parametrize("header", ["authorization", "api-key"])
async def test_admin_page_refuses_a_key_that_is_wrong_or_not_admin(header, key, status):
    async with gateway(HELLO, auth={"keys": KEYS}, **ON) as site:
        answer = await site.client.get("/", headers={header: key if header == "api-key" else f"Bearer {key}"})
        assert problem(answer)[0] == status


async def test_admin_page_with_an_admin_key_shows_the_overview():
    async with gateway(HELLO, auth={"keys": KEYS}, **ON) as site:
        answer = await site.chat(headers=bearer("ann-key"))
        shown = await read(site, bearer("eve-key"))
    assert shown.view == "overview"
    for expected in ("ann", "up", "m", answer.headers["x-request-id"], "its name is unknown"):
        assert expected in shown.text


@pytest.mark.parametrize("enabled", [True, False])
async def test_playground_page_links_to_the_inspector_if_that_is_enabled(enabled):
    async with gateway(HELLO, inspector={"enabled": enabled}) as site:
        shown = await read(site, path="/playground")
    (main,) = [given for tag, given in shown.tags if tag == "main"]
    assert ("data-inspector" in main) is enabled and len(shown.ids) == len(set(shown.ids))


@pytest.mark.parametrize("keyed", [True, False])
async def test_playground_page_shows_the_key_prompt_first_where_it_is_needed(keyed):
    async with gateway(HELLO, auth={"keys": KEYS if keyed else []}) as site:
        shown = await read(site, path="/playground")
    hidden = {given["id"]: "hidden" in given for _, given in shown.tags if given.get("id") in ("closed", "play")}
    assert hidden == {"closed": not keyed, "play": keyed} and "This page sends requests." in shown.text


async def test_api_page_describes_all_operations_and_needs_no_key():
    async with gateway(HELLO, auth={"keys": KEYS}) as site:
        shown = await read(site, path="/docs")
        document = (await site.client.get("/openapi.json")).json()
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert len(operations) > 20 and {one["operationId"] for one in operations} <= {*shown.ids}
    assert len(shown.ids) == len(set(shown.ids))
    for expected in (
        "http://gateway/v1",
        "Send an API key",
        '"model": "smollm2"',
        "boolean or null",
        "It takes no field.",
    ):
        assert expected in shown.text, expected


# Content


async def test_admin_page_shows_all_states_of_backends():
    backends = [{"concurrent": 4, "kind": "vllm"}, {}]
    more = {"alias": {"backends": [{"name": "b0", "upstream_model": "theirs"}], "aliases": ["another"]}}
    async with fleet([whole("no", 500), HELLO], [HELLO], backends=backends, more_models=more, **ON) as site:
        await site.chat(surprise=1, other=2)
        await site.chat(model="nobody-has-it")
        shown = await read(site)
        health, now = site.backend("b0").limiter.health, asyncio.get_running_loop().time()
        extend_pauses(site)
        extend_pauses(site, "b1")
        for _ in range(5):
            health.record_failure(health.begin(now), now)
        assert "failed repeatedly" in (await read(site)).text
        health.record_probe(now, succeeded=True)
        assert "The next attempt is possible now." in (await read(site)).text
        site.backend("b1").limiter.health.eject(now)
        assert "3 of 3 backends are unreachable." in (await read(site)).text
    for expected in ("forwarded × 2", "upstream_unreachable", "of 4", "also another", "as theirs", "upstream_error",
                     "did not list its models", "healthy", "unreachable", "Parts passed on"):  # fmt: skip
        assert expected in shown.text, expected


@pytest.mark.parametrize(
    ("states", "sentence"),
    [
        ({"up": "degraded", "b": "degraded"}, "2 of 2 backends are degraded."),
        ({"up": "degraded", "b": "unreachable"}, "2 of 2 backends are unreachable or degraded."),
        ({"up": "healthy", "b": "degraded"}, "1 of 2 backends is degraded."),
    ],
)
async def test_admin_page_says_first_which_backends_are_ill(states, sentence):
    async with gateway(HELLO, more_backends={"b": {"url": "http://127.0.0.1:1"}}, **ON) as site:
        await site.chat()
        found = json.decode((await site.client.get("/admin/overview")).content, type=Overview)
    backends = [replace(one, state=states[one.name], cause=f"{one.name} is ill.") for one in found.backends]
    text = routes.render_home("", replace(found, backends=backends), keyed=False, model="")
    assert sentence in text


async def test_admin_page_says_so_where_there_are_no_entries():
    async with gateway(HELLO, model=False, **ON) as site:
        await site.chat(model="nobody-has-it")
        shown = await read(site)
        empty = json.decode((await site.client.get("/admin/overview")).content, type=Overview)
    assert "No backend lists a model" in shown.text and "has a warning" in shown.text
    page = routes._templates().get_template("overview.html")
    text = page.render(root="", overview=replace(empty, requests=[], backends=[], hour=HourView()))
    for sentence in ("No request has arrived", "The configuration has no backend", "No request failed"):
        assert sentence in text


async def test_admin_page_links_to_the_requests_behind_a_number():
    async with gateway(whole("no", 500), **ON) as site:
        answer = await site.chat()
        shown = await read(site)
    links = {given["href"] for tag, given in shown.tags if tag == "a"}
    assert {
        "/inspector", "/inspector?backend=up", "/inspector?model=m", "/inspector?status=error", "/inspector?warning=any",
        "/inspector?status=502&q=upstream_error&backend=up", f"/inspector?id={answer.headers['x-request-id']}",
    } <= links  # fmt: skip


async def test_admin_page_titles_requests_by_their_prompts_if_the_inspector_is_on():
    messages = [{"role": "user", "content": f"Hello {EVIL}"}]
    for section, title in ((ON, f"Hello {EVIL}"), ({}, "one")):
        async with gateway(HELLO, **section) as site:
            await site.chat(messages=messages, headers={"x-request-id": "one"})
            document = (await site.client.get("/admin/overview")).json()
            shown = await read(site)
        assert document["prompts"] == ({"one": title} if section else {})
        assert title in shown.text and ("Hello" in shown.text) is bool(section)
        assert "/inspector?id=one" in {given.get("href") for tag, given in shown.tags if tag == "a"}


async def test_admin_page_of_warnings_has_each_code():
    async with gateway(HELLO) as site:
        answer = await site.client.get("/docs/warnings")
    assert {*get_args(WarningCode)} <= {*Read(answer.text).ids}
    assert "<code>enforce</code>" in answer.text and "repaired:connection" in answer.text


async def test_admin_page_counts_the_models_it_leaves_out(monkeypatch):
    monkeypatch.setattr("gateway.server.admin.overview._MODELS", 1)
    async with gateway(HELLO, model=False, models=["a", "b", "c"], **ON) as site:
        await site.chat(model="a")
        assert "and 2 more" in (await read(site)).text


async def test_admin_page_says_how_many_workers_it_covers():
    async with gateway(HELLO, server={"workers": 2}, **ON) as site:
        await site.chat()
        shown = await read(site)
    assert "1 of 2 workers" in shown.text


# Escaping


async def test_admin_page_escapes_every_foreign_text():
    model = f"{EVIL}{{{{7*7}}}}"
    backend = {"kind": "vllm", "url": "http://127.0.0.1:1/'><script>alert(1)</script>"}
    more = {model: {"backends": ["up"], "upstream_model": EVIL, "aliases": ["<script>alert(1)</script>"]}}
    async with gateway(whole(EVIL, 500), more_models=more, model=False, more_backends={"b": backend}, **ON) as site:
        await site.chat(model=model, headers={"x-request-id": EVIL})
        answer = await site.client.get("/", headers={"host": 'localhost"><script>'})
        shown = await read(site)
    tags = [*shown.tags, *Read(answer.text).tags]
    assert {tag for tag, _ in tags} <= {
        "nav", "html", "head", "meta", "title", "link", "script", "body", "a", "header", "p", "span", "button", "main", "h1", "dl", "code",
        "div", "dt", "dd", "section", "h2", "table", "thead", "tr", "th", "tbody", "td", "svg", "use", "path", "footer",
        "ul", "li", "small", "strong",
    }  # fmt: skip
    assert all(given["src"].startswith("/assets/") for tag, given in tags if tag == "script")
    assert not any(name.startswith("on") or name == "style" for _, given in tags for name in given)
    assert EVIL in shown.text and "{{7*7}}" in shown.text and "<script>alert(1)</script>" in shown.text


@pytest.mark.parametrize("headers", [None, bearer("eve-key")])
async def test_admin_page_has_unique_ids_and_local_links(headers):
    async with gateway(HELLO, auth={"keys": KEYS}, **ON) as site:
        shown = await read(site, headers)
    assert len(shown.ids) == len(set(shown.ids))
    referred = [given.get("aria-labelledby") or given.get("for") for _, given in shown.tags]
    assert {id for id in referred if id} <= {*shown.ids}
    assert [given["href"] for _, given in shown.tags if given.get("rel") == "expect"] == [f"#{shown.ids[-1]}"]
    assert not any(
        value.startswith(("http:", "https:", "//")) for _, given in shown.tags for name, value in given.items()
        if name in ("src", "href")
    )  # fmt: skip


# Headers for browsers


async def test_admin_page_headers_allow_only_own_scripts_and_styles():
    async with gateway(HELLO, **ON) as site:
        headers = (await site.client.get("/")).headers
    policy = dict(one.partition(" ")[::2] for one in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert {name: value for name, value in policy.items() if value == "'self'"}.keys() == {
        "script-src", "style-src", "img-src", "connect-src",
    }  # fmt: skip
    assert policy["require-trusted-types-for"] == "'script'"
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    ("name", "type"),
    [
        ("console.js", "text/javascript; charset=utf-8"),
        ("base.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ],
)
async def test_admin_page_assets_need_no_key(name, type):
    async with gateway(HELLO, auth={"keys": KEYS}, **ON) as site:
        answer = await site.client.get(f"{routes.assets_url()}/{name}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, type)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.content == routes.assets()[name][0]
        for other in ("none.js", "..%2fpage.py", "__init__.py"):
            assert (await site.client.get(f"/assets/-/{other}")).status_code == 404


@pytest.mark.parametrize(
    ("accepted", "encoding"), [("br, gzip", "gzip"), ("identity", None), ("gzip;q=0", None), ("", None)]
)
async def test_admin_page_assets_are_compressed_for_browsers_that_read_it(accepted, encoding):
    async with gateway(HELLO, **ON) as site:
        path = f"{routes.assets_url()}/base.css"
        answer = await site.client.get(path, headers={"accept-encoding": accepted})
    assert answer.headers.get("content-encoding") == encoding and answer.headers["vary"] == "accept-encoding"
    assert answer.content == routes.assets()["base.css"][0]
    assert (int(answer.headers["content-length"]) < len(answer.content) / 2) == (encoding == "gzip")


def test_admin_page_scripts_and_icons_are_sent_without_comments_and_indentation():
    for name, (data, _) in routes.assets().items():
        text = (HERE / "assets" / name).read_text("utf-8")
        if name.endswith(".svg"):
            assert data.decode() == text
        if not name.endswith(".js"):
            continue
        lines = [line.strip() for line in re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).splitlines()]
        sent = re.sub(r"/\*.*?\*/", "", data.decode()).splitlines()
        assert sent == [line for line in lines if line and not line.startswith("//")]
        several = [line for line in sent if line.replace('"`"', "").count("`") % 2]
        assert not several, f"{name} has a text of several lines, which would lose its indentation"


def test_admin_page_styles_are_sent_without_comments_and_spaces_that_mean_nothing():
    assert "tokens.css" not in routes.assets(), "it is the beginning of base.css"
    for name, (data, _) in routes.assets().items():
        if not name.endswith(".css"):
            continue
        files = ("tokens.css", name) if name == "base.css" else (name,)
        text = "".join((HERE / "assets" / file).read_text("utf-8") for file in files)
        sent = data.decode()
        assert not re.search(r"/\*|\n|: |[{};,] | [{};,]|;}", sent), name
        words = [
            re.findall(r"[^\s;]+", re.sub(r"([{}:,])", r" \1 ", one))
            for one in (re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL), sent)
        ]
        assert words[0] == words[1], name
        inside = [one for one in re.findall(r'"[^"]*"', sent) if re.search(r"[{};,:]", one)]
        assert not inside, f"{name} has texts with signs around which spaces would go"


@pytest.mark.parametrize(
    ("style", "sent"),
    [
        ("a :is(b, c) > d:hover { color: red; }\n/* x */\n", "a :is(b,c) > d:hover{color:red}"),
        ("@media (max-width: 1rem) {\n    a { width: calc(1px + 2px); --x: 1; }\n}\n", "@media (max-width:1rem){a{width:calc(1px + 2px);--x:1}}"),
    ],
)  # fmt: skip
def test_admin_page_styles_keep_spaces_that_mean_something(tmp_path, style, sent):
    file = tmp_path / "one.css"
    file.write_text(style, "utf-8")
    assert routes._as_sent(file) == sent.encode()


async def test_admin_page_assets_are_kept_by_browsers_until_one_changes():
    async with gateway(HELLO, **ON) as site:
        page = (await site.client.get("/")).text
        addresses = re.findall(r'(?:href|src)="(/assets/[^"#]+)', page)
        kept = [(await site.client.get(path)).headers["cache-control"] for path in addresses]
        older = (await site.client.get("/assets/0123456789ab/base.css")).headers["cache-control"]
    assert {*kept} == {"public, max-age=31536000, immutable"} and older == "no-cache"


def test_admin_page_assets_exist_and_refer_to_no_other_site():
    assert routes.assets().keys() == {file.name for file in (HERE / "assets").iterdir()} - {"tokens.css"}
    for file in (HERE / "templates").iterdir():
        text = file.read_text("utf-8")
        named = re.findall(r'ui\.(?:asset|script|style)\("([^"]+)"\)', text)
        assert {*named} <= routes.assets().keys() | {"name"} and "/assets/" not in text
        assert "|safe" not in text.replace(" ", "") and "autoescape" not in text
    for data, _ in routes.assets().values():
        assert not re.search(rb"https?://(?!www\.w3\.org/2000/svg)", data)


def test_admin_page_templates_are_not_imported_at_startup():
    code = "import sys; from gateway.server import process; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=60).returncode == 0
