"""Test `gateway doctor` with scripted upstreams: requests, failures, output and written files."""

import asyncio
import io
import json
from pathlib import Path

import pytest

from gateway import config
from gateway.cli import main
from gateway.cli.doctor import DoctorOptions, examine_servers, start_command
from gateway.cli.doctor_runner import ModelExaminer
from gateway.config import parse
from gateway.doctor.probe_requests import PROBE_REQUESTS
from gateway.formats import format_names
from gateway.server.process.config_source import NoServerFound, read_config
from gateway.server.upstream.backend import Backend
from gateway.server.upstream.discovery import identify
from support.app import gateway
from support.cli import RUNNER, Terminal
from support.ollama import NAME, Turn, calls, content_line, ollama, thinks
from support.upstream import CLOSE, DONE, HANG, HELLO, KEY, Upstream, call, chunk, head, list_of, stream, whole

LISTED = list_of("m")


async def run(*words, **env):
    """Run the command in a thread; return exit code, standard output and standard error."""
    done = await asyncio.to_thread(RUNNER.invoke, main.app, ["doctor", *words], env=env, prog_name="gateway")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def at(upstream):
    """Return the arguments for an upstream whose kind cannot be identified."""
    return upstream.url, "--kind", "openai"


async def servers_found(**wanted):
    """Run the doctor and return the servers."""
    return await asyncio.to_thread(examine_servers, DoctorOptions(**wanted), io.StringIO(), {})


def serving(*scripts, models=LISTED):
    return Upstream(scripts or [HELLO], models).serving()


# Whom it asks


async def test_doctor_command_examines_the_backend_at_a_url():
    async with serving() as upstream:
        code, out, err = await run(f"{upstream.url}/v1/", "--kind", "llamacpp")
    lines = out.splitlines()
    assert code == 1 and err == ""
    assert lines[0] == f"llamacpp: llamacpp at {upstream.url}, model m"
    assert "  chat                  good     responds" in lines
    assert f"    url: {upstream.url}" in lines[lines.index("backends:") :]
    chats = [one for one in upstream.posts if one.path == "/v1/chat/completions"]
    assert len(chats) == len(PROBE_REQUESTS) and all(one.json["model"] == "m" for one in chats)
    assert [post.path for post in upstream.posts[-2:]] == ["/v1/responses", "/v1/messages"]


async def test_doctor_command_prints_json():
    async with serving() as upstream:
        code, out, _ = await run(*at(upstream), "--json", "--only", "chat", "--only", "streaming")
    report = json.loads(out)
    (server,) = report["servers"]
    assert (server["name"], server["kind"], server["url"]) == ("openai", "openai", upstream.url)
    assert {name: one["verdict"] for name, one in server["models"][0]["verdicts"].items()} == {
        "chat": "good",
        "streaming": "wanting",
    }
    assert parse(report["config"], "block", {}, format_names()).models["m"].backends[0].name == "openai"
    assert code == 1


async def test_doctor_command_exit_code_depends_on_the_chosen_verdicts():
    async with serving() as upstream:
        assert (await run(*at(upstream), "--only", "chat"))[0] == 0
        assert (await run(*at(upstream), "--only", "logprobs"))[0] == 1


async def test_doctor_command_examines_the_named_models():
    async with serving(models=list_of("a", "b", "c")) as upstream:
        (server,) = await servers_found(url=upstream.url, kind="openai", models=("b", "x"))
    assert [one.model for one in server.models] == ["b", "x"] and server.listed_models == ("a", "b", "c")


async def test_doctor_command_names_the_models_of_a_server_that_lacks_the_named_one():
    missing = whole({"error": {"message": "The model `x` does not exist.", "code": "model_not_found"}}, status=404)
    problem = "The model 'x' does not exist or you do not have access to it. There are: m."
    async with serving(missing) as upstream:
        code, out, _ = await run(*at(upstream), "--model", "x")
    assert (code, out) == (1, f"openai: openai at {upstream.url}\n  {problem}\n")
    async with serving(missing, missing, missing, HELLO) as upstream:
        code, out, _ = await run(*at(upstream), "--model", "x", "--model", "m", "--only", "chat")
    assert code == 1 and problem in out and f"openai at {upstream.url}, model m\n" in out
    assert "was not tested" not in out and "\n  m:\n" in out and "\n  x:\n" not in out


