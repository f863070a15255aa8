"""`everloop artifacts`: download artifacts of agents, and upload files for them."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from everloop.cli.client.chat_commands import send_message
from everloop.cli.client.gateway_calls import (
    AgentId,
    ContextArgument,
    ContextId,
    ProfileName,
    print_found,
    run_with_client,
)
from everloop.cli.output import NOTHING, AsJson, CommandError, amount, local_time, option, print_line

if TYPE_CHECKING:
    from everloop.client import Client, Part, StoredArtifact

HEAD = ("CONTEXT", "ARTIFACT", "NAME", "STATUS", "SIZE", "TYPES", "UPDATED")
KEEP = "Here is {names}. Keep it, and say in a word what it is."

app = typer.Typer(no_args_is_help=True, help="List and fetch artifacts of agents, and send files.")


@app.command(name="list")
def list_(
    context: Annotated[
        str,
        typer.Argument(
            metavar="[CONTEXT]", help="Conversation of the artifacts (default: all).", show_default=False
        ),
    ] = "",
    *,
    task: Annotated[str, option("ID", "Task of the artifacts.")] = "",
    as_json: AsJson = False,
    profile: ProfileName = "",
) -> None:
    """List artifacts, files of messages included; those of a conversation the oldest first."""
    found = run_with_client(lambda client: _listed(client, context, task), profile)
    where = f" in the context {context}" if context else ""
    print_found(found, HEAD, _row, f"there are no artifacts{where}", as_json=as_json)


async def _listed(client: "Client", context: str, task: str) -> "list[StoredArtifact]":
    if context:
        return await client.stored_artifacts(context, task_id=task)
    return [one async for one in client.owner_artifacts() if task in {"", one.task_id}]


def _row(one: "StoredArtifact") -> tuple[str, ...]:
    sizes = [part.size for part in one.parts if part.size is not None]
    types = dict.fromkeys(part.media_type or part.kind for part in one.parts)
    name = one.name or next((part.filename for part in one.parts if part.filename), "")
    status = "a file of yours" if one.is_input else one.status
    size = amount(sum(sizes)) if sizes else NOTHING
    return (
        one.context_id,
        one.artifact_id,
        name or NOTHING,
        status,
        size,
        ", ".join(types),
        local_time(one.updated_at),
    )


@app.command(
    epilog="""    everloop artifacts get CONTEXT report

    everloop artifacts get CONTEXT report --to - | less"""
)
def get(
    context: ContextArgument,
    artifact: Annotated[str, typer.Argument(metavar="ARTIFACT", help="Artifact id.", show_default=False)],
    *,
    to: Annotated[
        str, option("PATH", "A file, a folder (`out/` creates it), or `-` for stdout (default: here).")
    ] = ".",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    profile: ProfileName = "",
) -> None:
    """Download an artifact of any size. The file appears when it is complete."""
    path, is_folder = Path(to).expanduser(), to.endswith("/")
    saved = run_with_client(
        lambda client: _get(client, context, artifact, path, is_folder=is_folder, force=force), profile
    )
    for path in saved:
        print_line(str(path))


async def _get(  # noqa: PLR0913 -- the flags have names
    client: "Client", context: str, artifact: str, to: Path, *, is_folder: bool, force: bool
) -> list[Path]:
    from everloop.cli.client.message_files import content_of, save_parts
    from everloop.cli.client.prompts import is_interactive
    from everloop.client.artifact_calls import write_file

    parts, asks = await _parts(client, context, artifact), is_interactive()
    if str(to) == "-":
        for part in parts:
            async for piece in await content_of(client, part, asks=asks):
                sys.stdout.buffer.write(piece)
        sys.stdout.flush()
        return []
    if is_folder or await asyncio.to_thread(to.is_dir) or len(parts) != 1:
        return await save_parts(client, parts, artifact, to, overwrites=force, asks=asks)
    if not force and await asyncio.to_thread(to.exists):
        raise CommandError(f"{to} is there already; give another --to, or --force to write over it")
    return [await write_file(to, await content_of(client, parts[0], asks=asks))]


async def _parts(client: "Client", context: str, artifact: str) -> "list[Part]":
    """Return the parts of an artifact: as stored by an Everloop, or as reported by A2A."""
    from everloop.cli.client.message_files import named_parts
    from everloop.client import ExtensionMissingError

    try:
        stored = await client.stored_artifacts(context)
    except ExtensionMissingError:
        return list((await client.artifact(context, artifact)).parts)
    parts_of = {one.artifact_id: named_parts(one) for one in stored}
    if artifact not in parts_of:
        names = ", ".join(parts_of) or "none"
        raise CommandError(f"there is no artifact {artifact!r} in the context {context} (there are: {names})")
    return parts_of[artifact]


@app.command()
def put(  # noqa: PLR0913 -- each is an option
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Files to send; `-` is stdin.")],
    *,
    context: ContextId = "",
    agent: AgentId = "",
    message: Annotated[str, option("TEXT", "Message to the agent about the files.")] = "",
    as_json: AsJson = False,
    profile: ProfileName = "",
) -> None:
    """Send files to an agent, as parts of a message, which the conversation stores."""
    names = ", ".join("stdin" if each == "-" else Path(each).name for each in files)
    text = message or KEEP.format(names=names)
    send_message(text, files, context, profile, agent=agent, as_json=as_json)
