"""The demo agent's file tools see one directory and nothing outside of it."""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everloop.examples.demo_tools import MAX_FILE_BYTES, MAX_MATCHES, MAX_TEXT, Folder

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


def test_what_is_too_much_is_cut_and_the_cut_is_said(tmp_path: Path) -> None:
    """Every limit leaves a note with what was left out and how to go on."""
    root = tmp_path.resolve()
    folder = Folder(root)
    lines = [f"match {number} {'x' * 80}" for number in range(1000)]
    (root / "long.txt").write_text("\n".join(lines))
    (root / "line.txt").write_text("y" * (MAX_TEXT + 1))
    (root / "huge.txt").write_bytes(b"z" * (MAX_FILE_BYTES + 1))

    first = folder.read_file("long.txt", 1)
    following = int(first.rsplit("first_line=", 1)[1].rstrip(")"))
    second = folder.read_file("long.txt", following)
    searched = folder.search_files("match", ".").splitlines()

    assert f"({1000 - following + 1} more lines; " in first
    assert second.splitlines()[1] == lines[following - 1]
    assert len(first) < MAX_TEXT + 200
    assert folder.read_file("line.txt", 1).endswith(f"(line 1 cut after {MAX_TEXT:,} characters)")
    assert searched[MAX_MATCHES:] == [f"(only the first {MAX_MATCHES} matches are shown)"]
    with pytest.raises(ValueError, match="larger than"):
        folder.read_file("huge.txt", 1)