@pytest.mark.parametrize(
    ("listed", "kind"),
    [
        (whole({"data": [{"id": "m", "owned_by": "vllm"}]}), "vllm"),
        (whole({"data": [{"id": "m"}]}, server="llama.cpp"), "llamacpp"),
        (whole(b"{}"), "llamacpp"),  # it answers every path with an object, and this is asked for first
        (whole({"detail": "no"}, status=404), "openai"),
    ],
)
async def test_doctor_command_identifies_the_kind_at_a_url(listed, kind):
    async with serving(models=listed) as upstream:
        upstream.shown["/props"] = listed
        assert await identify(upstream.url) == kind
    assert await identify(upstream.url, seconds=0.1) == "openai"


async def test_doctor_command_takes_the_url_of_an_api():
    async with serving() as upstream:
        (server,) = await servers_found(url=f"{upstream.url}/v2/openai")
    assert (server.kind, server.url) == ("openai", f"{upstream.url}/v2/openai")
    paths = {one.path for one in (*upstream.gets, *upstream.posts)}
    assert {"/v2/openai/models", "/v2/openai/chat/completions"} <= paths
    assert not any("/v1" in path for path in paths)


async def test_doctor_command_examines_configured_backends_with_their_keys(tmp_path):
    file = tmp_path / "gateway.yaml"
    async with serving() as first, serving(models=list_of("x", "y")) as second:
        backends = {"one": {"url": first.url, "api_key": "${K}"}, "two": {"url": second.url}}
        models = {"fast": {"backends": ["one"], "upstream_model": "deep"}}
        file.write_text(json.dumps({"backends": backends, "models": models}))
        code, out, _ = await run("--config", str(file), "--only", "chat", K=KEY)
        assert code == 0 and KEY not in out
        assert [line for line in out.splitlines() if "model " in line] == [
            f"one: openai at {first.url}, model deep",
            f"two: openai at {second.url}, model x",
            f"two: openai at {second.url}, model y",
        ]
        assert {one.headers["authorization"] for one in (*first.posts, *first.gets)} == {f"Bearer {KEY}"}
        assert "  fast:\n    backends: [one]\n    upstream_model: deep\n" in out
        _, out, _ = await run("--config", str(file), "--only", "chat", "--model", "y", "--json", K=KEY)
        assert [(one["problem"], len(one["models"])) for one in json.loads(out)["servers"]] == [
            ("The server does not list this model.", 0),
            (None, 1),
        ]
        _, out, _ = await run(second.url, "--config", str(file), "--only", "chat", "--model", "y", K=KEY)
        assert out.startswith(f"two: openai at {second.url}, model y\n")


async def test_doctor_command_takes_a_key_from_the_environment_and_hides_it():
    refusal = whole({"error": {"message": f"Incorrect key {KEY}."}}, status=422)
    async with serving(refusal) as upstream:
        code, out, _ = await run(*at(upstream), "--key-env", "MY_KEY", MY_KEY=KEY)
        assert all(one.headers["authorization"] == f"Bearer {KEY}" for one in (*upstream.posts, *upstream.gets))
    assert code == 1 and KEY not in out
    assert "refused: Incorrect key ...." in out and "api_key: ${MY_KEY}" in out


async def test_doctor_command_finds_local_backends():
    async with serving(models=whole({"data": [{"id": "m", "owned_by": "vllm"}]})) as upstream:
        port = int(upstream.url.rpartition(":")[2])
        wanted = DoctorOptions(only=("chat",))
        (server,) = await asyncio.to_thread(examine_servers, wanted, io.StringIO(), {port: "vllm"})
    assert (server.name, server.kind, server.well) == ("vllm", "vllm", True)


async def test_doctor_command_names_embedding_models_without_probes():
    async with ollama(Turn([content_line("Hi")]), able=("embedding",)) as server:
        code, out, _ = await run(server.url, "--kind", "ollama")
        report = json.loads((await run(server.url, "--kind", "ollama", "--json"))[1])
        bodies = [*server.bodies]
    assert (code, bodies) == (0, [])
    assert out.splitlines()[:2] == [
        f"ollama: ollama at {server.url}, model {NAME}",
        "  capabilities           embeddings",
    ]
    assert f"  {NAME}:\n    backends: [ollama]\n" in out
    (found,) = report["servers"]
    assert (found["models"], found["problem"]) == ([], None)
    assert found["embedding_models"] == [{"model": NAME, "capabilities": ["embeddings"]}]


