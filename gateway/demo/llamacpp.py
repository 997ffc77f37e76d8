"""The demo's child process: llama.cpp's own server in the foreground.

Usage: `python -m gateway.demo.llamacpp --model FILE.gguf --alias NAME …`; the options have the names of llama-server's.
The process runs until its standard input closes, so it does not outlive the process at the other end.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import xllamacpp

_POOLING = {
    "none": xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_NONE,
    "mean": xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN,
}
_REASONING = {
    "none": xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_NONE,
    "deepseek": xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_DEEPSEEK,
}


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="gateway.demo.llamacpp", description="Run a llama.cpp server in the foreground."
    )
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; default: a free one")
    parser.add_argument("--alias", required=True, help="model name for clients")
    parser.add_argument("--chat-template-file", type=Path, help="Jinja template; default: the model's own")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ctx-size", type=int, default=16384, help="context size in tokens, shared by the slots")
    parser.add_argument("--parallel", type=int, default=4, help="number of slots (concurrent responses)")
    parser.add_argument("--predict", type=int, default=512, help="default token limit of a response")
    parser.add_argument("--temp", type=float, default=0.8, help="default temperature")
    parser.add_argument("--skip-chat-parsing", action="store_true", help="leave tool calls in the content")
    parser.add_argument("--reasoning-format", choices=list(_REASONING), default="deepseek")
    parser.add_argument("--no-jinja", action="store_true", help="use llama.cpp's built-in templates")
    parser.add_argument("--embeddings", action="store_true", help="serve embeddings as well")
    parser.add_argument("--pooling", choices=list(_POOLING), default="mean", help="of the embeddings")
    return parser.parse_args(argv)


def server_params(chosen: argparse.Namespace) -> xllamacpp.CommonParams:
    """Return the parameters of llama.cpp's server."""
    result = xllamacpp.CommonParams()
    result.model.path = chosen.model
    result.port = chosen.port
    result.model_alias = {chosen.alias}
    if chosen.chat_template_file:
        result.chat_template = chosen.chat_template_file.read_text("utf-8")
    result.cpuparams.n_threads = result.cpuparams_batch.n_threads = chosen.threads
    result.n_ctx = chosen.ctx_size
    result.n_parallel = chosen.parallel
    result.n_predict = chosen.predict  # a model this small may never stop by itself
    result.sampling.temp = chosen.temp
    result.force_pure_content_parser = chosen.skip_chat_parsing
    result.use_jinja = not chosen.no_jinja
    result.reasoning_format = _REASONING[chosen.reasoning_format]
    if chosen.embeddings:
        result.embedding, result.pooling_type = True, _POOLING[chosen.pooling]
    result.endpoint_props = False  # forbids POST /props; GET works all the same
    result.ui = False
    result.verbosity = 1  # errors
    return result


def main(
    argv: Sequence[str] | None = None,
    until: BinaryIO = sys.stdin.buffer,
    leave: Callable[[int], object] = os._exit,
) -> None:
    """Print the URL when the server is ready, and serve until the end of a stream.

    leave: ends the process.  The server's own end waits for ever if it comes when the server has just started.
    """
    server = xllamacpp.Server(server_params(options(argv)))
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    until.read()
    leave(0)
    del server


if __name__ == "__main__":
    main()
