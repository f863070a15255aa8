"""The settings of workers and gateways, and the environment that the manifests give them, are the same."""

import re

import pytest
from pydantic import ValidationError

from everloop.models.catalogue import Catalogue
from everloop.runtime.environment import Settings
from tests.support.deploy.manifests import (
    COMPOSE,
    KUBERNETES,
    OVERLAYS,
    ROOT,
    compose,
    compose_grpc,
    env_file,
    of_kind,
    rendered,
)
from tests.support.deploy.process_settings import process_settings, settings_classes

OF_LIBRARIES = {
    "AWS_ACCESS_KEY_ID", "AWS_DEFAULT_REGION", "AWS_SECRET_ACCESS_KEY",
    "OTEL_SERVICE_NAME",
    "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONUNBUFFERED",
    "TEMPORAL_ADDRESS", "TEMPORAL_API_KEY", "TEMPORAL_CONFIG_FILE", "TEMPORAL_NAMESPACE", "TEMPORAL_PROFILE",
    "TEMPORAL_TLS_CLIENT_CERT_PATH", "TEMPORAL_TLS_CLIENT_KEY_PATH",
}  # fmt: skip
"""Variables that boto3 (without AWS_REGION), OpenTelemetry, Python and Temporal's SDK read themselves."""

OF_OTHERS = {
    "TEMPORAL_DEPLOYMENT_NAME": "the worker controller sets it",
    "TEMPORAL_WORKER_BUILD_ID": "the worker controller sets it",
    "TEMPORAL_AUTH_CALLBACK_URL": "Temporal's UI reads it",
    "TEMPORAL_AUTH_CLIENT_ID": "Temporal's UI reads it",
    "TEMPORAL_AUTH_CLIENT_SECRET": "Temporal's UI reads it",
    "TEMPORAL_AUTH_ENABLED": "Temporal's UI reads it",
    "TEMPORAL_AUTH_PROVIDER_URL": "Temporal's UI reads it",
    "TEMPORAL_AUTH_SCOPES": "Temporal's UI reads it",
    "TEMPORAL_CODEC_ENDPOINT": "Temporal's UI reads it",
    "TEMPORAL_CODEC_PASS_ACCESS_TOKEN": "Temporal's UI reads it",
}
"""Variables of manifests or docs/operation/deployment.md that workers and gateways do not get."""

OF_IMAGES = {
    "EVERLOOP_HOST", "EVERLOOP_PORT", "EVERLOOP_BLOB_DIRECTORY", "EVERLOOP_DEMO_LEDGER",
}  # fmt: skip
"""The Dockerfile sets them: they say what ports and folders an image has."""

NOT_IN_COMPOSE = {"EVERLOOP_BUILD_ID": "a project has one build, which would end before its tasks"}

NOT_FOR_DEPLOYMENTS = {
    "EVERLOOP_AUTH_ALLOW_ANONYMOUS": "a deployment asks who calls; docs/operation/security.md says when not"
}


DOCUMENTED_ELSEWHERE = {
    "EVERLOOP_TEMPORAL_PORT": "of everloop up",
    "EVERLOOP_TEMPORAL_UI_PORT": "of everloop up",
    "EVERLOOP_REDIS_PORT": "of everloop up",
    "EVERLOOP_PROFILE": "of commands that talk to agents",
    "EVERLOOP_API_KEY": "of commands that talk to agents",
    "EVERLOOP_TOKEN": "of commands that talk to agents",
}
"""Variables of docs/settings.md that neither workers nor gateways read."""


def of_models() -> set[str]:
    """Return the variables that the shipped models.toml names."""
    providers = Catalogue.load(None, None, {}).providers.values()
    return {name for each in providers for name in (each.key_variable, each.base_url_variable) if name}


def in_compose() -> set[str]:
    """Return what compose.yaml, its companion for gRPC and everloop.env tell, or show that they could."""
    told = set(env_file(COMPOSE / "everloop.env.example", examples=True))
    for name in ("gateway", "worker", "api-keys", "s3-init"):
        told |= compose()["services"][name]["environment"].keys()
    told |= compose_grpc()["services"]["gateway"]["environment"].keys()
    return told


def in_the_dockerfile() -> set[str]:
    text = (ROOT / "deploy/docker/Dockerfile").read_text()
    return set(re.findall(r"^(?:ENV|   ) ([A-Z_0-9]+)=", text, re.MULTILINE))


def in_the_files_of_kubernetes() -> set[str]:
    """Return all that is named there: arguments, patches and comments, too. Kustomize is not needed."""
    files = [path.read_text() for path in KUBERNETES.rglob("*.yaml")]
    told = {name for path in KUBERNETES.rglob("*.env") for name in env_file(path)}
    return told.union(*map(named_in, files))


def named_in(text: str) -> set[str]:
    return set(re.findall(r"\b(?:AWS|EVERLOOP|OPENAI|OTEL|TEMPORAL|TIKTOKEN)_[A-Z_0-9]+", text))


def test_each_variable_in_the_manifests_is_a_setting() -> None:
    """Nothing is told to our processes that none of them reads: it would be a misspelled setting."""
    known = process_settings().keys() | OF_LIBRARIES | of_models()

    assert sorted((in_compose() | in_the_dockerfile()) - known) == []
    assert sorted(in_the_files_of_kubernetes() - known - OF_OTHERS.keys()) == []


def test_each_setting_has_its_place_in_the_manifests() -> None:
    """A setting is in compose.yaml or its example file, in the image, or in a short list with the reason."""
    assert in_the_dockerfile() >= OF_IMAGES
    placed = in_compose() | OF_IMAGES
    left_out = NOT_IN_COMPOSE.keys() | NOT_FOR_DEPLOYMENTS.keys()

    assert sorted(process_settings().keys() - placed) == sorted(left_out)
    assert in_the_files_of_kubernetes() & left_out == NOT_IN_COMPOSE.keys()


def test_each_setting_is_documented_and_each_documented_one_exists() -> None:
    """docs/settings.md and the code know the same variables."""
    text = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`((?:EVERLOOP|OPENAI|TIKTOKEN)_[A-Z_0-9]+)`", text))
    known = {name for name in process_settings() if not name.startswith("OTEL_")}

    assert sorted(known - documented) == []
    assert sorted(documented - known - of_models()) == sorted(DOCUMENTED_ELSEWHERE)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_manifest_holds_a_secret(overlay: str) -> None:
    """Keys and passwords come from secrets, so that ConfigMaps can be read by many."""
    maps = of_kind(rendered(overlay), "ConfigMap")
    for name, value in ((name, value) for each in maps for name, value in each["data"].items()):
        is_secret = name.endswith(("_KEY", "_PASSWORD", "_SECRET", "_TOKEN", "REDIS_URL"))
        assert not is_secret, name
        assert "-----BEGIN" not in value


@pytest.mark.parametrize("settings", [*settings_classes()], ids=lambda settings: settings.__name__)
def test_an_empty_variable_counts_as_not_set(
    settings: type[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compose and Kubernetes leave unset variables empty."""
    for variable in process_settings():
        monkeypatch.delenv(variable, raising=False)
    usual = _described(settings)
    for variable in process_settings():
        monkeypatch.setenv(variable, "")
    assert _described(settings) == usual


def _described(settings: type[Settings]) -> str:
    """Return the values of settings, or the error that names the missing ones."""
    try:
        return repr(settings())
    except ValidationError as error:
        return str(error)