async def test_doctor_command_names_a_configured_embedding_model_without_probes(tmp_path):
    file = tmp_path / "gateway.yaml"
    async with ollama(Turn([content_line("Hi")]), able=("embedding",)) as server:
        file.write_text(json.dumps({
            "backends": {"one": {"url": server.url, "kind": "ollama"}}, "models": {"vectors": {"upstream_model": NAME}}
        }))  # fmt: skip
        (found,) = await servers_found(file=file)
        (probed,) = await servers_found(url=server.url, kind="ollama", models=(NAME,), only=("chat",))
    assert ([*found.embedding_models], found.models) == ([NAME], ())
    assert [one.model for one in probed.models] == [NAME]


async def test_doctor_command_has_the_capabilities_of_the_model_list():
    shown = {"modalities": {"vision": True, "audio": False}, "chat_template_caps": {"supports_tools": True}}
    async with serving() as upstream:
        upstream.shown["/props"] = whole(shown)
        report = json.loads((await run(upstream.url, "--kind", "llamacpp", "--json", "--only", "chat"))[1])
    async with gateway(HELLO, models=LISTED, backend={"kind": "llamacpp"}) as site:
        site.upstream.shown["/props"] = whole(shown)
        listed = (await site.client.get("/v1/models")).json()["data"][0]["capabilities"]
    assert report["servers"][0]["models"][0]["capabilities"] == listed == ["tools", "vision"]


# What is wrong


async def test_doctor_command_reports_wrong_usage_in_a_line():
    assert (await run("http://127.0.0.1:1", "--only", "spelling"))[0] == 2
    code, _, err = await run("127.0.0.1:8000")
    assert code == 2 and "should start with http:// or https://" in err
    code, _, err = await run("http://127.0.0.1:1", "--kind", "vlm")
    assert code == 2 and "kind" in err and "vllm" in err
    assert (await run("http://127.0.0.1:1", "--key-env", "NO_SUCH"))[
        2
    ] == "--key-env: the environment variable NO_SUCH is not set\n"
    code, _, err = await run("--config", "no.yaml")
    assert (code, err) == (2, "no.yaml: cannot be read: No such file or directory\n")


async def test_doctor_command_reports_that_no_backend_runs():
    with pytest.raises(NoServerFound, match=r"no model server was found on this machine .*gateway doctor URL"):
        await servers_found()


async def test_doctor_command_reports_an_unreachable_backend():
    async with serving() as upstream:
        url = upstream.url
    code, out, _ = await run(url, "--kind", "openai")
    assert code == 1
    assert "Backend 'openai' did not list its models: connection refused; is the server running?" in out
    assert "backends:" not in out


async def test_doctor_command_without_a_model_list_needs_named_models():
    async with serving(models=whole(b"Internal Server Error", status=500)) as upstream:
        code, out, _ = await run(*at(upstream), "--model", "m", "--only", "chat")
        assert code == 0 and ", model m\n" in out
        code, out, _ = await run(*at(upstream))
        assert code == 1 and "HTTP 500" in out
        (server,) = await servers_found(url=upstream.url, kind="openai")
        advice = f"Name a model: gateway doctor {upstream.url} --model NAME"
        assert server.problem.endswith(f"the server failed (HTTP 500); its log has the reason.  {advice}")


async def test_doctor_command_names_the_url_of_a_server_that_no_configuration_has(tmp_path):
    file = tmp_path / "gateway.yaml"
    async with serving(models=whole({"error": "no"}, 404)) as upstream:
        file.write_text(f"backends: {{lab: {{url: {upstream.url}}}}}\n")
        (server,) = await servers_found(url=upstream.url, kind="openai")
        (configured,) = await servers_found(url=upstream.url, file=file)
    assert f"HTTP 404); is {upstream.url} the root of a model server?" in server.problem
    assert "HTTP 404); is backends.lab.url the root of a model server?" in configured.problem
    async with serving(models=whole({}, 308)) as upstream:
        (server,) = await servers_found(url=upstream.url, kind="openai")
    assert "the server redirects (HTTP 308); use the new address.  Name a model: " in server.problem


