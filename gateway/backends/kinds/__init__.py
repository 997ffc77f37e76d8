"""The kinds of servers, a file each: what a kind is like, and what it makes of each field of a request."""

from collections.abc import Mapping
from types import MappingProxyType

from gateway.backends.field_rules import OPENAI
from gateway.backends.kind import Kind
from gateway.backends.kinds import llamacpp, lmstudio, ollama, sglang, transformers, vllm

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "openai": Kind(fields=OPENAI, forwards="all", parses=True, fetches=True, takes_openings=True),
        "vllm": vllm.KIND,
        "llamacpp": llamacpp.KIND,
        "ollama": ollama.KIND,
        "lmstudio": lmstudio.KIND,
        "sglang": sglang.KIND,
        "transformers": transformers.KIND,
    }
)
