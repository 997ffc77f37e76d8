"""Check the container image, the lock file, compose files, dashboard and alerts: schemas, hardening and agreement with the gateway.

The tests start no container and use no network.
"""

import json
import re
import tomllib

import pytest
from compose_spec import PyCompose
from packaging.requirements import Requirement

from gateway.cli import main
from gateway.cli.healthcheck import HERE
from gateway.config import build_config, read_document
from support.deployment import LABELS, USER, config_of, documents, instructions, named, text_of
from support.paths import ROOT

COMPOSE = ["docker-compose.yml", "deploy/compose/sidecar.yml"]
ALERTS = "deploy/compose/alerts.yml"


# The image


def test_container_image_runs_as_a_number_and_without_a_shell():
    last = instructions(-1)
    said = dict(last)
    names = [name for name, _ in last]
    assert "RUN" not in names and said["USER"] == f"{USER}:{USER}"
    for name in "ENTRYPOINT", "CMD":
        assert isinstance(json.loads(said[name]), list)
    assert json.loads(said["ENTRYPOINT"])[1:] == ["-m", "gateway"]
    assert said["WORKDIR"] == said["VOLUME"] == "/data"
    assert said["EXPOSE"] == HERE[0].rpartition(":")[2]


def test_container_image_health_check_is_a_gateway_command():
    _, _, check = dict(instructions(-1))["HEALTHCHECK"].partition("CMD ")
    *module, command = json.loads(check)
    assert module == json.loads(dict(instructions(-1))["ENTRYPOINT"])
    assert command in [one.name or one.callback.__name__ for one in main.app.registered_commands]


def test_container_image_bases_are_pinned_and_replaceable():
    names = re.findall(r"^FROM \$\{(\w+)\}", text_of("Dockerfile"), re.M)
    pinned = re.findall(r"^ARG (\w+)=\S+@sha256:[0-9a-f]{64}$", text_of("Dockerfile"), re.M)
    assert names == pinned == ["BUILD", "BASE"]


def test_container_image_copies_exactly_the_files_not_ignored():
    kept = {line[1:] for line in text_of(".dockerignore").splitlines() if line.startswith("!")}
    copied = {rest.split()[0] for name, rest in instructions(0) if name == "COPY"}
    assert kept == copied and all((ROOT / path).exists() for path in kept)


def test_lock_file_has_all_dependencies_by_hash_and_no_index():
    text = text_of("deploy/requirements.lock")
    entries = re.split(r"^(?=[a-z])", text, flags=re.M)[1:]
    assert entries and all(re.search(r" \\\n    --hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    locked = [Requirement(entry.partition(" \\")[0]) for entry in entries]
    versions = {one.name: str(one.specifier).removeprefix("==") for one in locked}
    for said in tomllib.loads(text_of("pyproject.toml"))["project"]["dependencies"]:
        wanted = Requirement(said)
        assert wanted.specifier.contains(versions[wanted.name.replace(".", "-")]), f"{said}: make lock"
    assert "://" not in text and "index" not in text


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
        "prometheus": ["metrics"], "grafana": ["metrics"],
    }  # fmt: skip


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


def test_dashboard_names_existing_metrics():
    (scrape,) = documents(text_of("deploy/compose/prometheus.yml"))[0]["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": ["gateway:8900"]}]
    board = json.loads(text_of("deploy/compose/grafana/gateway.json"))
    shown = set().union(*(named(target["expr"]) for panel in board["panels"] for target in panel["targets"]))
    assert shown == LABELS.keys(), "all that there is, and nothing else"
    (sources,) = documents(text_of("deploy/compose/grafana/sources.yml"))
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {sources["datasources"][0]["uid"]}


def test_alerts_name_existing_metrics_and_explain_themselves():
    (rules,) = (group["rules"] for group in documents(text_of(ALERTS))[0]["groups"])
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert named(rule["expr"]) or rule["expr"] == 'up{job="gateway"} == 0'
        assert rule["annotations"].keys() == {"summary", "description"} and rule["labels"]["severity"] and rule["for"]


def test_prometheus_has_its_files_mounted():
    (file,) = documents(text_of("docker-compose.yml"))
    mounted = dict(volume.split(":")[:2] for volume in file["services"]["prometheus"]["volumes"])
    (config,) = documents(text_of("deploy/compose/prometheus.yml"))
    assert [mounted[f"./deploy/compose/{name}"] for name in ("prometheus.yml", *config["rule_files"])] == [
        "/etc/prometheus/prometheus.yml",
        "/etc/prometheus/alerts.yml",
    ]
    assert mounted[f"./{ALERTS}"] == "/etc/prometheus/alerts.yml"
