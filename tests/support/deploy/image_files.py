"""Copies the files of the images of deploy/docker into a folder, without a container engine."""

import json
import re
import shutil
from collections.abc import Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
RUNTIME_LOCK = ROOT / "deploy/docker/requirements.lock"

_HIDING = """\
import sys
from importlib.abc import MetaPathFinder

HIDDEN = frozenset({modules})


class Hiding(MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        if fullname.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {{fullname!r}}: not in images", name=fullname)
        return None


sys.meta_path.insert(0, Hiding())
"""


def copied() -> Sequence[tuple[str, str]]:
    """Return the paths that the Dockerfile copies from the repository, with their targets."""
    return re.findall(r"^COPY (?!--from)(\S+) (\S+)$", DOCKERFILE.read_text(), re.MULTILINE)


def fill(folder: Path) -> Path:
    """Copy the files of an image into a folder, and return its read-only /app."""
    for source, target in copied():
        place = folder / target.removeprefix("/")
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place, ignore=_ignored)
        else:
            place = place / Path(source).name if target.endswith("/") else place
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, place)
    app = folder / "app"
    for path in (app, *app.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    return app


def _ignored(folder: str, names: Sequence[str]) -> set[str]:
    """Return the names in a folder that .dockerignore excludes."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    left_out = {ROOT / line for line in lines if line.startswith("everloop/")}
    return {name for name in names if name == "__pycache__" or Path(folder, name) in left_out}


def hide_what_images_lack(folder: Path) -> None:
    """Write a `sitecustomize` that hides the modules of all packages that are not in the runtime's lock."""
    in_image = {name for name, _ in locked(RUNTIME_LOCK)}
    modules = packages_distributions().items()
    present = {*in_image, "everloop"}
    hidden = [module for module, owners in modules if not present & {_normal(owner) for owner in owners}]
    (folder / "sitecustomize.py").write_text(_HIDING.format(modules=json.dumps(sorted(hidden))))


def locked(lock: Path) -> Sequence[tuple[str, str]]:
    """Return the name of each requirement, and its locked version and hashes, without markers."""
    text = re.sub(r"^\s*#.*\n", "", lock.read_text(), flags=re.MULTILINE)
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)[^\\]*((?:\\\n.*)*)", text, re.MULTILINE)
    return [
        (_normal(name), " ".join([version, *hashes.replace("\\", "").split()]))
        for name, version, hashes in found
    ]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
