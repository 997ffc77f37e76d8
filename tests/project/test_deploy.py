"""Check the files for deployment, from the image to the alerts: schemas, hardening and agreement with the gateway.

The tests start no container and use no network.
"""

import json
import re
import tomllib
from configparser import ConfigParser

import pytest
from compose_spec import PyCompose
from packaging.requirements import Requirement

from gateway import __version__, installation
from gateway.cli import main
from gateway.cli.healthcheck import HERE
from gateway.config import build_config, read_document
from support.deployment import LABELS, USER, config_of, documents, expressions, named, stages, text_of
from support.paths import ROOT

COMPOSE = ["docker-compose.yml", "deploy/compose/sidecar.yml"]
UNIT_SWITCHES = [
    "NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "ProtectKernelTunables", "ProtectKernelModules",
    "ProtectKernelLogs", "ProtectControlGroups", "ProtectClock", "ProtectHostname", "RestrictNamespaces",
    "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality",
]  # fmt: skip
ALERTS = "deploy/compose/alerts.yml"


# The image


def test_container_image_runs_as_a_number_and_without_a_shell():
    runtime = stages()["runtime"]
    instructions = dict(runtime)
    assert "RUN" not in instructions and instructions["USER"] == f"{USER}:{USER}"
    for name in "ENTRYPOINT", "CMD":
        assert isinstance(json.loads(instructions[name]), list)
    assert json.loads(instructions["ENTRYPOINT"])[1:] == ["-m", "gateway"]
    assert instructions["WORKDIR"] == instructions["VOLUME"] == "/data"
    assert instructions["EXPOSE"] == HERE[0].rpartition(":")[2]


def test_container_image_health_check_is_a_gateway_command():
    instructions = dict(stages()["runtime"])
    *module, command = json.loads(instructions["HEALTHCHECK"].partition("CMD ")[2])
    assert module == json.loads(instructions["ENTRYPOINT"])
    assert command in [one.name or one.callback.__name__ for one in main.app.registered_commands]


def test_container_image_bases_are_pinned_and_replaceable():
    names = re.findall(r"^FROM \$\{(\w+)\}", text_of("Dockerfile"), re.M)
    pinned = re.findall(r"^ARG (\w+)=\S+@sha256:[0-9a-f]{64}$", text_of("Dockerfile"), re.M)
    assert names == pinned == ["BUILD", "BASE"]


def test_container_image_copies_exactly_the_files_not_ignored():
    kept = {line[1:] for line in text_of(".dockerignore").splitlines() if line.startswith("!")}
    lines = [rest.split() for stage in stages().values() for name, rest in stage if name == "COPY"]
    copied = {source for source, *_ in lines if not source.startswith("--from=")}
    assert kept == copied and all((ROOT / path).exists() for path in kept)


def test_container_image_has_all_extras_and_a_slim_target_without_them():
    built = stages()
    assert [*built][-2:] == ["slim", ""]
    for name, folder, lock in ("slim", "build-slim", "requirements.lock"), ("", "build", "requirements-all.lock"):
        assert built[name] == [
            ("FROM", f"runtime AS {name}".removesuffix(" AS ")),
            ("COPY", f"--from={folder} /app/lib /app/lib"),
        ]
        assert ("RUN", f"sh /install_packages.sh /{lock}") in built[folder]
    assert "--target" not in installation.IMAGE and installation.IMAGE.startswith("docker build ")


def test_container_image_labels_have_the_version_and_the_description_of_the_project():
    labels = dict(re.findall(r'image\.(\w+)=("[^"]+"|\S+)', dict(stages()["runtime"])["LABEL"]))
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    assert labels["version"] == __version__
    assert labels["title"] == project["name"] and project["description"].startswith(labels["description"].strip('"'))


