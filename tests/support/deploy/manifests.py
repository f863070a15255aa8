"""The manifests of `deploy/`, parsed as for a deployment."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import pytest
import yaml

ROOT = Path(__file__).parents[3]
KUBERNETES = ROOT / "deploy/kubernetes"
COMPOSE = ROOT / "deploy/compose"
OVERLAYS = ("small", "production", "temporal-cloud", "worker-controller")

Resource = Mapping[str, Any]

TOLD_TO_CLIENTS = frozenset({"EVERLOOP_PUBLIC_URL", "EVERLOOP_GRPC_URL"})
"""Settings with addresses that our processes announce and do not call."""

_PORTS = {"http": 80, "https": 443}
_COMPOSE_VARIABLE = re.compile(r"\$\{\w+(?::-([^}]*)|[^}]*)\}")
_COMMENT = re.compile(r"(?:^|\s)#.*", re.MULTILINE)
_HOST_AND_PORT = re.compile(r"([\w.-]+):(\d+)")


def check_schema(schema: str, file: Path) -> None:
    """Check a file against a schema that check-jsonschema ships.

    Raises:
        AssertionError: The file does not fit.
    """
    check = [_program("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", file]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def check_dockerfile(file: Path) -> None:
    """Check a Dockerfile with hadolint, which is packaged for Linux only.

    Raises:
        AssertionError: Hadolint reports anything, even at the level of information.
    """
    hadolint = _program("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def _program(name: str) -> Path:
    return Path(sys.executable).with_name(name)


class Address(NamedTuple):
    """An address that a process calls."""

    host: str
    port: int


@cache
def rendered(overlay: str) -> Sequence[Resource]:
    """Return the resources of one of our overlays; the test is skipped without kustomize and kubectl."""
    return render(KUBERNETES / "overlays" / overlay)


def render(directory: Path) -> Sequence[Resource]:
    """Return kustomize's output for a directory; no cluster is used."""
    if kustomize := shutil.which("kustomize"):
        command = [kustomize, "build", str(directory)]
    elif kubectl := shutil.which("kubectl"):
        command = [kubectl, "kustomize", str(directory)]
    else:
        pytest.skip("neither kustomize nor kubectl is installed")
    environment = {**os.environ, "KUBECONFIG": os.devnull}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def of_kind(resources: Sequence[Resource], kind: str) -> Sequence[Resource]:
    """Return the resources of one kind."""
    return [each for each in resources if each["kind"] == kind]


def pod_templates(resources: Sequence[Resource]) -> Mapping[str, Resource]:
    """Return the pod template of each workload, by its name."""
    kinds = {"Deployment", "WorkerDeployment"}
    return {each["metadata"]["name"]: each["spec"]["template"] for each in resources if each["kind"] in kinds}


def only_container(template: Resource) -> Resource:
    """Return the only container of a pod."""
    (container,) = template["spec"]["containers"]
    return container


def environment_of(template: Resource, resources: Sequence[Resource]) -> Mapping[str, str]:
    """Return the container's variables from ConfigMaps and literals, not those from secrets and fields."""
    container = only_container(template)
    maps = {each["metadata"]["name"]: each["data"] for each in of_kind(resources, "ConfigMap")}
    told: dict[str, str] = {}
    for source in container["envFrom"]:
        if reference := source.get("configMapRef"):
            told |= maps[reference["name"]]
    return told | {one["name"]: one["value"] for one in container.get("env", ()) if "value" in one}


def selects(selector: Resource, template: Resource) -> bool:
    """Return True if `matchLabels` of a selector match a pod."""
    wanted = cast("Mapping[str, str]", selector.get("matchLabels", selector))
    return wanted.items() <= template["metadata"]["labels"].items()


def addresses(text: str) -> set[Address]:
    """Return the addresses to call in a setting or a file: `host:port` and URLs, without listen addresses.

    Variables of compose.yaml have their defaults, and comments do not count.
    """
    plain = _COMMENT.sub("", _COMPOSE_VARIABLE.sub(r"\1", text))
    found = {address for word in re.split(r"[\s\"'\[\]{},]+", plain) if (address := _address(word))}
    return {address for address in found if address.host != "0.0.0.0"}


def _address(word: str) -> Address | None:
    if "://" in word:
        url = urlsplit(word)
        return Address(url.hostname or "", url.port or _PORTS.get(url.scheme, 0))
    if match := _HOST_AND_PORT.fullmatch(word):
        return Address(match[1], int(match[2]))
    return None


@cache
def compose() -> Resource:
    """Return compose.yaml with resolved merges and unresolved variables."""
    return yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))


@cache
def compose_grpc() -> Resource:
    """Return compose.yaml merged with compose.grpc.yaml."""
    return yaml.safe_load((COMPOSE / "compose.grpc.yaml").read_text(encoding="utf-8"))


def env_file(path: Path, *, examples: bool = False) -> Mapping[str, str]:
    """Return the variables of a file of NAME=value lines; with `examples`, also those in comments."""
    return dict(_pairs(path.read_text(encoding="utf-8"), examples=examples))


def _pairs(text: str, *, examples: bool) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, equals, value = line.removeprefix("#" if examples else "").partition("=")
        if equals and name.replace("_", "").isalnum() and name.isupper():
            yield name, value
