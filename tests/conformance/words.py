"""What the page says around its tables."""

HEAD = """\
# Conformance

What holds for which engine, model and client, from recordings and live runs.  This page is made by `make conformance`, from
results that are dated, part by part (`tests/conformance/results`); `make conformance ARGS="wire"` runs one part again.

| | |
|---|---|
| 5/5 | So many of all cases hold: what comes means the same, whole and streamed, as everywhere. |
| emulated | It holds, as the gateway does what the server does not: `emulated:…` in `x-gateway-warnings`. |
| listed | There is an answer without it, and an entry in `x-gateway-warnings` that says so. |
| refused | An honest error says that, and why. |
| left | There is an answer; what a template, or a deaf server, leaves out in silence, nobody tells. |
| untold | The server does not tell, so the gateway does not either. |
| fails | It is not what it has to be. |

[backends.md](backends.md) has what becomes of each field at each kind of server, also of those that are not here;
[formats.md](formats.md) has what models write.
"""
ENGINES = """\
## Engines

The cases of `tests/wire`, each a question that goes over a real socket through the gateway to a running server.  The model is
SmolLM2-135M with the demo's chat template on all of them, so what differs is the engine; none was started for embeddings or ranks.
What has no meaning for a server is not counted there.  Below the tables is, for each, what these cases found in the ledger, by its
codes, and what was said where one does not hold.
"""
SERVERS = {  # by their names in the tests: how a column is headed, and what it is
    "parsed": ("llama.cpp", "llama.cpp, which parses thoughts and calls"),
    "raw": ("llama.cpp, raw", "llama.cpp with `--skip-chat-parsing --reasoning-format none`: the gateway parses"),
    "without_jinja": ("llama.cpp, no Jinja", "llama.cpp with `--no-jinja`"),
    "prompted": ("llama.cpp, prompted", "llama.cpp with `--no-jinja`; the gateway tells of tools in the prompt"),
    "deaf": (
        "deaf server",
        "a server made for the tests, which chats and takes every field in silence, before a llama.cpp",
    ),
    "ollama": ("Ollama's API", "no real Ollama, but its API as a server made for the tests, before a llama.cpp"),
    "vllm": ("vLLM", "vLLM on the CPU with `--tool-call-parser hermes --reasoning-parser qwen3`"),
    "vllm_raw": ("vLLM, raw", "vLLM on the CPU without parsers: the gateway parses"),
    "transformers": ("transformers", "`transformers serve` on the CPU, which parses nothing: the gateway does"),
}
CLIENTS = """\
## Clients

Each in an environment of its own, against the gateway in front of a llama.cpp that parses thoughts and calls itself, and of one
whose text the gateway parses, both with SmolLM2-135M; agents also in front of a script that stands for the model.  So many of all
checks of `tests/clients` passed on {date}, with {versions}.
"""
RECORDED = """\
## Recordings

The bytes that servers once sent, in `tests/recordings`: so many of all answers, of those with thoughts, calls and counts of the
server's own, and of all failures, came to what they have to on {date}.  That they do so in pieces of any size is tested as well.
"""
