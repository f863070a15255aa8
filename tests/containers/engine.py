"""Podman, for the tests of images and manifests: everything they make has a name of their own.

Foreign images come from no registry: `standins/` replaces them with packages of Debian and PyPI.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STANDINS = Path(__file__).with_name("standins")
PREFIX = "localhost/everloop-test"
PYTHON = f"{PREFIX}/python:base"
SUITE = "bookworm"

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")

# crun refuses hybrid cgroups, and without systemd there is no manager of limits.
CONFIGURATION = """\
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
default_ulimits = []
seccomp_profile = "unconfined"
"""


def missing() -> str:
    """Return the reason why containers cannot run here; empty if they can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "containers are run by root, on Linux"
    lacking = [name for name in ("podman", "buildah", "runc", "mmdebstrap") if not shutil.which(name)]
    return f"not installed (Debian has them): {', '.join(lacking)}" if lacking else ""


class Engine:
    """Runs podman with a configuration of the tests' own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        configuration = directory / "containers.conf"
        configuration.write_text(CONFIGURATION)
        self.environment = {**os.environ, "CONTAINERS_CONF": str(configuration)}

    def podman(self, *arguments: str, check: bool = True, timeout: float = 600) -> str:
        """Run podman and return what it prints."""
        done = subprocess.run(
            ["podman", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert not check or done.returncode == 0, f"podman {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def succeeds(self, *arguments: str) -> bool:
        """True if podman exits with 0."""
        done = subprocess.run(["podman", *arguments], env=self.environment, capture_output=True, check=False)
        return done.returncode == 0

    def make_base(self) -> None:
        """Make the image with Python alone, unless an earlier run has."""
        if self.succeeds("image", "exists", PYTHON):
            return
        archive = self._directory / "root.tar"
        include = "python3,python3-venv,python3-pip,python-is-python3,ca-certificates"
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={include}", SUITE, str(archive)]
        subprocess.run(command, check=True, capture_output=True)
        self.podman("import", str(archive), PYTHON)
        archive.unlink()

    def build(self, dockerfile: Path, context: Path, target: str, tag: str, *arguments: str) -> None:
        """Build one target, with the package indexes of this machine."""
        self.podman(
            *("build", "--quiet", "--format", "docker", "--isolation", "chroot", "--network", "host"),
            *("--build-arg", f"PYTHON_IMAGE={PYTHON}", *_indexes(), *arguments),
            *("-f", str(dockerfile), "--target", target, "-t", tag, str(context)),
        )

    def build_ours(self, target: str, tag: str) -> str:
        """Build `worker` or `gateway` as docs/operation/deployment.md says; return the image's name."""
        image = f"localhost/everloop-{target}:{tag}"
        self.build(ROOT / "deploy/docker/Dockerfile", ROOT, target, image, "--build-arg", f"VERSION={tag}")
        return image

    def build_standin(self, target: str, image: str) -> None:
        """Build the stand-in for a foreign image, under its name in the manifests."""
        self.build(STANDINS / "Dockerfile", STANDINS, target, f"localhost/{image}")

    def is_healthy(self, container: str) -> bool:
        """Run the container's own health check once."""
        return self.succeeds("healthcheck", "run", container)

    def wait_until_healthy(self, container: str, seconds: float = 90) -> None:
        """Run its health check until it passes."""
        deadline = time.monotonic() + seconds
        while not self.is_healthy(container):
            assert time.monotonic() < deadline, f"{container} is not healthy: {self.logs(container)}"
            time.sleep(0.5)

    def logs(self, container: str) -> str:
        """Return the end of a container's output."""
        command = ["podman", "logs", "--tail", "40", container]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Return a podman that has the base image; the tests are skipped where there is none."""
    if reason := missing():
        pytest.skip(reason)
    made = Engine(tmp_path_factory.mktemp("engine"))
    made.make_base()
    return made


def _indexes() -> Sequence[str]:
    """Return the settings with which a build reaches this machine's indexes and trusts its certificates."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "debug"], capture_output=True, text=True, check=True
    )
    files = [
        line.partition(", exists: ")[0].strip()
        for line in listed.stdout.splitlines()
        if "exists: True" in line
    ]
    values = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    folders = {_folder(word) for word in values.stdout.replace("'", " ").replace("\\n", " ").split()}
    mounts = [Path(file) for file in files] + sorted(each for each in folders if each)
    if CERTIFICATES.is_file():
        mounts.append(CERTIFICATES)
    if Path("/etc/apt").is_dir():
        mounts.append(Path("/etc/apt"))
    trusting = ["--env", f"PIP_CERT={CERTIFICATES}"] if CERTIFICATES.is_file() else []
    return [word for path in mounts for word in ("-v", f"{path}:{path}:ro")] + trusting


def _folder(word: str) -> Path | None:
    """Return the folder in a setting of pip, if it is on this machine; of an index, its whole folder."""
    path = Path(word.removeprefix("file://"))
    if not (path.is_absolute() and path.is_dir()):
        return None
    return path.parent if path.name == "simple" else path