async def test_doctor_command_says_where_the_api_key_of_a_server_belongs(monkeypatch, tmp_path):
    monkeypatch.setenv("LAB_KEY", "wrong")
    file = tmp_path / "gateway.yaml"
    async with serving(models=whole({"error": "no"}, 401)) as upstream:
        file.write_text(f"backends: {{lab: {{url: {upstream.url}}}}}\n")
        begin, needs = "did not list its models: ", "the server needs an API key (HTTP 401)"
        for fields, words in (
            ({}, f"'openai' {begin}{needs}; name its variable: gateway doctor {upstream.url} --key-env VAR."),
            ({"key": "LAB_KEY"}, f"'openai' {begin}the server refuses the API key (HTTP 401); check LAB_KEY."),
            ({"file": file}, f"'lab' {begin}{needs}; set backends.lab.api_key."),
        ):
            (server,) = await servers_found(url=upstream.url, kind="openai", **fields)
            assert server.problem == f"Backend {words}"


async def test_doctor_command_says_where_the_api_key_belongs_if_the_models_are_public():
    async with serving(whole({"error": {"message": "no"}}, status=401), models=list_of("m")) as upstream:
        code, out, _ = await run(*at(upstream), "--only", "chat")
    assert code == 1 and "→ give the key of the server: `--key-env VAR`" in out


async def test_doctor_command_with_an_empty_model_list_needs_a_name():
    async with serving(models=list_of()) as upstream:
        (server,) = await servers_found(url=upstream.url, kind="openai")
        assert (
            server.problem == f"The server lists no models.  Name a model: gateway doctor {upstream.url} --model NAME"
        )
        (server,) = await servers_found(url=upstream.url, kind="openai", models=("m",))
        assert [one.model for one in server.models] == ["m"] and not server.problem


async def test_doctor_command_stops_after_a_refusal_of_the_first_question():
    async with serving(whole({"error": {"message": "no chat here"}}, status=400)) as upstream:
        (server,) = await servers_found(url=upstream.url, kind="openai")
    verdicts = server.models[0].verdicts
    assert verdicts["chat"].words == "refused: no chat here" and verdicts["tools"].words == "was not tested"
    assert len(upstream.posts) == 3  # with those about the other APIs


async def examined(*scripts, seconds=5.0, until=60.0):
    """Return the findings about the model of a scripted upstream."""
    async with serving(*scripts) as upstream:
        settings_of_backend = config.BackendSettings(url=upstream.url)
        backend = Backend("up", settings_of_backend)
        now = asyncio.get_running_loop().time()
        ticks = []
        try:
            found = await ModelExaminer(
                backend, settings_of_backend, now + until, seconds, lambda: ticks.append(1)
            ).examine("m")
        finally:
            await backend.close()
        assert len(ticks) == len(PROBE_REQUESTS)
        return found


async def test_doctor_gives_up_on_a_response_that_hangs():
    hangs = [head(), chunk("Hi"), HANG]
    found = await examined(HELLO, hangs, [HANG], HELLO, seconds=2)
    assert found.probe_responses["streamed"].problem.message == "the response did not end within 2 s"
    assert found.probe_responses["streamed"].message.text == "Hi"
    assert found.probe_responses["endless"].problem.status == 504 and found.probe_responses["after"].problem is None


async def test_doctor_reports_a_backend_that_closes_the_connection():
    found = await examined(HELLO, [head(), chunk("Hi"), CLOSE], [CLOSE], HELLO)
    assert found.probe_responses["streamed"].problem.code == "upstream_lost"
    assert found.probe_responses["endless"].problem.status == 502
    assert found.probe_responses["tools"].problem is None


async def test_doctor_logs_no_open_circuit_for_a_failing_backend(caplog):
    no = whole({"error": "no"}, status=502)
    found = await examined(HELLO, no, no, no, HELLO, no, no, no, HELLO)
    assert sum(one.problem is not None for one in found.probe_responses.values()) >= 6
    assert "left alone" not in caplog.text


async def test_doctor_ends_at_its_deadline():
    found = await examined([HANG], until=2)
    assert list(found.probe_responses) == ["plain"] and found.responses is None
    assert (await examined(until=0)).probe_responses == {}


async def test_doctor_leaves_an_endless_response_at_once():
    found = await examined(HELLO, HELLO, [head(), chunk("1"), HANG], HELLO)
    assert found.probe_responses["endless"].is_abandoned and found.probe_responses["endless"].problem is None


