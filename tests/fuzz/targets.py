"""All that is fuzzed, by name, and which module has it: no more is loaded, and watched, than is wanted."""

from importlib import import_module

from fuzz.target import Target

_MODULES = {
    "framing": ("framing",),
    "text": ("formats",),
    "decoding": ("chunks", "lines", "whole", "services"),
    "requests": ("chat", "completions", "responses", "items", "messages", "embeddings", "rerank", "tokens"),
    "websocket": ("websocket",),
    "configuration": ("config",),
}
NAMES = tuple(name for names in _MODULES.values() for name in names)
PLANTED = "planted"  # has a fault, that a fuzzer has to find
_PLACES = {name: module for module, names in _MODULES.items() for name in names} | {PLANTED: "framing"}


def find(names: str) -> Target:
    """The target of a name; of several, with commas between them, one whose inputs begin with a byte that chooses."""
    found = [import_module(f"fuzz.{_PLACES[name]}").TARGETS[name] for name in names.split(",")]
    return found[0] if len(found) == 1 else _any_of(found)


def _any_of(targets):
    def chosen(data):
        return targets[data[0] % len(targets)]

    def check(data):
        if data:
            chosen(data).check(data[1:])

    def mutated(data, random):
        target = chosen(data) if data else None
        return data[:1] + target.mutated(data[1:], random) if target and target.mutated else data

    return Target(
        check,
        lambda: (bytes([place]) + seed for place, target in enumerate(targets) for seed in target.seeds()),
        lambda: sorted({word for target in targets for word in target.words()}),
        mutated,
    )
