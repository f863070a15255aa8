"""examples/deploy fits what it stands on: no engine, no cluster and no GitHub is needed."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.deploy.manifests import (
    COMPOSE,
    KUBERNETES,
    ROOT,
    check_dockerfile,
    check_schema,
    environment_of,
    pod_templates,
    render,
)

DEPLOY = ROOT / "examples/deploy"
AGENTS = "/app/my_agents/"
OVERRIDES = ("compose/compose.override.yaml", "temporal_cloud/compose.override.yaml")
CLOUD = {"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_API_KEY", "EVERLOOP_ENCRYPTION_KEYS_FILE"}
WORKFLOWS = ("check.yaml", "rollout.yaml")


def test_the_dockerfile_is_clean() -> None:
    """Hadolint has nothing to say, and what is copied is there."""
    file = DEPLOY / "Dockerfile"
    copied = re.findall(r"^COPY (\S+)", file.read_text(encoding="utf-8"), re.MULTILINE)

    check_dockerfile(file)
    assert [name for name in copied if not (DEPLOY / name).exists()] == []
    assert f"EVERLOOP_AGENTS={AGENTS}" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_is_one_of_github(name: str) -> None:
    """It fits the schema, and the files of this folder that it runs are there."""
    file = DEPLOY / "rollout" / name
    run = re.findall(r"(?:^|\s)((?:rollout/)?\w+\.(?:sh|py))\b", file.read_text(encoding="utf-8"))

    check_schema("github-workflows", file)
    assert run
    assert [each for each in run if not (DEPLOY / each).is_file()] == []
    assert [each for each in run if each.endswith(".sh") and not os.access(DEPLOY / each, os.X_OK)] == []


@pytest.mark.parametrize("name", OVERRIDES)
def test_an_override_is_one_of_our_compose_file(name: str) -> None:
    """It fits the schema of compose files, and changes services that compose.yaml has."""
    check_schema("compose-spec", DEPLOY / name)

    assert _services(DEPLOY / name).keys() <= _services(COMPOSE / "compose.yaml").keys()


def test_compose_builds_your_images_on_ours() -> None:
    """From the folder with the Dockerfile, and serves the agents that are in them."""
    services = _services(DEPLOY / OVERRIDES[0])

    for name, service in services.items():
        assert (COMPOSE / service["build"]["context"]).resolve() == DEPLOY
        assert service["build"]["target"] == name
        assert service["environment"]["EVERLOOP_AGENTS"] == AGENTS


def test_on_temporal_cloud_nothing_waits_for_a_temporal_of_ours() -> None:
    """Its services are not started, and services that need them otherwise do without."""
    changed, services = _services(DEPLOY / OVERRIDES[1]), _services(COMPOSE / "compose.yaml")
    away = {name for name, service in changed.items() if "profiles" in service}

    assert {name for name in services if "temporal" in name} | {"postgresql"} == away
    for name in services.keys() - away:
        needed = {**_needs(services[name]), **_needs(changed.get(name, {}))}
        assert not {other for other in away & needed.keys() if needed[other].get("required", True)}, name
    for name in ("gateway", "worker"):
        assert changed[name]["environment"].keys() >= CLOUD


def test_kubernetes_runs_your_images() -> None:
    """All resources fit the schema; each process has your image, and is told of your agents."""
    resources = render(DEPLOY / "kubernetes")

    for each in resources:
        kubernetes_validate.validate(dict(each), kubernetes_validate.latest_version(), strict=True)
    for name, template in pod_templates(resources).items():
        (container,) = template["spec"]["containers"]
        assert re.fullmatch(r"registry\.example\.org/my-(gateway|worker):1", container["image"]), name
        assert environment_of(template, resources)["EVERLOOP_AGENTS"] == AGENTS


@pytest.mark.parametrize("build", ["0a1b2c3d4e5f", "123456789012"])
def test_a_build_takes_the_place_of_the_first(tmp_path: Path, build: str) -> None:
    """Workers, their autoscalers and gateways are those of the build; of the first one nothing is left."""
    copy = tmp_path / "kubernetes"
    shutil.copytree(KUBERNETES, copy)
    command = [DEPLOY / "rollout/add_build.sh", copy / "overlays/production", build]
    subprocess.run(command, check=True, env={**os.environ, "REGISTRY": "ghcr.io/you/"})

    resources = render(copy / "overlays/production")
    workers = {name: each for name, each in pod_templates(resources).items() if "worker" in name}
    images = {
        container["image"]
        for template in pod_templates(resources).values()
        for container in template["spec"]["containers"]
    }
    scaled = [each for each in resources if each["kind"] == "ScaledObject"]
    builds = {
        trigger["metadata"]["workerDeploymentBuildId"]
        for each in scaled
        for trigger in each["spec"]["triggers"]
    }
    labels = {template["metadata"]["labels"]["app.kubernetes.io/version"] for template in workers.values()}

    assert sorted(workers) == [f"everloop-worker-{kind}-{build}" for kind in ("model", "tools", "workflows")]
    assert images == {f"ghcr.io/you/my-gateway:{build}", f"ghcr.io/you/my-worker:{build}"}
    assert builds == labels == {build}
    assert "everloop-worker-model-1" not in json.dumps(resources).replace(build, "")


def _services(file: Path) -> dict[str, dict[str, Any]]:
    return yaml.safe_load(file.read_text(encoding="utf-8"))["services"]


def _needs(service: dict[str, Any]) -> dict[str, dict[str, Any]]:
    needed: dict[str, dict[str, Any]] | list[str] = service.get("depends_on", {})
    return {name: {} for name in needed} if isinstance(needed, list) else needed