@pytest.mark.parametrize(
    ("file", "extras"), [("requirements.lock", []), ("requirements-all.lock", ["mcp", "otel", "web"])]
)
def test_lock_file_has_all_dependencies_by_hash_and_no_index(file, extras):
    text = text_of(f"deploy/{file}")
    entries = re.split(r"^(?=[a-z])", text, flags=re.M)[1:]
    assert entries and all(re.search(r" \\\n    --hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    locked = [Requirement(entry.partition(" \\")[0]) for entry in entries]
    versions = {one.name: str(one.specifier).removeprefix("==") for one in locked}
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    optional = project["optional-dependencies"]
    assert optional["all"] == ["gateway[mcp,otel,web]"]
    for line in [*project["dependencies"], *(one for extra in extras for one in optional[extra])]:
        wanted = Requirement(line)
        assert wanted.specifier.contains(versions[wanted.name.replace(".", "-")]), f"{line}: make lock"
    assert "://" not in text and "index" not in text


# systemd


def test_systemd_unit_runs_the_gateway_confined_with_time_to_drain():
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(text_of("deploy/systemd/gateway.service"))
    service = dict(unit["Service"])
    start, *flags = service["ExecStart"].split()[1:]
    assert start == "serve" and start in [one.name or one.callback.__name__ for one in main.app.registered_commands]
    assert flags == ["--config", "/etc/gateway/gateway.yaml"] and service["DynamicUser"] == "yes"
    assert {service[name] for name in UNIT_SWITCHES} == {"yes"}
    assert service["ProtectSystem"] == "strict" and service["CapabilityBoundingSet"] == ""
    drain = build_config(read_document("", "none", {}), []).server.drain_seconds
    assert int(service["TimeoutStopSec"]) > drain and service["ExecReload"] == "/bin/kill -HUP $MAINPID"


# Compose


@pytest.mark.parametrize("path", COMPOSE)
def test_compose_files_are_valid(path):
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text_of(path)).replace("host-gateway", "172.17.0.1")  # an address to it
    PyCompose.from_yaml(text)
    with pytest.raises(ValueError, match="servicess"):
        PyCompose.from_yaml(f"{text}\nservicess: {{}}\n")


def test_compose_file_has_a_profile_for_each_neighbor():
    (file,) = documents(text_of("docker-compose.yml"))
    profiles = {name: one.get("profiles") for name, one in file["services"].items()}
    assert profiles == {
        "gateway": None, "ollama": ["ollama"], "llamacpp": ["llamacpp"], "vllm": ["vllm"], "postgresql": ["postgresql"],
        "open-webui": ["open-webui"], "prometheus": ["metrics"], "grafana": ["metrics"],
    }  # fmt: skip


def test_compose_open_webui_uses_the_gateway_as_its_launcher_says():
    (file,) = documents(text_of("docker-compose.yml"))
    page = file["services"]["open-webui"]
    wanted = tomllib.loads(text_of("gateway/launch/clients/open-webui.toml"))["environment"]
    port = dict(stages()["runtime"])["EXPOSE"]
    assert page["environment"]["OPENAI_API_BASE_URL"] == f"http://gateway:{port}/v1"
    assert page["environment"]["ENABLE_OLLAMA_API"] == wanted["ENABLE_OLLAMA_API"]
    assert wanted.keys() == {*page["environment"], *re.findall(r"(\w+)=", page["entrypoint"][-1])}
    assert f"/run/secrets/{page['secrets'][0]}" in page["entrypoint"][-1] and "gateway_key" in page["secrets"]


@pytest.mark.parametrize("path", COMPOSE)
def test_compose_gateway_writes_only_its_volume_and_has_time_to_drain(path):
    (file,) = documents(text_of(path))
    gateway = file["services"]["gateway"]
    assert gateway["read_only"] and gateway["cap_drop"] == ["ALL"]
    assert gateway["security_opt"] == ["no-new-privileges:true"]
    assert [one for one in gateway["volumes"] if not one.endswith(":ro")] == ["gateway:/data"]
    assert (
        int(gateway["stop_grace_period"].removesuffix("s"))
        > build_config(read_document("", "none", {}), []).server.drain_seconds
    )


@pytest.mark.parametrize("path", COMPOSE)
def test_compose_ports_are_published_on_loopback(path):
    (file,) = documents(text_of(path))
    ports = [port for one in file["services"].values() for port in one.get("ports", ())]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)
    assert file["services"]["gateway"].get("network_mode", "service:vllm") == "service:vllm"


