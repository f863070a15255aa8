"""Files for messages, and downloads of artifacts."""

import asyncio
import shlex
import sys
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from everloop.cli.client.prompts import LeftError, PressedError, ask_text, choose, settle
from everloop.cli.client.screen import Screen, described
from everloop.cli.output import INTERRUPTED, CommandError, misused, option_of
from everloop.client import Artifact, ExtensionMissingError, InvalidError, Part
from everloop.client.artifact_calls import write_file
from everloop.client.errors import check_success, translate_errors
from everloop.runtime.outbound.backend import public_transport
from everloop.runtime.outbound.policy import ForbiddenAddressError, UnfitUrlError, WebhookPolicy, read_url
from everloop.runtime.outbound.response_bounds import UNCOMPRESSED

if TYPE_CHECKING:
    from everloop.client import Client, Result, StoredArtifact

STDIN = "-"

_ENDINGS = {"text": ".txt", "data": ".json", "rows": ".jsonl"}
"""Suffix of the file of a part of a stored artifact, by kind."""


def read_stdin() -> bytes:
    """Return the content of stdin.

    Raises:
        CommandError: stdin is a terminal, where a read would block.
    """
    if sys.stdin.isatty():
        raise misused("`-` reads stdin, and that is your terminal; pipe something into the command")
    return sys.stdin.buffer.read()


def text_of_stdin() -> str:
    """Return the text of stdin.

    Raises:
        CommandError: stdin is not a text, or is empty.
    """
    try:
        text = read_stdin().decode()
    except UnicodeDecodeError:
        raise misused("what comes from stdin is no text in UTF-8; send it with --file -") from None
    if not text.strip():
        raise misused("stdin is empty; pipe the message into the command")
    return text


def file_part(path: str) -> Part:
    """Return a part with the content of a file; of stdin for `-`.

    Raises:
        InvalidError: it cannot be read.
    """
    if path != STDIN:
        return Part.from_file(path)
    content = read_stdin()
    try:
        content.decode()
    except UnicodeDecodeError:
        return Part(raw=content, filename="stdin", media_type="application/octet-stream")
    return Part(raw=content, filename="stdin.txt", media_type="text/plain")


async def offer_artifacts(  # noqa: PLR0913 -- all have names
    client: "Client", result: "Result", screen: Screen, *, folder: Path | None, asks: bool, profile: str
) -> None:
    """Save the artifacts of a task: into the given folder, or after a question into a chosen one.

    Raises:
        ClientError: an artifact cannot be fetched, or written.
    """
    made = [one for one in result.artifacts if _files_of(one)]
    if not made:
        return
    screen.pause()
    if folder is None and asks:
        folder = await _choose_folder(made, screen)
    elif folder is None:
        for one in made:
            names = f"{shlex.quote(one.context_id)} {shlex.quote(one.id)}"
            screen.say(
                f"save it: everloop artifacts get {names}{option_of(profile)}", "dim", indent=2, breaks=False
            )
    if not folder:
        return
    stored = {one.id: _files_of(one) for one in made} | await _datasets(client, made[0].context_id)
    for one in made:
        await _save(client, stored[one.id], one.id, folder, screen, asks=asks)


async def _save(  # noqa: PLR0913 -- all have names
    client: "Client", parts: Sequence[Part], name: str, folder: Path, screen: Screen, *, asks: bool
) -> None:
    try:
        for path in await save_parts(client, parts, name, folder, asks=asks):
            screen.say(f"  saved {path}", "green")
    except CommandError as error:
        screen.say(f"  {error.message}", "yellow")


async def _choose_folder(made: list[Artifact], screen: Screen) -> Path | None:
    title = f"Save {described(made[0])}?" if len(made) == 1 else f"Save {len(made)} artifacts?"
    try:
        await settle()
        said = await choose(
            [(False, "no"), (True, "in this folder"), ("other", "in another folder")], title=title
        )
        if said is False:
            return None
        return Path(await ask_text("  folder: ")) if said == "other" else Path()
    except (LeftError, PressedError):
        return None


