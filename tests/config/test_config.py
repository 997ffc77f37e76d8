"""Test the configuration: accepted values, defaults and faults."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from gateway.config import (
    Config,
    ConfigDocument,
    ConfigError,
    ReasoningSettings,
    build_config,
    dump_effective,
    is_exposed,
    is_loopback,
    key_digest,
    parse,
)
from gateway.server.process.config_source import read_config
from support.kinds import ONE_OF_THE_KINDS
from support.paths import ROOT

FORMATS = frozenset({"auto", "native", "hermes_json", "qwen_xml"})
EXAMPLE = ROOT / "config" / "gateway.yaml"
PROXY = "server: {forwarded_allow_ips: [127.0.0.1]}\n"
BACKEND = "backends: {gpu0: {url: 'http://127.0.0.1:8000'}}\n"


def load(text: str, env: dict[str, str] | None = None, **flags: object) -> Config:
    return parse(text, "gateway.yaml", env or {}, FORMATS, flags)


def faults(text: str, env: dict[str, str] | None = None, **flags: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text, env, **flags)
    assert str(caught.value).splitlines() == [str(fault) for fault in caught.value.faults]
    return [str(fault).removeprefix("gateway.yaml:") for fault in caught.value.faults]


def uncommented(text: str) -> str:
    """Return the example with its commented lines (`#key: …` without a space) as code."""
    return re.sub(r"^( *)#(?=\S)", r"\1", text, flags=re.M)


# What can be written


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "server:\nmodels:\n", "auth: {keys: , open: }", "---\n"])
def test_config_without_content_is_the_defaults(text):
    assert load(text) == Config()


def test_config_defaults_are_the_documented_ones():
    config = Config()
    assert (config.server.host, config.server.port, config.server.workers, config.server.drain_seconds) == (
        "127.0.0.1", 8900, 1, 30,
    )  # fmt: skip
    assert config.server.cors == ()
    assert config.store.url.get_secret_value() == "sqlite:///./gateway.db"
    assert (config.store.ttl_days, config.store.max_bytes, config.store.sealing_keys) == (30, 10 << 30, ())
    assert (config.limits.body_bytes, config.limits.frame_bytes) == (33554432, 8388608)
    assert (config.stream.grace_seconds, config.stream.keepalive_seconds) == (10, 15)
    assert not (config.images.fetch or config.metrics.open or config.inspector.enabled or config.auth.open)
    backend = load(BACKEND).backends["gpu0"]
    assert (backend.kind, backend.api_key, backend.idle_connections) == ("openai", None, 32)
    assert backend.timeouts.model_dump() == {"connect": 5, "reused": 0.2, "first_byte": 600, "idle": 120, "total": 0}


def test_config_accepts_every_section():
    config = load(
        """
