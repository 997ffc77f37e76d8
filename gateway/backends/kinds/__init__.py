"""The kinds of servers, one file each: the features of a kind and its rule for each request field."""

from collections.abc import Mapping
from types import MappingProxyType

from gateway.backends.field_rules import OPENAI
from gateway.backends.kind import Kind
from gateway.backends.kinds import anthropic, llamacpp, lmstudio, ollama, sglang, transformers, vllm

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "openai": Kind(fields=OPENAI, forwards="all", parses=True, fetches=True, takes_openings=True),
        "vllm": vllm.KIND,
        "llamacpp": llamacpp.KIND,
        "ollama": ollama.KIND,
        "lmstudio": lmstudio.KIND,
        "sglang": sglang.KIND,
        "transformers": transformers.KIND,
        "anthropic": anthropic.KIND,
    }
)
