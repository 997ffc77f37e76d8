"""The list of models as Codex reads it (`GET /v1/models?client_version=…`): its `ModelInfo`, with all that it requires.

What it says of a model is what Codex takes for one that it does not know, and what is known better here.
"""

from collections.abc import Set
from typing import Any

# Codex has instructions for the models it knows, and takes these for the others.
_INSTRUCTIONS = """\
You are a coding agent in a terminal, at work with a user in their workspace.

- Find out before you act: read the files that matter, and search for what you need to know. Do not guess.
- Go on until the task is done. Ask only where you cannot decide, or where something could be lost.
- Make the smallest change that solves the problem at its root, in the style of the code around it. Leave alone what \
has nothing to do with it, and never undo what the user has changed.
- Use the tools that you are offered, with exactly the arguments they describe. Read their output before you go on.
- Run the tests, or whatever shows that your work is right, where you can. Say honestly what you could not check.
- Follow the instructions of AGENTS.md files for all files below the directory they are in.
- Be brief. Say at the end what you changed and where, and what is left to do.
"""


def codex_model(model: str, place: int, window: int | None, abilities: Set[str] | None) -> dict[str, Any]:
    """`place`: in the list, from 0; the first is what Codex offers first."""
    sees = abilities is None or "vision" in abilities
    return {
        "slug": model,
        "display_name": model,
        "description": None,
        "supported_reasoning_levels": [],
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": True,
        "priority": place,
        "availability_nux": None,
        "upgrade": None,
        "base_instructions": _INSTRUCTIONS,
        "supports_reasoning_summaries": False,
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": None,
        "truncation_policy": {"mode": "bytes", "limit": 10_000},
        "supports_parallel_tool_calls": True,
        "context_window": window,
        "experimental_supported_tools": [],
        "input_modalities": ["text", "image"] if sees else ["text"],
    }
