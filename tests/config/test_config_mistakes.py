"""Test the messages for the mistakes that operators make in a configuration: one message for each cause."""

import pytest

from gateway.config import ConfigError, build_config, explanation, parse, read_document
from gateway.formats import format_names
from gateway.server.process.config_source import ConfigSource
from support.kinds import ONE_OF_THE_KINDS

GPU = "backends: {gpu: {url: 'http://127.0.0.1:8000'}}\n"
SECTIONS = (
    "one of: server, backends, models, auth, store, responses, limits, stream, images, files, tools, logs, metrics, "
    "inspector, recording, tracing"
)
BACKENDS = "for example backends: {gpu: {url: http://127.0.0.1:8000}}"
ROOT = "should be the root URL of the server without {}, like http://127.0.0.1:8000"
LIKE = "should start with http:// or https:// and name a host, like http://127.0.0.1:8000"
OWN = "is the gateway's own address (server.port {}); write the address of the model server"

# file → its only message
MISTAKES = [
    # YAML
    ("server:\n\tport: 1\n", "2: not YAML: a tab; indent with spaces"),
    ("server: {port: 1\n", "2: not YAML: the bracket that opens in line 1 is not closed, or a comma is missing"),
    ("backends:\n  a:\n    url: http://x: 80\n", "3: not YAML: a colon where no key can be; check the indentation, or put a text with a colon in quotes"),
    ("server:\n  port: 1\n host: x\n", "3: not YAML: the indentation does not match the lines from line 1 on"),
    ("backends:\n  a:\n    url: 'http://x\n", "4: not YAML: the quote that opens in line 3 is not closed"),
    ("auth:\n  keys: [@abc]\n", "2: not YAML: a text cannot begin with @; put it in quotes"),
    ("auth:\n  keys: [${KEY}]\n", "2: not YAML: a variable between brackets; put it in quotes, like \"${NAME}\""),
    ("backends: {a: {url: http://${HOST:-a}:80}}\n", "1: not YAML: a variable between brackets; put it in quotes, like \"${NAME}\""),
    ("server:\n  cors: [*]\n", "2: not YAML: * stands for an alias; put a text that begins with * in quotes"),
    ("server:\n  cors: *all\n", "2: not YAML: the alias *all is unknown; put a text that begins with * in quotes"),
    ("backends:\n  a:\n    url: {{ URL }}\n", "3: backends.a.url: a key should be a string"),
    ("server: {port: 1}\n---\nserver: {port: 2}\n", "2: not YAML: a second document begins; remove the line ---"),
    ("[server]\nport: 1\n", "2: not YAML: the text goes on after its end; write `key: value` lines only"),
    ("server:\n  port: 1\n  host\n", "4: not YAML: line 3 has no colon; write `key: value`"),
    ("server: {port: 1}\nserver: {port: 2}\n", "2: server: duplicate key, first in line 1"),
    ("server: !<!x\n", "1: not YAML: while parsing a tag, expected '>' but found '\\n'"),
    # Mappings and lists
    ("port = 1\n", f"1: should be a mapping; {BACKENDS}"),
    ("- a\n", f"1: should be a mapping, not a list; {BACKENDS}"),
    ("backends:\n  - name: a\n    url: http://127.0.0.1:8000\n", f"1: backends: should be a mapping, not a list; {BACKENDS}"),
    ("backends: http://127.0.0.1:8000\n", f"1: backends: should be a mapping; {BACKENDS}"),
    ("backends:\n  a: http://127.0.0.1:8000\n", "2: backends.a: should be a mapping; for example a: {url: http://127.0.0.1:8000}"),
    ("backends:\n  url: http://127.0.0.1:8000\n", f"2: backends.url: needs a name of your choice above it; {BACKENDS}"),
    (GPU + "models: qwen\n", "2: models: should be a mapping; for example models: {qwen: {backends: [gpu]}}"),
    (GPU + "models:\n  qwen: gpu\n", "3: models.qwen: should be a mapping; for example qwen: {backends: [gpu]}"),
    (GPU + "models: {q: {backends: gpu}}\n", "2: models.q.backends: should be a list; write backends: [ … ], or one `- entry` per line"),
    (GPU + "models: {q: {reasoning: hidden}}", "2: models.q.reasoning: should be a mapping; for example reasoning: {field: reasoning_content}"),
    ("backends: {a: {url: 'http://h', timeouts: 30}}", "1: backends.a.timeouts: should be a mapping; for example timeouts: {connect: 5}"),
    ("inspector: yes", "1: inspector: should be a mapping; for example inspector: {enabled: true}"),
    ("tracing: true", "1: tracing: should be a mapping, not true; for example tracing: {enabled: true}"),
    ("tools: {mcp: {servers: {a: {url: 'http://h', headers: x}}}}", "1: tools.mcp.servers.a.headers: should be a mapping"),
    ("auth: [sk-1]", "1: auth: should be a mapping, not a list; for example auth: {keys: [{name: ci, key: \"${CI_KEY}\"}]}"),
    ("auth: {keys: sk-1}", "1: auth.keys: should be a list; write keys: [ … ], or one `- entry` per line"),
    ("auth: {keys: [1234]}", "1: auth.keys[0]: should be a mapping; for example {name: ci, key: \"${CI_KEY}\"}"),
    ("server: {tls: true}", "1: server.tls: should be a mapping, not true; for example tls: {certificate: tls/fullchain.pem, key: tls/key.pem}"),
    # Missing and unknown keys
    ("backends:\n  a:\n    kind: ollama\n", "2: backends.a.url: is missing; for example url: http://127.0.0.1:8000"),
    ("auth:\n  keys:\n    - key: abc\n", "3: auth.keys[0].name: is missing; for example name: ci"),
    ("backend: {a: {url: 'http://h'}}\nmodels: {q: }", f"1: backend: unknown key; did you mean 'backends'? {SECTIONS}"),
    ("Server: {port: 1}", f"1: Server: unknown key; did you mean 'server'? {SECTIONS}"),
    ("open: yes", "1: open: unknown key; it belongs to another section: auth.open, metrics.open"),
    ("port: 8900\n", "1: port: unknown key; it belongs to another section: server.port"),
    (GPU + "models: {q: {kind: vllm}}", "2: models.q.kind: unknown key; it belongs to another section: backends.NAME.kind"),
    ("weight: 1\n", "1: weight: unknown key; it belongs to another section: models.NAME.backends[].weight"),
    # Values
    ("backends: {a: {kind: Ollama, url: 'http://h'}}", f"1: backends.a.kind: unknown value 'Ollama'; did you mean 'ollama'? {ONE_OF_THE_KINDS}"),
    ("backends: {a: {kind: llama.cpp, url: 'http://h'}}", f"1: backends.a.kind: unknown value 'llama.cpp'; did you mean 'llamacpp'? {ONE_OF_THE_KINDS}"),
    ("backends: {a: {kind: tgi, url: 'http://h'}}", f"1: backends.a.kind: unknown value 'tgi'; {ONE_OF_THE_KINDS}"),
    ("backends: {a: {kind: [ollama], url: 'http://h'}}", f"1: backends.a.kind: should be one word, not a list; {ONE_OF_THE_KINDS}"),
    ("backends: {a: {kind: {b: c}, url: 'http://h'}}", f"1: backends.a.kind: should be one word, not a mapping; {ONE_OF_THE_KINDS}"),
    (f"backends: {{a: {{kind: {'x' * 70}, url: 'http://h'}}}}", f"1: backends.a.kind: unknown value '{'x' * 64}…'; {ONE_OF_THE_KINDS}"),
    (GPU + "models: {q: {thought: true}}", "2: models.q.thought: unknown value true; one of: 'auto', 'open' or 'closed'"),
    ("recording: {mode: false}", "1: recording.mode: unknown value false; did you mean 'off'? one of: 'off', 'errors', 'sample', 'header' or 'all'"),
    ("auth: {keys: [{name: a, key: b, scopes: [Admin]}]}", "1: auth.keys[0].scopes[0]: unknown value 'Admin'; did you mean 'admin'? one of: 'inference' or 'admin'"),
    ("auth: {open: maybe}", "1: auth.open: should be true or false, not 'maybe'"),
    ("auth: {keys: [{name: a, key: b, priority: 1}]}", "1: auth.keys[0].priority: unknown value 1; one of: 'high', 'normal' or 'low'"),
    ("stream: {grace_seconds: 10s}", "1: stream.grace_seconds: should be a number without a unit, not '10s'"),
    ("limits: {body_bytes: 32MB}", "1: limits.body_bytes: should be a whole number without a unit, not '32MB'"),
    ("server: {port: " + "9" * 5000 + "}", "1: server.port: should be a whole number"),
    ("limits: {body_bytes: '" + "9" * 5000 + "'}", "1: limits.body_bytes: should be a smaller number"),
    ("server: {host: '127.0.0.1:8900'}", "1: server.host: should be an address without a port, like 127.0.0.1; put the port into server.port"),
    ("server: {host: 5}", "1: server.host: should be a string; write it in quotes"),
    ("server: {host: [a]}", "1: server.host: should be a string, not a list"),
    ("server: {forwarded_allow_ips: ['10.0.0.1/8']}", "1: server.forwarded_allow_ips[0]: not a network like 10.1.0.0/16 or an address like 10.1.2.3; did you mean 10.0.0.0/8?"),
    ("server: {forwarded_allow_ips: ['*']}", "1: server.forwarded_allow_ips[0]: not a network like 10.1.0.0/16 or an address like 10.1.2.3"),
    # URLs
    ("backends: {a: {url: 'http://127.0.0.1:8000/v1/chat/completions'}}", "1: backends.a.url: " + ROOT.format("/v1/chat/completions")),
    ("backends: {a: {url: 'http://127.0.0.1:8000/v1/models/'}}", "1: backends.a.url: " + ROOT.format("/v1/models/")),
    ("backends: {a: {url: 'https://z.test/v4/chat/completions'}}", "1: backends.a.url: should be the root URL of the server without /chat/completions, like https://z.test/v4"),
    ("backends: {a: {url: 'https://z.test/v4/ai/v1/models/'}}", "1: backends.a.url: should be the root URL of the server without /models/, like https://z.test/v4/ai/v1"),
    ("backends: {a: {kind: ollama, url: 'http://127.0.0.1:8000/api/chat'}}", "1: backends.a.url: " + ROOT.format("/api/chat")),
    ("backends: {a: {kind: ollama, url: 'http://127.0.0.1:11434/api'}}", "1: backends.a: url should be the root URL of Ollama without /api, like http://127.0.0.1:11434"),
    ("backends: {a: {url: 'http://127.0.0.1:8900'}}", "1: backends.a.url: " + OWN.format(8900)),
    ("backends: {a: {url: 'http://localhost:8900/v1'}}", "1: backends.a.url: " + OWN.format(8900)),
    ("server: {host: 10.0.0.5, port: 80}\nauth: {open: true}\nbackends: {a: {url: 'http://10.0.0.5'}}", "3: backends.a.url: " + OWN.format(80)),
    ("backends: {a: {url: '127.0.0.1:8000'}}", f"1: backends.a.url: {LIKE}"),
    ("backends: {a: {url: '$LOCAL_URL'}}", f"1: backends.a.url: {LIKE}; a variable needs braces, like ${{NAME}}"),
    ("backends: {a: {url: '${LOCAL_URL}'}}", "1: backends.a.url: the variable LOCAL_URL is not set; set it, or write ${LOCAL_URL:-default}"),
    ("auth: {keys: ['${KEY}']}", "1: auth.keys[0]: the variable KEY is not set; set it, or write ${KEY:-default}"),
    ("auth: {keys: ['${file:key}']}", "1: auth.keys[0]: the file key cannot be read: files are not available here"),
    ("backends: {a: {url: 'http://127.0.0.1:abc'}}", "1: backends.a.url: the port should be a number from 1 to 65535, like http://127.0.0.1:8000"),
    ("backends: {a: {url: 'http://127.0.0.1:0'}}", "1: backends.a.url: the port should be a number from 1 to 65535, like http://127.0.0.1:8000"),
    ("backends: {a: {url: 'http://[::1:8000'}}", "1: backends.a.url: not a URL, like http://127.0.0.1:8000; an IPv6 address needs brackets: http://[::1]:8000"),
    ("store: {url: ./gateway.db}", "1: store.url: should start with sqlite:// or postgresql://, like sqlite:///./gateway.db or postgresql://user@host/database"),
    ("limits: {url: 'redis://h:abc'}", "1: limits.url: should start with redis:// or rediss:// and name a host, like redis://127.0.0.1:6379/0"),
    # Names of other sections
    ("models: {q: }", "1: models.q: names no backend; add a backend to backends first"),
    ("backends: {a: {url: 'http://h'}, b: {url: 'http://i'}}\nmodels: {q: }", "2: models.q: names no backend; add backends: […], one of: a, b"),
    (GPU + "models: {q: {format: Hermes_JSON}}", "2: models.q.format: unknown format 'Hermes_JSON'; did you mean 'hermes_json'? one of: auto, native, hermes_json"),
]  # fmt: skip


