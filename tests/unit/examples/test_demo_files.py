"""The demo agent's file tools see one directory and nothing outside of it."""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everloop.examples.demo_tools import Folder

SECRET = "the secret"


@pytest.fixture(scope="module")
def folder() -> Iterator[Folder]:
    with tempfile.TemporaryDirectory() as name:
        outside = Path(name).resolve()
        (outside / "secret.txt").write_text(SECRET)
        (outside / "root-2").mkdir()
        (outside / "root-2" / "secret.txt").write_text(SECRET)
        root = outside / "root"
        _fill(root, outside)
        yield Folder(root)


def _fill(root: Path, outside: Path) -> None:
    for directory in ("docs", ".git", "docs/.hidden", "__pycache__"):
        (root / directory).mkdir(parents=True)
        (root / directory / "secret.txt").write_text(SECRET)
    (root / "docs" / "secret.txt").write_text("Alpha\nbeta ALPHA\n\ngamma")
    (root / ".env").write_text(SECRET)
    (root / "readme.md").write_text("one\ntwo\n")
    (root / "empty.txt").touch()
    (root / "binary.bin").write_bytes(b"\xff\xfe\x00alpha")
    (root / "out").symlink_to(outside)
    (root / "out.txt").symlink_to(outside / "secret.txt")
    (root / "hidden-link").symlink_to(".git")
    (root / "env-link").symlink_to(".env")
    (root / "circle").symlink_to("circle")
    (root / "nowhere").symlink_to("missing")
    (root / ".alias").symlink_to("readme.md")
    (root / "inside").symlink_to("docs")
    (root / "docs" / "up").symlink_to("..")
    os.mkfifo(root / "pipe")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("docs/../readme.md", "may lead out"),
        ("/etc/passwd", "may lead out"),
        (".git", "is hidden"),
        ("out.txt", "is a link that leads out"),
        ("hidden-link", "is a link that leads out of the directory or to a hidden place"),
        ("missing.txt", "there is no 'missing.txt'"),
        ("pipe", "is not a file"),
        ("binary.bin", "is not UTF-8 text"),
    ],
)
def test_a_refusal_tells_the_model_why(folder: Folder, path: str, reason: str) -> None:
    """Each reason has its own words, so that the model can correct itself."""
    with pytest.raises(ValueError, match=re.escape(reason)):
        folder.read_file(path, 1)


SEGMENTS = st.sampled_from(
    [
        "..",
        ".",
        "",
        "docs",
        "up",
        "out",
        "out.txt",
        ".git",
        ".env",
        "inside",
        "hidden-link",
        "secret.txt",
        "~",
        "\x00",
    ]
)


@given(st.one_of(st.lists(SEGMENTS, max_size=8).map("/".join), st.text(max_size=30)))
def test_no_path_leads_out_of_the_directory(folder: Folder, path: str) -> None:
    """Whatever a model asks for, the real place lies below the root and has no hidden part."""
    try:
        place = folder.find(path)
    except ValueError:
        return
    inside = place.relative_to(folder.root)
    assert place == place.resolve()
    assert not any(part.startswith(".") for part in inside.parts)
