"""What an operator writes: a Config, or a ConfigError that says in which line what is wrong."""

from fuzz.target import Input, Target, begun
from gateway import config, formats
from gateway.config.schema import Config
from support.paths import ROOT

FILE = ROOT / "config/gateway.yaml"
_FORMATS = formats.format_names()
_ENVIRONMENT = {"SET": "value", "EMPTY": "", "NUMBER": "5", "ODD": "a: [b\n${SET}"}
WORDS = (
    "${SET}", "${EMPTY:-x}", "$${", "<<: ", "&a ", "*a", "!!int ", "!!binary ", "!!set ", "? ", "- ", ": ", "|\n", ">-\n", "---\n",
    "...\n", "{", "}", "[", "]", "\t", "%YAML 1.1\n", "0x1F", "1e400", ".nan", "-.inf", "1_000", "0o7", "2001-01-01", "~",
)  # fmt: skip


def check(data):
    given = Input.of(data)
    flags = given.choose(0, (None, {"port": 9000, "host": None}))
    try:
        known = config.parse(given.text, "f.yaml", _ENVIRONMENT, _FORMATS, flags)
    except config.ConfigError as error:
        assert error.faults and all(fault.text and str(fault) for fault in error.faults)
        assert all(fault.line is None or 1 <= fault.line <= _lines(given.text) for fault in error.faults)
    else:
        assert config.dump_effective(known)


def _lines(text):
    """As YAML counts them, and one behind the end."""
    return len(text.splitlines()) + 1


def seeds():
    whole = FILE.read_text("utf-8")
    yield begun(whole)
    yield begun("\n".join(line for line in whole.replace("\n#", "\n").splitlines() if not line.startswith(" ")))
    for text in _SMALL:
        yield begun(text, sizes=(0, 0))


_SMALL = (
    "backends: {a: {url: http://127.0.0.1:1}}\nmodels: {m: {backends: [a], fallback: [n]}, n: {aliases: [o]}}\n",
    "server: {host: 0.0.0.0, port: 80}\nauth: {keys: [{name: a, key: '${SET}', limits: {requests_per_minute: 5}}]}\n",
    "a: &a {b: c}\nb: {<<: *a, d: *a}\nc: &c [*a, *a]\n",
    "models:\n  m:\n    format: hermes_json\n    thought: open\n    reasoning: {field: both}\n",
    "store: {url: 'postgresql://u:p@h/db', ttl_days: 3, sealing_keys: [aa]}\nlimits: {body_bytes: 1}\n",
)


def words():
    """All keys that there are."""
    return (*WORDS, *sorted({*_keys(Config.model_json_schema(by_alias=True))}))


def _keys(schema):
    if isinstance(schema, dict):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        for value in schema.values():
            yield from _keys(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _keys(value)


TARGETS = {"config": Target(check, seeds, words)}
