"""The output of `kustomize build` for deploy/kubernetes. No cluster is needed."""

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, cast

import kubernetes_validate
import pytest
from kubernetes_validate import utils
from temporalio.workflow import ActivityConfig

from everloop.agents.tool import DEFAULT_TIMEOUT
from everloop.workers.settings import parse_arguments
from everloop.workflows import scope
from everloop.workflows.contract.names import MODEL_QUEUE, TOOLS_QUEUE, WORKFLOWS_QUEUE, task_queue_of
from everloop.workflows.contract.tasks import ToolSpec
from tests.support.deploy.manifests import (
    OVERLAYS,
    ROOT,
    Resource,
    environment_of,
    of_kind,
    only_container,
    pod_templates,
    rendered,
    selects,
)

OF_OTHERS = ("keda.sh/", "monitoring.coreos.com/", "temporal.io/")
"""Groups of kinds that operators bring along."""

VERSION = "app.kubernetes.io/version"


def test_all_resources_fit_the_schema_of_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No field is unknown, none is missing, each has its type; pods of the worker controller included."""
    # It would parse a file of megabytes again for each resource.
    monkeypatch.setattr(utils, "schema_contents", cache(utils.schema_contents))
    ours = [each for overlay in OVERLAYS for each in rendered(overlay)]
    ours = [_as_deployment(each) if each["kind"] == "WorkerDeployment" else each for each in ours]
    distinct = {json.dumps(each): each for each in ours if not each["apiVersion"].startswith(OF_OTHERS)}

    assert len(distinct) > 20
    for each in distinct.values():
        kubernetes_validate.validate(dict(each), kubernetes_validate.latest_version(), strict=True)


def _as_deployment(worker: Resource) -> Resource:
    template = worker["spec"]["template"]
    spec = {"selector": {"matchLabels": template["metadata"]["labels"]}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": worker["metadata"], "spec": spec}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_container_can_do_more_than_it_must(overlay: str) -> None:
    """Not root, no privileges, nothing to write but what is mounted, no token, memory that is limited."""
    for template in pod_templates(rendered(overlay)).values():
        pod, container = template["spec"], only_container(template)
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod["automountServiceAccountToken"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}  # noqa: S108 -- it is mounted
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_all_processes_are_probed_where_they_answer(overlay: str) -> None:
    """Each probe asks /healthz or /readyz at a port of the container, and the process listens there."""
    resources = rendered(overlay)
    for template in pod_templates(resources).values():
        container, told = only_container(template), environment_of(template, resources)
        ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
        probes = [
            container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")
        ]
        assert [probe["path"] for probe in probes] == ["/healthz", "/healthz", "/readyz"]
        assert {probe["port"] for probe in probes} <= ports.keys()
        assert told["EVERLOOP_METRICS_ADDRESS"] == f"0.0.0.0:{ports['metrics']}"
        assert ports.get("http") == told.get("EVERLOOP_PORT")
        assert ports.get("grpc") == told.get("EVERLOOP_GRPC_PORT")
        assert template["metadata"]["annotations"]["prometheus.io/port"] == ports["metrics"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_process_drains_before_it_is_killed(overlay: str) -> None:
    """It gets more time than it takes, and takes as long as the longest call of its queues may last."""
    resources = rendered(overlay)
    for template in pod_templates(resources).values():
        container = only_container(template)
        grace = float(environment_of(template, resources)["EVERLOOP_SHUTDOWN_GRACE"])
        waits = 10 if "lifecycle" in container else 0
        assert template["spec"]["terminationGracePeriodSeconds"] > grace + waits
        if container["name"] == "worker":
            assert grace >= max(_longest_call(queue) for queue in _queues(container))


def _longest_call(queue: str) -> float:
    """Return how many seconds a call of this queue may take. No task waits for narrators and deliveries."""
    tool = ToolSpec.model_construct(task_queue=queue, timeout=DEFAULT_TIMEOUT.total_seconds())
    calls: Mapping[str, list[ActivityConfig]] = {
        WORKFLOWS_QUEUE: [scope.short_call(""), scope.hooked_call("")],
        MODEL_QUEUE: [scope.model_call(queue, ""), scope.post_completion(queue, "")],
        TOOLS_QUEUE: [
            scope.tool_call(queue, tool, ""),
            scope.plugin_call(queue, ""),
            scope.post_completion(queue, ""),
        ],
    }
    timeouts = [cast("timedelta", call.get("start_to_close_timeout")) for call in calls.get(queue, [])]
    return max((timeout.total_seconds() for timeout in timeouts), default=0)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_calls_wait_where_workers_of_their_kind_are(overlay: str) -> None:
    """Gateways split the queues exactly where workers do; commands in the workers' image, too."""
    resources = rendered(overlay)
    templates = pod_templates(resources).values()
    workers = [one for one in templates if only_container(one)["name"] == "worker"]
    told = {environment_of(one, resources)["EVERLOOP_SPLIT_QUEUES"] for one in templates}

    assert told == {"true" if len(workers) > 1 else "false"}


