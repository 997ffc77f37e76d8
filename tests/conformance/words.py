"""What the page says around its tables."""

HEAD = """\
# Conformance

The page lists the features that hold for each engine, model and client, from recordings and live runs.  `make conformance` makes
it from dated results, part by part (`tests/conformance/results`).  `make conformance ARGS="wire"` runs one part again.

| | |
|---|---|
| 5/5 | So many of all cases hold: the answer means the same, whole and streamed, as everywhere. |
| emulated | It holds, because the gateway does the server's part: `emulated:…` in `x-gateway-warnings`. |
| listed | There is an answer without it, and an entry in `x-gateway-warnings` reports that. |
| refused | An honest error reports that, and the reason. |
| left | There is an answer. A template, or a deaf server, leaves a part out in silence, so no warning reports it. |
| untold | The server does not tell, so the gateway does not either. |
| fails | It is not as it has to be. |

[backends.md](backends.md) has the outcome of each field at each kind of server, also of kinds that are not here.
[formats.md](formats.md) has the formats of models.
"""
ENGINES = """\
## Engines

The cases of `tests/wire`, each a request that goes over a real socket through the gateway to a running server.  The model is
SmolLM2-135M with the demo's chat template on all of them, so only the engine differs.  None was started for embeddings or ranks.
Cases without a meaning for a server are not counted there.  Below the tables are, for each, the warnings of these cases, by
their codes, and the messages of cases that do not hold.
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
    "anthropic": (
        "Messages API",
        "no Anthropic, but its API as a server made for the tests, strict about requests, before a llama.cpp",
    ),
    "vllm": ("vLLM", "vLLM on the CPU with `--tool-call-parser hermes --reasoning-parser qwen3`"),
    "vllm_raw": ("vLLM, raw", "vLLM on the CPU without parsers: the gateway parses"),
    "transformers": ("transformers", "`transformers serve` on the CPU, which parses nothing: the gateway does"),
}
CLIENTS = """\
## Clients

Each client runs in an environment of its own, against the gateway in front of two llama.cpp with SmolLM2-135M.  One parses
thoughts and calls itself, the gateway parses the text of the other.  Agents also run in front of a script that stands for the
model.  So many of all checks of `tests/clients` passed on {date}, with {versions}.
"""
RECORDED = """\
## Recordings

The bytes that servers once sent, in `tests/recordings`.  So many of all answers, of those with thoughts, calls and counts of the
server's own, and of all failures, came to the right result on {date}.  Tests prove the same for pieces of any size.
"""
