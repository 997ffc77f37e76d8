"""Define the compared programs as data: installation, start and abilities."""

import shutil
import subprocess
import sys
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from bench.rounds import CONFIG, GATEWAY, Program
from bench.traffic import KEY, Traffic
from gateway import __version__

HOME = Path(__file__).parents[2] / "build" / "peers"  # with a folder per program
GATEWAY_NAME, TWO_WORKERS, SMG, LITELLM = "gateway", "two workers", "smg", "LiteLLM"

_INSTALL_SECONDS = 900
_PIP = "-m pip install --quiet --disable-pip-version-check"
_NGINX = shutil.which("nginx")


class Peer(Struct, frozen=True):
    """A program that forwards chat completions.

    version: "": the program prints it for -v.
    slow: the divisor for the number of requests where only their cost is measured.
    """

    name: str
    version: str
    program: Program
    install: tuple[str, ...] = ()  # run in the folder of the program
    can: frozenset[str] = frozenset({"chat"})
    headers: tuple[tuple[str, str], ...] = ()
    slow: int = 1

    def traffic_for(self, traffic: Traffic, mock: int) -> Traffic:
        """Return the traffic for this program, with the mock on this port."""
        headers = tuple((name, value.format(mock=mock)) for name, value in self.headers)
        return replace(traffic, headers=headers, requests=max(traffic.streams, traffic.requests // self.slow))


def prepare(peer: Peer, home: Path = HOME) -> str:
    """Install the program unless it is there, and return its version."""
    folder = home / peer.name
    done, wanted = folder / "installed", "\n".join(peer.install)
    if peer.install and (not done.exists() or done.read_text() != wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for command in peer.install:
            _run(command, folder)
        done.write_text(wanted)
    return peer.version or _printed_version(peer.program.command.split()[0])


def _run(command: str, folder: Path) -> None:
    with (folder / "install.log").open("ab") as log:
        subprocess.run(command, shell=True, cwd=folder, stdout=log, stderr=log, check=True, timeout=_INSTALL_SECONDS)


def _printed_version(program: str) -> str:
    done = subprocess.run([program, "-v"], capture_output=True, text=True, check=True, timeout=10)
    return (done.stdout + done.stderr).rpartition("/")[2].strip()


def _gateway(name: str, workers: int, can: set[str]) -> Peer:
    keys = f"auth: {{{{keys: [{{{{name: bench, key: {KEY}}}}}]}}}}\n"
    config = CONFIG.replace("workers: 1", f"workers: {workers}") + keys
    return Peer(name, __version__, Program(GATEWAY, config), can=frozenset(can))


_LITELLM = """\
model_list:
  - model_name: mock
    litellm_params: {{model: lm_studio/mock, api_base: "http://127.0.0.1:{mock}/v1", api_key: none}}
litellm_settings: {{telemetry: false}}
"""
_NGINX_CONFIG = """\
daemon off;
worker_processes 1;
worker_rlimit_nofile 16384;
pid {folder}/{port}.pid;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {folder}/{port}.body;
    proxy_temp_path {folder}/{port}.proxy;
    fastcgi_temp_path {folder}/{port}.fastcgi;
    uwsgi_temp_path {folder}/{port}.uwsgi;
    scgi_temp_path {folder}/{port}.scgi;
    upstream mock {{ server 127.0.0.1:{mock}; keepalive 64; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://mock;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""

PEERS = (
    _gateway(GATEWAY_NAME, 1, {"chat", "formats", "responses", "streams", "load"}),
    _gateway(TWO_WORKERS, 2, {"workers"}),
    Peer(
        SMG,
        "1.13.0",
        Program(
            f"{HOME}/smg/bin/smg launch --host 127.0.0.1 --port {{port}} --worker-urls http://127.0.0.1:{{mock}}"
            " --prometheus-port {spare} --log-level warn",
        ),
        (f"{sys.executable} -m venv .", f"bin/python {_PIP} smg==1.13.0"),
        frozenset({"chat", "load"}),
    ),
    Peer(
        LITELLM,
        "1.100.2",
        Program(
            f"env LITELLM_MODE=PRODUCTION LITELLM_LOG=ERROR {HOME}/LiteLLM/bin/litellm --config {{config}}"
            " --host 127.0.0.1 --port {port} --num_workers 1 --telemetry False",
            _LITELLM,
            "/health/liveliness",
            90.0,
        ),
        (f"{sys.executable} -m venv .", f"bin/python {_PIP} 'litellm[proxy]==1.100.2'"),
        frozenset({"chat", "responses"}),
        slow=15,
    ),
    Peer(
        "Portkey",
        "1.15.2",
        Program(
            f"node {HOME}/Portkey/node_modules/@portkey-ai/gateway/build/start-server.js --port={{port}} --headless",
            ready="/",
        ),
        (
            # A later server of hono passes headers that it cannot change, and then no stream arrives.
            """echo '{"overrides": {"@hono/node-server": "1.13.8"}}' > package.json""",
            "npm install --no-audit --no-fund --prefix . @portkey-ai/gateway@1.15.2",
        ),
        headers=(
            ("x-portkey-provider", "openai"),
            ("x-portkey-custom-host", "http://127.0.0.1:{mock}/v1"),
        ),
        slow=5,
    ),
    Peer(
        "nginx",
        "",
        Program(f"{_NGINX or HOME / 'nginx/usr/sbin/nginx'} -e stderr -c {{config}}", _NGINX_CONFIG),
        () if _NGINX else ("apt-get download nginx", "dpkg -x nginx_*.deb ."),
    ),
)