@pytest.mark.parametrize(
    ("answer", "own"),
    [
        (whole({"object": "response"}), True),
        (whole({"object": "list"}), False),
        (whole({"detail": "Not Found"}, status=404), False),
        (whole({"error": {"message": "loading"}}, status=503), None),
        (whole(b"data: {}\n\n"), None),
        (whole(b"[" * 9999), None),
        ([head(type="application/json"), b"x" * (1 << 20), HANG], None),
    ],
)
async def test_doctor_detects_a_responses_api(answer, own):
    refusal = whole({"error": {"message": "no chat here"}}, status=400)
    assert (await examined(refusal, answer)).responses is own


async def test_doctor_command_shows_a_progress_bar_on_a_terminal():
    out = Terminal()
    async with serving() as upstream:
        await asyncio.to_thread(examine_servers, DoctorOptions(url=upstream.url, kind="openai"), out)
    assert "examining  [####################################]  100%" in out.getvalue()


# What is written


async def test_doctor_command_writes_the_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "gateway.yaml"
    async with serving() as upstream:
        code, _, err = await run(*at(upstream), "--write", "--only", "chat")
        assert (code, err) == (0, "Written to gateway.yaml.  Start the gateway:\n\n  gateway serve\n\n")
        written = parse(file.read_text(), "x", {}, format_names())
        assert list(written.models) == ["m"]
        assert written.backends["openai"].ignores == ("logprobs", "n", "response_format", "tool_choice")
        before = file.read_text()
        assert (await run("--write", "--only", "chat"))[0] == 0
        assert file.read_text() == before
        file.write_text("# mine\n" + before)
        assert (await run("--config", str(file), "--write", "--only", "chat"))[0] == 0
        assert (await run("--only", "chat"))[2] == "Using ./gateway.yaml; --config names another file.\n"
    assert file.read_text() == "# mine\n" + before


def test_doctor_command_ends_with_the_command_that_serves_its_file(tmp_path):
    assert start_command(tmp_path / "gateway.yaml", tmp_path) == "gateway serve"
    assert start_command(Path("/etc/my gateway.yaml"), tmp_path) == "gateway serve --config '/etc/my gateway.yaml'"


async def test_doctor_command_keeps_file_references_when_it_writes(tmp_path):
    file = tmp_path / "gateway.yaml"
    (tmp_path / "key").write_text("k\n")
    async with serving() as upstream:
        file.write_text(f"backends: {{a: {{url: '{upstream.url}', api_key: '${{file:key}}'}}}}\n")
        assert (await run("--config", str(file), "--write", "--only", "chat"))[0] == 0
    assert "api_key: '${file:key}'" in file.read_text() and read_config(file).models.keys() == {"m"}


async def test_doctor_command_gives_a_new_backend_an_unused_name(tmp_path):
    file = tmp_path / "gateway.yaml"
    file.write_text("backends: {openai: {url: http://127.0.0.1:1}}\nmodels: {m: }\n")
    async with serving() as upstream:
        assert (await run(*at(upstream), "--config", str(file), "--write", "--only", "chat"))[0] == 0
    backends = parse(file.read_text(), "x", {}, format_names()).backends
    assert [one.url for one in backends.values()] == [upstream.url, "http://127.0.0.1:1"]


async def test_doctor_command_reports_a_configuration_it_cannot_write(tmp_path):
    file = tmp_path / "gateway.yaml"
    called = stream(chunk(tool_calls=call("get_weather", "{}", id="a")), chunk(finish="tool_calls"))
    async with serving(HELLO, called) as upstream:
        text = f"backends: {{a: {{url: '{upstream.url}'}}}}\nmodels: {{m: {{format: auto, aliases: [x]}}}}\n"
        file.write_text(text)
        file.chmod(0o444)
        folder = str(tmp_path)
        assert (await run(*at(upstream), "--config", folder, "--write"))[0] == 2
    async with serving(models=list_of("x")) as upstream:
        file.write_text(f"backends: {{a: {{url: '{upstream.url}'}}, b: {{url: http://b}}}}\n{text.splitlines()[1]}\n")
        file.write_text(file.read_text().replace("{format: auto,", "{backends: [b],"))
        code, _, err = await run(*at(upstream), "--config", str(file), "--write", "--only", "chat")
        assert code == 2 and "'x' is already a name of model" in err
        missing = tmp_path / "no" / "gateway.yaml"
        code, _, err = await run(*at(upstream), "--config", str(missing), "--write", "--only", "chat")
        assert (code, err) == (2, f"{missing}: cannot be written: No such file or directory\n")


