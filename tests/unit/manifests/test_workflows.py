"""The GitHub workflows of this repository: checked without GitHub."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from everloop.version import __version__
from tests.support.deploy.manifests import ROOT, check_schema

DEPLOYMENTS = ("deploy", "examples/deploy/rollout")

TAG = re.compile(r"""(?:everloop-\w+, newTag: |^ARG VERSION=|^ +EVERLOOP: ")([\w.]+)""", re.MULTILINE)
"""The version of Everloop, as overlays, the Dockerfile and workflows name it."""

WORKFLOWS = sorted((ROOT / ".github/workflows").iterdir())


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_fits_the_schema_of_github(file: Path) -> None:
    """The schema is that of check-jsonschema. Workflows that it calls exist."""
    check_schema("github-workflows", file)
    called = [job["uses"] for job in _jobs(file.name).values() if "uses" in job]

    assert [path for path in called if not (ROOT / path).is_file()] == []


def test_ci_runs_the_checks_on_each_platform() -> None:
    """On the oldest Python, on a newer one, and on macOS."""
    check = _jobs("ci.yml")["check"]
    rows = check["strategy"]["matrix"]["include"]
    platforms = {(row["os"].partition("-")[0], row["python"]) for row in rows}

    assert platforms == {("ubuntu", "3.11"), ("ubuntu", "3.13"), ("macos", "3.11")}
    assert {"run": ".ci/run"} in check["steps"]


def test_a_release_publishes_only_what_was_checked() -> None:
    """Each job needs the checks, directly or through another job. Only PyPI's job may ask for an identity."""
    jobs = _jobs("release.yml")

    assert {name for name in jobs if not _is_behind("check", name, jobs)} == set()
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["pypi"]


def test_the_changelog_has_the_current_version() -> None:
    """The release workflow takes its notes from there."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    assert f"\n## {__version__} (" in changelog


def test_files_of_deployments_name_the_current_version() -> None:
    """Tags of images, and what images are built with."""
    files = [file for root in DEPLOYMENTS for file in (ROOT / root).rglob("*") if file.is_file()]
    texts = {file: file.read_text(encoding="utf-8", errors="ignore") for file in files}
    named = {(str(file), tag) for file, text in texts.items() for tag in TAG.findall(text)}

    assert len(named) >= len(DEPLOYMENTS)
    assert {(file, tag) for file, tag in named if tag != __version__} == set()


def _is_behind(first: str, name: str, jobs: dict[str, dict[str, Any]]) -> bool:
    needs: str | list[str] = jobs[name].get("needs", [])
    before = [needs] if isinstance(needs, str) else needs
    return name == first or any(_is_behind(first, each, jobs) for each in before)


def _jobs(name: str) -> dict[str, dict[str, Any]]:
    return yaml.safe_load((ROOT / ".github/workflows" / name).read_text(encoding="utf-8"))["jobs"]