@pytest.mark.parametrize(
    ("path", "config"),
    [
        ("docker-compose.yml", "config/compose.yaml"),
        ("docker-compose.yml", "config/compose-postgresql.yaml"),
        ("deploy/compose/sidecar.yml", "config/compose-sidecar.yaml"),
    ],
)
def test_compose_configurations_have_their_secrets_and_backends(path, config):
    (file,) = documents(text_of(path))
    settings, named = config_of(text_of(config))
    mine = file["services"]["gateway"]
    assert named <= {f"/run/secrets/{name}" for name in mine["secrets"]}
    assert all(set(one.get("secrets", ())) <= set(file["secrets"]) for one in file["services"].values())
    hosts = {re.split("[/:]+", one.url)[1] for one in settings.backends.values()}
    near = {"127.0.0.1"} if "network_mode" in mine else {"host.docker.internal"}
    assert hosts - near <= set(file["services"])
    assert re.split("[/:@]+", settings.store.url.get_secret_value())[-2] in {"data", "postgresql"}


BOARD = json.loads(text_of("deploy/compose/grafana/gateway.json"))


def test_dashboard_names_existing_metrics_and_labels():
    (scrape,) = documents(text_of("deploy/compose/prometheus.yml"))[0]["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": ["gateway:8900"]}]
    shown = set().union(*(named(expr, legend) for expr, legend in expressions(BOARD)))
    assert shown == LABELS.keys(), "all that there is, and nothing else"
    (sources,) = documents(text_of("deploy/compose/grafana/sources.yml"))
    used = {panel["datasource"]["uid"] for panel in BOARD["panels"] if "targets" in panel}
    assert used == {sources["datasources"][0]["uid"]}


def test_dashboard_variables_are_labels_and_used():
    variables = {one["name"]: one["query"] for one in BOARD["templating"]["list"]}
    for name in "model", "backend", "key":
        assert variables[name] == f"label_values(gateway_requests_total, {name})"
        assert name in LABELS["gateway_requests_total"]
    used = {name for expr, _ in expressions(BOARD) for name in re.findall(r"\$(\w+)", expr)}
    assert used == variables.keys() | {"__range"}


def test_dashboard_panels_do_not_overlap():
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    cells = [
        (x, y)
        for one in places
        for x in range(one["x"], one["x"] + one["w"])
        for y in range(one["y"], one["y"] + one["h"])
    ]
    assert len({*cells}) == len(cells) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(places)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        ("sum(gateway_requests_totals)", ""),
        ("sum by (format) (gateway_requests_total)", ""),
        ('gateway_requests_total{format="auto"}', ""),
        ("summ(gateway_requests_total)", ""),
        ("sum by (model) (gateway_requests_total)", "{{key}}"),
        ("max by (job) (up)", "{{ $labels.instance }}"),
    ],
)
def test_dashboard_check_finds_wrong_names(expr, text):
    with pytest.raises((AssertionError, KeyError)):
        named(expr, text)


def test_alerts_name_existing_metrics_and_explain_themselves():
    (rules,) = (group["rules"] for group in documents(text_of(ALERTS))[0]["groups"])
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert named(rule["expr"], "".join(rule["annotations"].values()))
        assert rule["annotations"].keys() == {"summary", "description"} and rule["labels"]["severity"] and rule["for"]


def test_alerts_are_explained_in_the_docs():
    rules = documents(text_of(ALERTS))[0]["groups"][0]["rules"]
    alerts = re.findall(r"^\| `(Gateway\w+)` \|", text_of("docs/how-to/observe.md"), re.MULTILINE)
    assert alerts == [rule["alert"] for rule in rules]


def test_prometheus_has_its_files_mounted():
    (file,) = documents(text_of("docker-compose.yml"))
    mounted = dict(volume.split(":")[:2] for volume in file["services"]["prometheus"]["volumes"])
    (config,) = documents(text_of("deploy/compose/prometheus.yml"))
    assert [mounted[f"./deploy/compose/{name}"] for name in ("prometheus.yml", *config["rule_files"])] == [
        "/etc/prometheus/prometheus.yml",
        "/etc/prometheus/alerts.yml",
    ]
    assert mounted[f"./{ALERTS}"] == "/etc/prometheus/alerts.yml"