server: {host: 127.0.0.1, port: 8900, workers: 2, drain_seconds: 30, cors: ["http://localhost:3000"]}
backends:
  gpu0:
    kind: vllm
    url: http://127.0.0.1:8000
    api_key: "${GPU0_KEY:-}"
    timeouts: {connect: 5, first_byte: 600, idle: 120, total: 0}
    idle_connections: 32
  gpu1: {url: http://127.0.0.1:8001}
models:
  qwen:
    backends: [gpu1, {name: gpu0, weight: 2, priority: 1}]
    upstream_model: Qwen/Qwen3-8B
    format: hermes_json
    thought: open
    tools: prompt
    reasoning: {field: both, as: hidden}
    roles: {developer: native, late_system: merge}
    strict: true
    aliases: [gpt-4o-mini]
auth:
  keys: ["${GATEWAY_KEY}", {name: ci, key: x1, models: [qwen], scopes: [admin], limits: {requests_per_minute: 5}}]
store: {url: "postgresql://u:p@h/db", ttl_days: 3, sealing_keys: [aa]}
limits: {body_bytes: 1, frame_bytes: 2}
stream: {grace_seconds: 0.5, keepalive_seconds: 15}
images: {fetch: true}
metrics: {open: true}
inspector: {enabled: true}
""",
        {"GATEWAY_KEY": "sk-1"},
    )
    qwen = config.models["qwen"]
    assert [(one.name, one.weight, one.priority) for one in qwen.backends] == [("gpu1", 1, 0), ("gpu0", 2, 1)]
    assert (qwen.upstream_model, qwen.format, qwen.thought, qwen.tools) == (
        "Qwen/Qwen3-8B", "hermes_json", "open", "prompt",
    )  # fmt: skip
    assert (qwen.reasoning.field, qwen.reasoning.carrier) == ("both", "hidden")
    assert (qwen.roles.developer, qwen.roles.late_system) == ("native", "merge")
    assert (qwen.strict, qwen.aliases) == (True, ("gpt-4o-mini",))
    assert config.backends["gpu0"].api_key is None
    first, second = config.auth.keys
    assert (first.name, [one.get_secret_value() for one in first.key], first.scopes, first.models) == (
        "key1", [key_digest("sk-1")], ("inference", "admin"), None,
    )  # fmt: skip
    assert (second.name, second.scopes, second.models, second.limits.requests_per_minute) == (
        "ci", ("admin",), ("qwen",), 5,
    )  # fmt: skip
    assert config.server.cors == ("http://localhost:3000",)


def test_config_model_without_backends_gets_the_only_one():
    models = load(BACKEND + "models: {a: , b: {strict: true}, c: {backends: [gpu0]}}").models
    assert {name: [target.name for target in model.backends] for name, model in models.items()} == {
        "a": ["gpu0"],
        "b": ["gpu0"],
        "c": ["gpu0"],
    }
    assert models["b"].strict
    assert models["a"].upstream_model is None


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("https://host/openai/v1/", "https://host/openai"),
        ("http://[::1]:11434/v1", "http://[::1]:11434"),
    ],
)
def test_config_backend_url_loses_its_v1(url, root):
    assert load(f"backends: {{a: {{url: '{url}'}}}}").backends["a"].url == root


@pytest.mark.parametrize(
    ("url", "chat"),
    [
        ("https://g.test/v1beta/openai/", "https://g.test/v1beta/openai/chat/completions"),
        ("https://z.test/api/paas/v4", "https://z.test/api/paas/v4/chat/completions"),
        ("https://c.test/client/v4/accounts/1/ai/v1", "https://c.test/client/v4/accounts/1/ai/v1/chat/completions"),
        ("https://d.test/v1/openai", "https://d.test/v1/openai/chat/completions"),
        ("https://p.test/chat/completions", "https://p.test/chat/completions"),
        ("https://h.test/inference/chat/completions/", "https://h.test/inference/chat/completions"),
        ("https://r.test/api/v1", "https://r.test/api/v1/chat/completions"),
        ("https://r.test/v1x/v", "https://r.test/v1x/v/v1/chat/completions"),
    ],
)
def test_config_backend_url_may_name_an_api_at_another_path(url, chat):
    backend = load(f"backends: {{a: {{url: '{url}'}}}}").backends["a"]
    assert backend.root + backend.path_of("/v1/chat/completions") == chat
    assert load(f"backends: {{a: {{url: '{backend.url}'}}}}").backends["a"].url == backend.url


def test_config_backend_url_of_another_kind_is_a_root():
    backend = load("backends: {a: {kind: vllm, url: 'https://x/v2/lab'}}").backends["a"]
    assert (backend.root, backend.path_of("/v1/models")) == ("https://x/v2/lab", "/v1/models")


def test_config_is_immutable():
    with pytest.raises(ValidationError):
        Config().server.port = 1  # type: ignore[misc]


def test_config_reasoning_carrier_has_the_yaml_key_as():
    assert ReasoningSettings(carrier="text").carrier == "text"
    assert "as: text" in dump_effective(load(BACKEND + "models: {q: {reasoning: {as: text}}}"))


# Variables


def test_config_variables_are_replaced_inside_texts():
    env = {"HOST": "10.0.0.7", "EMPTY": "", "WAIT": "2.5"}
    config = load(
        """
server: {port: "${PORT:-9000}"}
backends:
  a: {url: "http://${HOST}:${PORT:-8000}/v1", api_key: '$${x}', timeouts: {idle: "${WAIT}", connect: "${EMPTY:-3}"}}
""",
        env,
    )
    assert config.server.port == 9000
    backend = config.backends["a"]
    assert (backend.url, backend.timeouts.idle, backend.timeouts.connect) == ("http://10.0.0.7:8000", 2.5, 3)
    assert backend.api_key == SecretStr("${x}")


def test_config_variable_cannot_change_the_structure():
    assert faults("server: {host: '${EVIL}'}", {"EVIL": "x, port: 1}\nauth: {open: true"}) == [
        "1: server.host: should be an address or a host name, like 127.0.0.1 or ::1"
    ]


def test_config_variable_that_is_unset_is_named():
    assert faults(BACKEND + "models:\n  a:\n    upstream_model: ${NAME}-${OTHER}\n", {"OTHER": ""}) == [
        "4: models.a.upstream_model: the variable NAME is not set; set it, or write ${NAME:-default}"
    ]


@pytest.mark.parametrize("text", ["${A", "${1}", "${A-b}", "${}", "${file:}", "${file:a", "${files:a}"])
def test_config_variable_with_wrong_syntax_is_refused(text):
    assert faults(BACKEND + f"models: {{a: {{upstream_model: '{text}'}}}}", {"A": "1"}) == [
        "2: models.a.upstream_model: should be ${NAME} or ${NAME:-default} for a variable, ${file:PATH} for a file, or $${ for a literal ${"
    ]


def test_config_variable_value_is_never_shown():
    lines = faults(
        BACKEND + "server: {port: '${KEY}'}\nmodels: {a: {format: '${KEY}', thought: '${KEY}'}}", {"KEY": "s3cret"}
    )
    assert len(lines) == 3
    assert all("${KEY}" in line and "s3cret" not in line for line in lines)


# YAML


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1,\n", ["2: not YAML: the bracket that opens in line 2 is not closed, or a comma is missing"]),
        ("server:\n\tport: 1", ["2: not YAML: a tab; indent with spaces"]),
        ("a: 1\n---\nb: 2", ["2: not YAML: a second document begins; remove the line ---"]),
        ("server: {}\nx: \x01", ["2: not YAML: the character 0x1 is not allowed"]),
        ("auth: *nobody", ["1: not YAML: the alias *nobody is unknown; put a text that begins with * in quotes"]),
        ("- a\n- b", ["1: should be a mapping, not a list; for example backends: {gpu: {url: http://127.0.0.1:8000}}"]),
        ("server: {port: !!int x}", ["1: server.port: should be a whole number"]),
        ("images: {fetch: !!bool maybe}", ["1: images.fetch: should be true or false"]),
        ("server: {port: !!int ''}", ["1: server.port: should be a whole number"]),
        ("%YAML 1.9\n---\nserver: {}", [" the file is read as YAML 1.2; remove the %YAML line"]),
        ("[" * 999, [" nested too deeply"]),
        ("server:\n  host: !secret x", ["2: server.host: the tag !secret is not supported"]),
        ("server:\n  ? [port]\n  : 1", ["2: server: a key should be a string"]),
        ("server:\n  port: 1\n  workers: 2\n  port: 3", ["4: server.port: duplicate key, first in line 2"]),
        ("models: &m\n  a: *m", ["2: models.a: an alias refers to a value that contains it"]),
        ("server:\n  <<: 3", ["2: server.<<: should be an alias of a mapping"]),
    ],
)  # fmt: skip
def test_config_yaml_error_has_its_line(text, message):
    assert faults(text) == message


def test_config_yaml_merge_yields_to_own_keys():
    config = load(
        """
backends:
  a: &a {url: "http://a", kind: vllm, idle_connections: 3}
  b: &b {<<: *a, url: "http://b"}
  c:
    idle_connections: 4
    <<: [{kind: sglang}, *b]
"""
    )
    shown = [(one.url, one.kind, one.idle_connections) for one in config.backends.values()]
    assert shown == [("http://a", "vllm", 3), ("http://b", "vllm", 3), ("http://b", "sglang", 4)]


def test_config_yaml_scalars_are_those_of_yaml_1_2():
    config = load(BACKEND + "server: {port: 0x1F}\nmodels: {2024-01-01: {upstream_model: 2024-01-01}, 4: {strict: no}}")
    assert config.server.port == 31
    assert config.models["2024-01-01"].upstream_model == "2024-01-01"
    assert not config.models["4"].strict


# What is wrong


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tools: {mcp: {servers: {a: {}}}}", "1: tools.mcp.servers.a: should have either url or command"),
        ("tools: {mcp: {servers: {a: {url: 'http://a/mcp', command: [b]}}}}", "1: tools.mcp.servers.a: should have either url or command"),
        ("tools: {mcp: {servers: {a: {url: 'http://me:pw@a/mcp'}}}}", "1: tools.mcp.servers.a.url: should have no user; put a key into api_key or headers"),
        ("tools: {mcp: {connect_seconds: 0}}", "1: tools.mcp.connect_seconds: should be more than 0"),
        ("tools: {mcp: {hosts: ['https://a']}}", "1: tools.mcp.hosts[0]: should be a host name, *.example.com for its subdomains, or * for all"),
        ("tools: {web_search: {service: searxng}}", "1: tools.web_search: needs url, the address of the SearXNG server"),
        ("tools: {web_search: {service: brave}}", "1: tools.web_search: needs api_key, the key of brave"),
        ("tools: {web_search: {service: tavily, api_key: ''}}", "1: tools.web_search: needs api_key, the key of tavily"),
        ("tools: {web_search: {service: static, found: [{url: x}]}}", "1: tools.web_search.found[0].url: should start with http:// or https:// and name a host, like http://127.0.0.1:8000"),
        ("tools: {file_search: {url: 'http://me:pw@a'}}", "1: tools.file_search.url: should have no user; put a key into api_key"),
        ("tools: {mcp: {per_request: 0}}", "1: tools.mcp.per_request: should be 1 or more, not 0"),
        (BACKEND + "tools: {mcp: {servers: {docs: {url: 'http://a/mcp'}}}}\nmodels: {a: {mcp: [dosc, docs]}}", "3: models.a.mcp[0]: unknown server 'dosc' in tools.mcp.servers; did you mean 'docs'? one of: docs"),
        ("severs: {}", "1: severs: unknown key; did you mean 'server'? one of: server, backends, models, auth, store, responses, limits, stream, images, files, tools, logs, metrics, inspector, recording, tracing"),
        ("server: {prot: 1}", "1: server.prot: unknown key; did you mean 'port'? one of: host, port, workers, ready, drain_seconds, drain_delay_seconds, watch_seconds, cors, tls, forwarded_allow_ips"),
        ("auth: {keys: [{name: a, key: b, limits: {zzz: 1}}]}", "1: auth.keys[0].limits.zzz: unknown key; one of: requests_per_minute, tokens_per_minute, tokens_per_day, tokens_per_month, concurrent, file_bytes, tenant_file_bytes"),
        (BACKEND + "models: {a: {reasoning: {carrier: text}}}", "2: models.a.reasoning.carrier: unknown key; one of: field, as"),
        (BACKEND + "models:\n  a:\n    format: hermes", "4: models.a.format: unknown format 'hermes'; did you mean 'hermes_json'? one of: auto, native, hermes_json, qwen_xml"),
        (BACKEND + "models: {a: {thought: opened}}", "2: models.a.thought: unknown value 'opened'; did you mean 'open'? one of: 'auto', 'open' or 'closed'"),
        ("server: {port: 65536}", "1: server.port: should be 65535 or less, not 65536"),
        ("server: {port: -1}", "1: server.port: should be 0 or more, not -1"),
        ("server: {port: true}", "1: server.port: should be a number"),
        ("server: {port: 1.5}", "1: server.port: should be a whole number, not 1.5"),
        ("server: {port: http}", "1: server.port: should be a whole number, not 'http'"),
        ("server: {port: [1]}", "1: server.port: should be a whole number"),
        ("server: {workers: 0}", "1: server.workers: should be 1 or more, not 0"),
        ("server: {host: 5}", "1: server.host: should be a string; write it in quotes"),
        ("server: {cors: http://a}", "1: server.cors: should be a list; write cors: [ … ], or one `- entry` per line"),
        ("server: {cors: ['http://a/b']}", "1: server.cors[0]: should be scheme://host, scheme://host:port, or * for all"),
        ("server: 8900", "1: server: should be a mapping; for example server: {host: 127.0.0.1}"),
        ("backends: [a]", "1: backends: should be a mapping, not a list; for example backends: {gpu: {url: http://127.0.0.1:8000}}"),
        ("backends: {a b: {url: 'http://a'}}", "1: backends.a b: a name should consist of letters, digits, dots, dashes and underscores"),
        ("backends:\n  a:\n    kind: vllm", "2: backends.a.url: is missing; for example url: http://127.0.0.1:8000"),
        ("backends: {a: {url: 'ftp://a'}}", "1: backends.a.url: should start with http:// or https:// and name a host, like http://127.0.0.1:8000"),
        ("backends: {a: {url: 'localhost:8000'}}", "1: backends.a.url: should start with http:// or https:// and name a host, like http://127.0.0.1:8000"),
        ("backends: {a: {url: 'http://a:99999'}}", "1: backends.a.url: the port should be a number from 1 to 65535, like http://127.0.0.1:8000"),
        ("backends: {a: {url: 'http://u:p@a'}}", "1: backends.a.url: should have no user; put a key into api_key"),
        ("backends: {a: {url: 'https://n.openai.azure.com/openai/deployments/g/chat/completions?api-version=2024-10-21'}}",
         "1: backends.a.url: should be the URL of Azure's API without api-version, like https://n.openai.azure.com/openai/v1"),
        ("backends: {a: {url: 'https://n.openai.azure.com/openai/v1/?api-version=preview'}}",
         "1: backends.a.url: should be the URL of Azure's API without api-version, like https://n.openai.azure.com/openai/v1"),
        ("backends: {a: {url: 'http://a/v1?key=b'}}", "1: backends.a.url: should have no user, query or fragment; put a key into api_key"),
        ("backends: {a: {url: 'http://a', kind: tgi}}", f"1: backends.a.kind: unknown value 'tgi'; {ONE_OF_THE_KINDS}"),
        ("backends: {a: {url: 'http://a', timeouts: {idle: -2}}}", "1: backends.a.timeouts.idle: should be 0 or more, not -2"),
        ("backends: {a: {url: 'http://a', timeouts: {idle: .inf}}}", "1: backends.a.timeouts.idle: should be finite; 0 means no limit"),
        ("backends: {a: {url: 'http://a', api_key: 'ä b'}}", "1: backends.a.api_key: should be visible ASCII characters, at least one"),
        ("images: {fetch: perhaps}", "1: images.fetch: should be true or false, not 'perhaps'"),
        ("images: {fetch: [1]}", "1: images.fetch: should be true or false"),
        ("store: {url: 'mysql://h'}", "1: store.url: should start with sqlite:// or postgresql://, like sqlite:///./gateway.db or postgresql://user@host/database"),
        ("store: {url: 'sqlite://./a.db'}", "1: store.url: should have three slashes before a relative path, four before an absolute one"),
        ("store: {url: 'postgresql://u:p@h:x/db'}", "1: store.url: should name the server as host or host:port"),
        ("store: {url: 'postgresql://u@h1:1,[::1/db'}", "1: store.url: should name the server as host or host:port"),
        ("auth: {keys: [\"\"]}", "1: auth.keys[0].key: should be visible ASCII characters, at least one"),
        ("auth:\n  keys:\n    - {key: a}", "3: auth.keys[0].name: is missing; for example name: ci"),
        ("auth: {keys: abc}", "1: auth.keys: should be a list; write keys: [ … ], or one `- entry` per line"),
        ("auth: {keys: [a, a]}", "1: auth.keys: the same key is listed twice"),
        ("auth: {keys: [a, {name: key1, key: b}]}", "1: auth.keys: each key needs a unique name; used twice: key1"),
        ("auth: {keys: [{name: a, key: b, models: []}]}", "1: auth.keys[0].models: should have at least one entry"),
        ("auth: {keys: [a], open: true}", "1: auth: open: true contradicts keys; remove one of them"),
        (BACKEND + "models: {a: {upstream_model: ''}}", "2: models.a.upstream_model: should not be empty"),
        (BACKEND + "models: {'': {}}", "2: models.: a model's name should not be empty and should have no control characters"),
        ("backends: {gpu0: {url: http://x, cache: auto}}", "1: backends.gpu0.cache: only backends of kind 'anthropic' take 'auto'; remove this key"),
        (BACKEND + "models: {a: {backends: [gpu1]}}", "2: models.a.backends[0]: unknown backend 'gpu1'; did you mean 'gpu0'? one of: gpu0"),
        (BACKEND + "models: {a: {backends: [gpu0, {name: gpu0}]}}", "2: models.a.backends[1]: backend 'gpu0' is listed twice"),
        (BACKEND + "models: {a: {backends: [{weight: 2}]}}", "2: models.a.backends[0].name: is missing; for example name: gpu"),
        ("auth: {groups: {team: {tokens_per_day: 5}}, keys: [{name: a, key: b, group: teams}]}", "1: auth.keys[0].group: unknown group 'teams'; did you mean 'team'? one of: team"),
        ("auth: {keys: [k, {name: a, key: b, group: team}]}", "1: auth.keys[1].group: unknown group 'team'; none is configured"),
        ("auth: {groups: {team: 5}}", "1: auth.groups.team: should be a mapping; for example team: {tokens_per_month: 5000000}"),
        ("auth: {groups: {team: {tokens_per_minute: 5}}}", "1: auth.groups.team.tokens_per_minute: unknown key; did you mean 'tokens_per_month'? one of: tokens_per_day, tokens_per_month"),
        ("auth: {header: {scopes: {a: [admin]}}}", "1: auth.header: requires server.forwarded_allow_ips, the addresses of the proxy"),
        (PROXY + "auth: {header: {}}", "2: auth.header.scopes: is missing; for example scopes: {admins: [admin]}"),
        (PROXY + "auth: {header: {user: 'a b', scopes: {a: [admin]}}}", "2: auth.header.user: should be the name of a header, like X-Forwarded-User"),
        (PROXY + "auth: {open: true, header: {scopes: {a: [admin]}}}", "2: auth: open: true contradicts header; remove one of them"),
        ("server: {ready: [store, redis]}", "1: server.ready[1]: 'redis' requires limits.url; remove it, or set limits.url"),
        (BACKEND + "models: {a: {fallback: [b]}, c: }", "2: models.a.fallback[0]: unknown other model 'b'; one of: c"),
        (BACKEND + "models: {a: {fallback: [{model: a}]}}", "2: models.a.fallback[0]: unknown other model 'a'; none is configured"),
        (BACKEND + "models: {a: {fallback: [{model: b, when: []}]}, b: }", "2: models.a.fallback[0].when: should have at least one entry"),
        ("limits: {url: 'http://x'}", "1: limits.url: should start with redis:// or rediss:// and name a host, like redis://127.0.0.1:6379/0"),
        (BACKEND + "models: {a: x}", "2: models.a: should be a mapping; for example a: {backends: [gpu]}"),
        (BACKEND + "models: [a]", "2: models: should be a mapping, not a list; for example models: {qwen: {backends: [gpu]}}"),
        ("models: {a: }", "1: models.a: names no backend; add a backend to backends first"),
        (BACKEND + "models:\n  a: {aliases: [b]}\n  b: {}", "3: models.a.aliases[0]: 'b' is already a name of model 'b'"),
        (BACKEND + "models:\n  a: {aliases: [x]}\n  b: {aliases: [y, x]}", "4: models.b.aliases[1]: 'x' is already a name of model 'a'"),
        (BACKEND + "models: {a: {aliases: [1]}}", "2: models.a.aliases[0]: should be a string; write it in quotes"),
    ],
)  # fmt: skip
def test_config_fault_has_its_place_and_a_suggestion(text, message):
    assert faults(text) == [message]


def test_config_model_must_choose_among_several_backends():
    text = "backends: {b: {url: 'http://b'}, c: {url: 'http://c'}}\nmodels: {a: {backends: []}}"
    assert faults(text) == ["2: models.a: names no backend; add backends: […], one of: b, c"]


def test_config_fault_cuts_a_long_list_of_choices():
    names = {f"f{number}" for number in range(30)}
    with pytest.raises(ConfigError, match=r"one of: f0, f1, [^…]+, …$"):
        parse(BACKEND + "models: {a: {format: zz}}", "g", {}, names)


def test_config_faults_are_all_reported_in_order():
    lines = faults(
        """models:
  qwen: {backends: [gpu9], format: zzz}
server:
  prot: 1
  host: ${NOWHERE:-0.0.0.0}
backends:
  gpu0: {url: tcp://x}
  gpu0: {}
limits: {body_bytes: 0}
"""
    )
    assert [line.split(": ")[:2] for line in lines] == [
        ["2", "models.qwen.backends[0]"],
        ["2", "models.qwen.format"],
        ["4", "server.prot"],
        ["5", "server.host"],
        ["7", "backends.gpu0.url"],
        ["8", "backends.gpu0"],
        ["9", "limits.body_bytes"],
    ]


# Who may listen where


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_config_allows_loopback_without_a_key(host):
    assert is_loopback(host)
    assert load("", host=host).server.host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "gateway.example"])
def test_config_refuses_other_hosts_without_a_key_or_open(host):
    assert not is_loopback(host)
    (message,) = faults(f"server:\n  host: '{host}'")
    assert message.startswith(
        f"2: server.host: on {host} other machines could use the gateway without a key; set auth: "
    )
    for auth in ("open: true", "keys: [k]"):
        config = load(f"server: {{host: '{host}'}}\nauth: {{{auth}}}")
        assert not is_exposed(config.server, config.auth)


# The command line


def test_config_flags_win_over_the_file():
    text = "server: {host: 0.0.0.0, port: 1, workers: 3}"
    assert load(text, host="127.0.0.1", port=2, workers=None).server.model_dump(
        include={"host", "port", "workers"}
    ) == {
        "host": "127.0.0.1",
        "port": 2,
        "workers": 3,
    }


def test_config_fault_of_a_flag_names_the_flag():
    with pytest.raises(ConfigError) as caught:
        load("server: {port: 5}", host="0.0.0.0", port=70000)
    first, second = map(str, caught.value.faults)
    assert first.startswith("--host: on 0.0.0.0 other machines")
    assert second == "--port: should be 65535 or less, not 70000"


def test_config_flags_do_not_hide_faults_around_them():
    assert faults("server: 7", port=1) == ["1: server: should be a mapping; for example server: {host: 127.0.0.1}"]


def test_config_can_be_built_from_data():
    document = ConfigDocument("found", {"backends": {"a": {"url": "http://127.0.0.1:1"}}})
    assert build_config(document, FORMATS).backends["a"].url == "http://127.0.0.1:1"
    with pytest.raises(ConfigError, match=r"^found: backends\.a\.url: is missing; for example url: "):
        build_config(ConfigDocument("found", {"backends": {"a": {}}}), FORMATS)


# What holds


def test_config_effective_text_is_equal_and_without_secrets():
    text = (
        "backends: {a: {url: 'http://a', api_key: s3cret}}\nmodels: {m: {aliases: [n]}}\n"
        "auth: {keys: [{name: x, key: s3cret}]}\n"
        "store: {url: 'postgresql+asyncpg://me:s3cret@h:5432/db', sealing_keys: [s3cret]}\n"
        "tools: {mcp: {servers: {d: {url: 'http://d/mcp', headers: {x: s3cret}}, e: {command: [e], env: {X: s3cret}}}},"
        " web_search: {service: brave, api_key: s3cret}, file_search: {url: 'http://f', api_key: s3cret}}\n"
    )
    config = load(text)
    shown = dump_effective(config)
    assert "s3cret" not in shown + repr(config) + str(config)
    assert "url: postgresql+asyncpg://me:**********@h:5432/db\n" in shown
    again = load(shown)
    assert again.server == config.server
    assert again.models["m"] == config.models["m"].model_copy(update={"upstream_model": "m"})
    assert dump_effective(again) == shown


def test_config_pages_have_a_size_limit_of_their_own():
    tools = load("tools: {web_search: {service: static, pages: {fetch: true}}}").tools
    assert tools.web_search.pages.max_bytes == 2 << 20 < load("").images.max_bytes


# The example


def test_config_example_shows_the_defaults():
    example = load(EXAMPLE.read_text())
    assert example.backends.keys() == {"local"}
    assert example.backends["local"].kind == "openai"
    assert example.model_dump(exclude={"backends"}) == Config().model_dump(exclude={"backends"})
    assert example.backends["local"] == load("backends: {local: {url: 'http://127.0.0.1:8080'}}").backends["local"]


def test_config_example_shows_every_key_and_its_default():
    text = uncommented(EXAMPLE.read_text()).replace("forwarded_allow_ips: []", "forwarded_allow_ips: [127.0.0.1]")
    config = load(text)
    key = re.compile(r"(\w+):(?= |$)", re.M)
    assert set(key.findall(re.sub(r"^ *#.*", "", text, flags=re.M))) == set(key.findall(dump_effective(config)))
    plain = load(
        BACKEND.replace("gpu0", "local")
        + "models: {qwen: {upstream_model: Qwen/Qwen3-8B, aliases: [gpt-4o-mini, 'claude-*']}}"
    )
    assert config.models == plain.models
    (ci,) = config.auth.keys
    assert (ci.scopes, ci.limits) == (("inference",), type(ci.limits)())


def test_config_example_explains_every_key():
    """A comment precedes each key, or the section that holds it."""
    lines = [line.strip() for line in EXAMPLE.read_text().splitlines()]
    blocks = {"server:", "backends:", "models:", "auth:", "store:", "limits:", "stream:", "tools:", "mcp:"}
    explained = {
        "local:",
        "#reasoning:",
        "#roles:",
        "images:",
        "#tls:",
        "metrics:",
        "inspector:",
        "tracing:",
        "recording:",
        "#- name: local",
        "#priority: 0",
        "#- name: ci",
        "rounds: 16",
        "#docs:",
        "#command: []",
        "#env: {}",
    }
    for before, line in pairwise(lines):
        if re.match(r"#?(- )?\w+:", line) and line not in blocks | explained:
            assert before.startswith("# "), line


# Formats that are brought along

TEMPLATE = {"fields": {"thinking": {"open": "<t>", "close": "</t>"}}}
OWN = BACKEND + "models:\n  a:\n    format: response_template\n    response_template: %s\n"


def read(folder: Path, written: str) -> Config:
    (folder / "gateway.yaml").write_text(OWN % written)
    return read_config(folder / "gateway.yaml")


@pytest.mark.parametrize("held", [TEMPLATE, {"response_template": TEMPLATE, "eos_token": "</s>"}])
def test_config_response_template_may_be_inline_or_a_file(tmp_path, held):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(held))
    for written in (json.dumps(TEMPLATE), "tokenizer_config.json", str(tmp_path / "tokenizer_config.json")):
        assert read(tmp_path, written).models["a"].response_template == TEMPLATE


def test_config_effective_text_holds_the_response_template(tmp_path):
    (tmp_path / "own.json").write_text(json.dumps(TEMPLATE))
    shown = dump_effective(read(tmp_path, "own.json"))
    assert "    response_template:\n      fields:\n        thinking:\n          open: <t>\n" in shown
    (tmp_path / "gateway.yaml").write_text(shown)
    assert dump_effective(read_config(tmp_path / "gateway.yaml")) == shown


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("\n      fields:\n        thinking:\n          open: <t>\n          end: </t>", "9: models.a.response_template.fields.thinking.end: unknown key; one of: open, "),
        ("{fields: {tool_calls: {open_pattern: '^x'}}}", "5: models.a.response_template.fields.tool_calls.open_pattern: '^' is not supported"),
        ("[1]", "5: models.a.response_template: should be a response template, or the path of a file that contains one"),
        ("nowhere.json", "5: models.a.response_template: {}/nowhere.json cannot be read: No such file or directory"),
        ("wrong.json", "5: models.a.response_template.fields.content.content: should be text"),
        ("none.json", "5: models.a.response_template: contains neither response_template nor the `fields` of one"),
        ("no.json", "5: models.a.response_template: {}/no.json is not JSON: Expecting value in line 2"),
        ("deep.json", "5: models.a.response_template: {}/deep.json is nested too deeply"),
        ("long.json", "5: models.a.response_template: {}/long.json contains a number with too many digits"),
        ("latin.json", "5: models.a.response_template: {}/latin.json is not UTF-8 at byte 1"),
    ],
)  # fmt: skip
def test_config_response_template_fault_has_its_place(tmp_path, written, message):
    (tmp_path / "wrong.json").write_text('{"fields": {"content": {"content": "json"}}}')
    (tmp_path / "none.json").write_text("{}")
    (tmp_path / "no.json").write_text('{"fields":\n')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "long.json").write_text("9" * 5000)
    (tmp_path / "latin.json").write_bytes(b'"\xe4"')
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, written)
    (fault,) = map(str, caught.value.faults)
    assert fault.removeprefix(f"{tmp_path}/gateway.yaml:").startswith(message.format(tmp_path))


def test_config_response_template_needs_its_format():
    formats = FORMATS | {"response_template"}
    for model, message in [
        ("{format: response_template}", "format: needs the key response_template: a template, or the path of a file that contains one"),
        ("{response_template: {}}", "response_template: requires format: response_template"),
    ]:  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            parse(BACKEND + f"models: {{a: {model}}}", "g", {}, formats)
        assert str(caught.value) == f"g:2: models.a.{message}"
    assert parse(BACKEND + "models: {a: {format: response_template, response_template: {x: 1}}}", "g", {}, formats)
