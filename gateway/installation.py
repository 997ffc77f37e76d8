"""Name the command that adds packages to the environment of this gateway."""

import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from gateway.config import Config

IMAGE = "docker build --tag gateway ."


def install_command(*arguments: str, image: str = IMAGE) -> str:
    """Return the shell command that installs packages for this gateway.

    arguments: packages and options, which pip and uv share.
    image: the text where no command can install packages: in a container image.
    """
    installer = find_installer()
    return " ".join([*installer, *map(shlex.quote, arguments)]) if installer else image


def find_installer(prefix: str = sys.prefix, package: str = "gateway", pip: str = "pip") -> list[str]:
    """Return the beginning of a command that installs packages; empty if the gateway is not installed as a package.

    prefix: the directory of the environment.
    package, pip: the names of this package and of pip's.
    """
    try:
        distribution(package)
    except PackageNotFoundError:
        return []
    if Path(prefix, "pipx_metadata.json").is_file():
        return ["pipx", "runpip", package, "install"]
    if find_spec(pip) is None:  # an environment of uv
        return ["uv", "pip", "install", "--python", shlex.quote(sys.executable)]
    return [shlex.quote(sys.executable), "-m", "pip", "install"]


def missing_extras(config: Config) -> Iterator[tuple[str, str]]:
    """Yield each key of a configuration whose packages are not installed, with the command that installs them."""
    tools = config.tools
    wanted = {
        "tools.mcp": ("mcp", "mcp", tools.mcp.servers or tools.mcp.hosts),
        "tools.web_search.pages": ("html_to_markdown", "web", tools.web_search.pages.fetch),
        "tracing": ("opentelemetry", "otel", config.tracing.enabled),
    }
    for key, (package, extra, is_used) in wanted.items():
        if is_used and find_spec(package) is None:
            yield key, install_command(f"gateway[{extra}]")
