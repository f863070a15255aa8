"""API keys: the file of valid ones, the command that changes it, and their owners."""

import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from everloop.cli.commands import run
from everloop.gateway.auth.api_keys import ApiKeyFileError, ApiKeyScheme, add_key, new_key, read_keys
from everloop.gateway.auth.schemes import CredentialsError
from everloop.gateway.context import Caller

SCOPES = ("tasks:read", "agents:demo")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def added(path: Path, owner: str = "acme", expires: datetime | None = None) -> str:
    """Put a new key into the file and return it."""
    key, line = new_key(owner, SCOPES, expires)
    add_key(path, line)
    return key


async def caller_with(scheme: ApiKeyScheme, key: str) -> Caller | None:
    return await scheme.authenticate({"x-api-key": key}, "")


async def test_a_key_of_the_file_tells_its_owner_and_scopes(path: Path) -> None:
    """The caller's subject is the id of the key, which distinguishes keys of one owner."""
    key = added(path)
    caller = await caller_with(ApiKeyScheme(path), key)
    assert caller == Caller(
        owner="acme", scheme="apiKey", subject=key.split("_")[1], scopes=frozenset(SCOPES), claims={}
    )


WRONG: dict[str, Callable[[str], str]] = {
    "empty": lambda _: "",
    "unknown": lambda _: new_key("acme", SCOPES, None)[0],
    "other secret": lambda key: key[:-1] + ("A" if key[-1] != "A" else "B"),
    "shorter": lambda key: key[:-1],
    "id alone": lambda key: key.split("_")[1],
    "no secret": lambda key: "_".join(key.split("_")[:2]),
    "with a space": lambda key: key + " ",
    "no text": lambda key: key + "\udcff",
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
async def test_any_other_key_is_refused(path: Path, change: Callable[[str], str]) -> None:
    """The refusal is the same for all, and repeats nothing of the request."""
    key = added(path)
    with pytest.raises(CredentialsError, match=r"^this server does not know the API key$"):
        await caller_with(ApiKeyScheme(path), change(key))


async def test_a_key_holds_until_it_expires(path: Path) -> None:
    """At that second it is no longer valid."""
    later = added(path, expires=datetime.now(UTC) + timedelta(days=1))
    before = added(path, expires=datetime.now(UTC))
    scheme = ApiKeyScheme(path)
    assert await caller_with(scheme, later)
    with pytest.raises(CredentialsError, match="expired"):
        await caller_with(scheme, before)


@pytest.mark.parametrize("broken", ["{", "gone"])
async def test_a_file_that_breaks_keeps_what_it_said(path: Path, broken: str) -> None:
    """The error is logged once, without keys or hashes; the fixed file is used again."""
    key = added(path)
    scheme = ApiKeyScheme(path)
    whole = path.read_text()
    with capture_logs() as logs:
        if broken == "gone":
            path.unlink()
        else:
            path.write_text(whole + broken)
        assert await caller_with(scheme, key)
        assert await caller_with(scheme, key)
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert json.loads(whole)["sha256"] not in str(logs)
    path.write_text("\n")
    with pytest.raises(CredentialsError):
        await caller_with(scheme, key)


LINE = '{"id": "a", "owner": "acme", "sha256": "%s", "scopes": ["tasks:read"]}' % ("0" * 64)

BROKEN = {
    "no JSON": ("{", "line 2: the line: Invalid JSON"),
    "a key": ("everloop_a_secret", "line 2: the line: Invalid JSON"),
    "no owner": (LINE.replace('"owner": "acme", ', ""), "line 2: owner: Field required"),
    "anonymous": (LINE.replace("acme", "Anonymous"), "no owner can be called 'Anonymous'"),
    "control character": (LINE.replace("acme", "a\\u001fb"), "control characters"),
    "unknown scope": (LINE.replace("tasks:read", "tasks:all"), "there is no scope 'tasks:all'"),
    "no hash": (LINE.replace("0" * 64, "secret"), "line 2: sha256: String should match pattern"),
    "time without zone": (LINE.replace("}", ', "expires": "2030-01-01T00:00:00"}'), "expires"),
    "unknown field": (LINE.replace("}", ', "key": "secret"}'), "key: Extra inputs are not permitted"),
    "twice": (LINE.replace("acme", "other"), "a line before has the id 'a' too"),
}


@pytest.mark.parametrize(("line", "words"), BROKEN.values(), ids=BROKEN)
def test_a_wrong_line_is_named(path: Path, line: str, words: str) -> None:
    """File, line and remedy, without the content."""
    path.write_text(f"{LINE}\n{line}\n")
    with pytest.raises(ApiKeyFileError) as caught:
        read_keys(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_command_makes_lists_and_removes_keys(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The key is printed once and stored nowhere; the list has the id that removes it."""
    file = ["--file", str(path)]
    assert run(["keys", "list", "--json", *file]) == 1
    scopes = ("--scopes", "tasks:read,agents:demo")
    assert run(["keys", "add", "acme", *scopes, "--days", "30", *file]) == 0
    key = capsys.readouterr().out.strip()
    assert run(["keys", "add", "other", *file]) == 0
    capsys.readouterr()
    assert run(["keys", "list", *file]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert run(["keys", "list", "--json", *file]) == 0
    listed = capsys.readouterr().out
    created = path.stat().st_mode & 0o777
    path.chmod(0o640)  # a gateway of another user reads it, and can still do so
    assert run(["keys", "remove", key.split("_")[1], *file]) == 0
    assert key.startswith("everloop_")
    assert key not in listed
    assert key not in str(lines)
    assert head.split() == ["ID", "OWNER", "SCOPES", "EXPIRES"]
    assert lines[0].split()[:3] == [key.split("_")[1], "acme", "tasks:read,agents:demo"]
    assert lines[1].split()[1:] == ["other", "tasks:read,tasks:write", "never"]
    first, second = json.loads(listed)
    assert (first["id"], first["owner"], first["is_expired"]) == (key.split("_")[1], "acme", False)
    assert (second["scopes"], second["expires"]) == (["tasks:read", "tasks:write"], None)
    assert [each.owner for each in read_keys(path).values()] == ["other"]
    assert key.split("_", 2)[2] not in path.read_text()
    assert (created, path.stat().st_mode & 0o777) == (0o600, 0o640)


def test_keys_made_at_once_are_all_kept(path: Path) -> None:
    """Concurrent additions do not overwrite each other."""
    together = threading.Barrier(4)

    def add() -> None:
        together.wait()
        for _ in range(10):
            added(path)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_keys(path)) == 40


def test_a_command_that_cannot_write_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is reported, and the existing keys are still there."""
    key = added(path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ApiKeyFileError, match="No space left on device"):
        added(path)
    assert list(read_keys(path)) == [key.split("_")[1]]
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


MISUSES: dict[str, tuple[list[str], str]] = {
    "owner": (["add", "anonymous"], "no owner can be called 'anonymous'"),
    "long owner": (["add", "ä" * 128], "longer than 255 bytes"),
    "scope": (["add", "acme", "--scopes", "all"], "there is no scope 'all'; there are tasks:read"),
    "days": (["add", "acme", "--days", "0"], "invalid value for '--days'"),
    "id": (["remove", "nobody"], "has no key of the id 'nobody'"),
    "no file": (["list"], "cannot read the API keys in"),
    "no days": (["add", "acme", "--days", "soon"], "invalid value for '--days'"),
}


@pytest.mark.parametrize(("arguments", "words"), MISUSES.values(), ids=MISUSES)
def test_the_command_says_what_is_wrong(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    """One line and an exit code; the file is unchanged."""
    code = run(["keys", *arguments, "--file", str(path)])
    assert code in {1, 2}
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not path.exists()