async def test_doctor_command_reports_a_conflict(tmp_path):
    file = tmp_path / "gateway.yaml"
    raw = stream(chunk('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'), DONE)
    async with serving(HELLO, raw) as upstream:
        before = f"backends: {{a: {{url: '{upstream.url}'}}}}\nmodels: {{m: {{format: mistral}}}}\n"
        file.write_text(before)
        code, out, err = await run("--config", str(file), "--write")
    assert code == 2 and "format: hermes_json" in out and file.read_text() == before
    assert err.startswith(f"{file}: models.m.format: is mistral, but the doctor found hermes_json")


# Ollama


def able():
    """Return the responses of an Ollama with a good model, by question."""
    called = calls(("get_weather", {"city": "Paris", "unit": "celsius"}, "call_1"))
    twice = calls(
        ("get_weather", {"city": "London", "unit": "celsius"}, "call_1"),
        ("get_weather", {"city": "Paris", "unit": "celsius"}, "call_2"),
    )
    chance = {"logprobs": [{"token": "4 + 3 = 7.", "logprob": -0.1, "bytes": None, "top_logprobs": []}]}
    summed = Turn([content_line("4 + 3"), content_line(" = 7.", **chance)])
    return {
        "plain": summed,
        "streamed": summed,
        "endless": Turn([content_line(f"{i}\n") for i in range(200)]),
        "after": summed,
        "thinking": Turn([thinks("That is 7."), content_line("4 + 3 = 7.")]),
        "tools": Turn([called]),
        "tools_streamed": Turn([called]),
        "parallel": Turn([twice]),
        "one_call": Turn([twice]),
        "required": summed,
        "named": Turn([content_line("I cannot.")]),
        "none": Turn([called]),
        "schema": Turn([content_line('{"colour": "blue", "number": 7}')]),
        "stopped": Turn([content_line("4 + 3 ")]),
        "twice": summed,
        "chances": summed,
        "image": Turn([content_line("Red")]),
    }


async def test_doctor_examines_ollama_by_its_native_api():
    async with ollama(*able().values()) as server:
        (found,) = await servers_found(url=server.url, kind="ollama")
        assert set(server.paths) == {"/api/chat"}
    (one,) = found.models
    assert one.model == NAME and (one.findings.format, one.findings.metadata.window) == ("native", 4096)
    del one.verdicts["cancellation"]  # all may have been said before anybody could leave
    wanting = {name: verdict.words for name, verdict in one.verdicts.items() if verdict.state != "good"}
    assert wanting == {
        "one_call": "is ignored: 2 tool calls",
        "tool_choice_required": "the server's API has no field `tool_choice`",
        "tool_choice_named": "the server's API has no field `tool_choice`",
        "tool_choice_none": "is ignored: a tool call",
        "n": "1 choice instead of 2",
        "context_window": "4096 tokens, too few for agents",
    }
    assert one.verdicts["thoughts"].words == "arrive in `thinking`"
    assert one.verdicts["context_window"].advice.startswith("OLLAMA_CONTEXT_LENGTH=N")
    assert one.verdicts["responses"].words.startswith("the server lacks it")


async def test_doctor_reports_an_ollama_model_without_tools():
    async with ollama(Turn([content_line("4 + 3 = 7.")]), able=("completion",)) as server:
        (found,) = await servers_found(url=server.url, kind="ollama")
    verdict = found.models[0].verdicts["tools"]
    assert verdict.words == f"refused: registry.ollama.ai/library/{NAME} does not support tools"
    assert verdict.advice == "use a model that `ollama show` lists with `tools`"


async def test_doctor_takes_the_configured_context_of_ollama(tmp_path):
    file = tmp_path / "gateway.yaml"
    async with ollama(*able().values()) as server:
        backends = {"laptop": {"kind": "ollama", "url": server.url}}
        model = {"upstream_model": NAME, "defaults": {"num_ctx": 32768}}
        file.write_text(json.dumps({"backends": backends, "models": {"m": model}}))
        (found,) = await servers_found(file=file, only=("context_window",))
    (one,) = found.models
    assert found.well and one.verdicts["context_window"].words == "32768 tokens"


async def test_doctor_fills_a_configuration_without_content(tmp_path):
    file = tmp_path / "gateway.yaml"
    file.write_text("# mine\n")
    async with serving() as upstream:
        code, _, _ = await run(*at(upstream), "--config", str(file), "--write", "--only", "chat")
    assert code == 0 and parse(file.read_text(), "g", {}, format_names()).models["m"]