def faults(text):
    with pytest.raises(ConfigError) as caught:
        parse(text, "g", {}, ("auto", "native", "hermes_json"))
    return [str(fault).removeprefix("g:") for fault in caught.value.faults]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_config_mistake_has_one_message_that_says_what_to_do(text, message):
    assert faults(text) == [message]


def test_config_may_name_another_gateway():
    for server, url in [
        ("{port: 0}", "http://127.0.0.1:8900"),
        ("{host: 10.0.0.5}\nauth: {open: true}", "http://127.0.0.1:8900"),
        ("{}", "http://10.0.0.5:8900"),
        ("{}", "https://127.0.0.1"),
    ]:
        assert parse(f"server: {server}\nbackends: {{a: {{url: '{url}'}}}}", "g", {}, ()).backends["a"].url == url


def test_config_examples_of_messages_are_valid():
    settings = {**explanation._EXAMPLES}
    whole = [settings[key] for key in ("", "auth", "backends")] + [GPU + settings["models"]]
    servers = f"tools: {{mcp: {{{settings['tools.mcp.servers']}}}}}"
    for text in [*whole, servers]:
        build_config(read_document(text, "g", {"CI_KEY": "k"}), format_names())
    for path, text in settings.items():
        assert not read_document(text, "g", {"CI_KEY": "k"}).faults, path


@pytest.mark.parametrize("text", ["", "\n", "# backends:\n  # more\n"])
def test_config_file_without_content_is_a_mistake(tmp_path, text):
    file = tmp_path / "gateway.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        ConfigSource(file).read()
    assert str(caught.value) == f"{file}: is empty; list your model servers, {BACKENDS}"