async def _datasets(client: "Client", context: str) -> dict[str, list[Part]]:
    """Return the complete datasets of a conversation: A2A has their rows in chunks."""
    try:
        stored = await client.stored_artifacts(context)
    except ExtensionMissingError:
        return {}
    return {
        one.artifact_id: named_parts(one) for one in stored if all(part.kind == "rows" for part in one.parts)
    }


def named_parts(artifact: "StoredArtifact") -> list[Part]:
    """Return the parts of an artifact, with file names for those without one."""
    return [
        replace(part.part, filename=part.filename or f"{artifact.artifact_id}{_ENDINGS.get(part.kind, '')}")
        for part in artifact.parts
    ]


async def save_parts(  # noqa: PLR0913 -- all have names
    client: "Client", parts: Sequence[Part], name: str, folder: Path, *, overwrites: bool = False, asks: bool
) -> list[Path]:
    """Write the contents of an artifact into a folder; existing files stay, unless overwriting is requested.

    Parts of the same name always get separate files.

    Raises:
        ClientError: a part cannot be fetched, or written.
        CommandError: as of `content_of`.
    """
    saved: list[Path] = []
    for part in parts:
        pieces = await content_of(client, part, asks=asks)
        file = part.filename or f"{name}{_ending(part)}"
        path = await asyncio.to_thread(_target, folder, file, saved if overwrites else None)
        saved.append(await write_file(path, pieces))
    return saved


async def content_of(client: "Client", part: Part, *, asks: bool) -> AsyncGenerator[bytes]:
    """Return an iterator over the content of a part.

    An agent can name any address, and this machine may reach hosts that the agent cannot: so the user
    is asked.

    Raises:
        CommandError: it is at another server, and the user did not agree.
    """
    if part.url is None or await client.is_own(part):
        return client.download(part)
    where = f"the agent names a file at another server, {part.url}"
    if not asks:
        raise CommandError(f"{where}; it is fetched only after a yes at a terminal")
    try:
        await settle()
        is_confirmed = await choose([(True, "yes"), (False, "no")], title=f"{where}. Fetch it?")
    except (LeftError, PressedError):
        is_confirmed = False
    if not is_confirmed:
        raise CommandError(f"{part.url} was not fetched", INTERRUPTED)
    return fetch_public(part.url)


async def fetch_public(url: str, policy: WebhookPolicy | None = None) -> AsyncGenerator[bytes]:
    """Yield the content of a foreign URL, if its address is public.

    Raises:
        ClientError: it is not public, or the file cannot be fetched.
    """
    tls = httpx.create_ssl_context()
    try:
        is_plain = read_url(url).scheme == "http"
        transport = public_transport(policy or WebhookPolicy(), tls, is_plain=is_plain)
        async with httpx.AsyncClient(transport=transport, headers=UNCOMPRESSED) as http:
            with translate_errors(url):
                async with http.stream("GET", url) as response:
                    await check_success(response)
                    async for piece in response.aiter_bytes():
                        yield piece
    except UnfitUrlError as error:
        raise InvalidError(f"{url} is not fetched: it {error}") from None
    except ForbiddenAddressError:
        raise InvalidError(
            f"{url} is not fetched: it is not https, or leads to a private or special address"
        ) from None


def _target(folder: Path, name: str, taken: Collection[Path] | None) -> Path:
    folder = folder.expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidError(f"{folder} is no folder to write to: {error.strerror}") from None
    return free_path(folder, name, taken)


def free_path(folder: Path, name: str, taken: Collection[Path] | None = None) -> Path:
    """Return a free path in the folder for a file name; names from the server cannot lead out of it.

    `taken` are the paths that must not be overwritten; None: all existing ones.
    """
    name = "".join(filter(str.isprintable, Path(name.replace("\\", "/")).name)).lstrip(".") or "artifact"
    path, number = folder / name, 2
    while path.exists() if taken is None else path in taken:
        path = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
        number += 1
    return path


def _files_of(artifact: Artifact) -> list[Part]:
    return [part for part in artifact.parts if part.text != ""]


def _ending(part: Part) -> str:
    return ".json" if part.is_data else ".txt" if part.text is not None else ""