def _queues(container: Resource) -> tuple[str, ...]:
    in_a_shell = container.get("command", [])[:1] == ["sh"]
    return parse_arguments([] if in_a_shell else container["args"]).queues


@pytest.mark.parametrize("overlay", ["production", "temporal-cloud"])
def test_workers_are_scaled_by_their_own_queues(overlay: str) -> None:
    """Each trigger asks for a queue of the Deployment it scales, of its build, at its Temporal."""
    resources = rendered(overlay)
    templates = pod_templates(resources)
    scaled = of_kind(resources, "ScaledObject")

    assert {each["spec"]["scaleTargetRef"]["name"] for each in scaled} == {
        name for name, template in templates.items() if only_container(template)["name"] == "worker"
    }
    for each in scaled:
        template = templates[each["spec"]["scaleTargetRef"]["name"]]
        told = environment_of(template, resources)
        triggers = [trigger["metadata"] for trigger in each["spec"]["triggers"]]
        assert [trigger["taskQueue"] for trigger in triggers] == [
            task_queue_of(kind, told["EVERLOOP_TASK_QUEUE"]) for kind in _queues(only_container(template))
        ]
        for trigger in triggers:
            waits_for_workflows = trigger["taskQueue"] == told["EVERLOOP_TASK_QUEUE"]
            assert trigger["queueTypes"] == ("workflow,activity" if waits_for_workflows else "activity")
            assert trigger["endpoint"] == told["TEMPORAL_ADDRESS"]
            assert trigger["namespace"] == told["TEMPORAL_NAMESPACE"]
            assert trigger["workerDeploymentName"] == "everloop"
            assert trigger["workerDeploymentBuildId"] == template["metadata"]["labels"][VERSION]
        assert 1 <= each["spec"]["minReplicaCount"] < each["spec"]["maxReplicaCount"]
        assert {trigger["type"] for trigger in each["spec"]["triggers"]} == {"temporal"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_selects_pods_finds_some(overlay: str) -> None:
    """Services, budgets, policies and monitors name labels that pods have."""
    resources = rendered(overlay)
    templates = pod_templates(resources).values()
    selectors = list(_selectors(resources))

    assert selectors
    for name, selector in selectors:
        assert any(selects(selector, template) for template in templates), name


def _selectors(resources: Any) -> Iterator[tuple[str, Resource]]:  # noqa: ANN401 -- YAML
    for each in resources:
        spec = each.get("spec", {})
        for field in ("selector", "podSelector"):
            if spec.get(field):
                yield f"{each['kind']} {each['metadata']['name']}", spec[field]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_is_referred_to_exists(overlay: str) -> None:
    """ConfigMaps are there; secrets never are (docs/operation/deployment.md); all images have a tag."""
    resources = rendered(overlay)
    guide = (ROOT / "docs/operation/deployment.md").read_text(encoding="utf-8")
    maps = {each["metadata"]["name"] for each in of_kind(resources, "ConfigMap")}

    assert not of_kind(resources, "Secret")
    for template in pod_templates(resources).values():
        container = only_container(template)
        sources = container["envFrom"] + template["spec"]["volumes"]
        for source in sources:
            if "configMapRef" in source:
                assert source["configMapRef"]["name"] in maps
            secret = source.get("secretRef", {}).get("name") or source.get("secret", {}).get("secretName")
            assert not secret or f"secret generic {secret} " in guide
        assert ":" in container["image"]
