"""`everloop contexts`: list, show and permanently delete conversations."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from everloop.cli.client.gateway_calls import (
    MOST_LISTED,
    ContextArgument,
    Limit,
    ProfileName,
    print_found,
    run_with_client,
)
from everloop.cli.output import (
    INTERRUPTED,
    NOTHING,
    AsJson,
    CommandError,
    cut,
    local_time,
    misused,
    option,
    print_fields,
    print_json,
    print_line,
)

if TYPE_CHECKING:
    from everloop.client import Client, Context, ConversationMessage, Deletion

HEAD = ("CONTEXT", "TITLE", "TASKS", "AGENTS", "UPDATED")
PAUSE = 0.3
"""Seconds between polls of a deletion."""

LONGEST_TITLE = 60

app = typer.Typer(no_args_is_help=True, help="List, show and delete conversations.")

Yes = Annotated[bool, typer.Option("--yes", help="Delete without confirmation.")]


@app.command(name="list")
def list_(
    *,
    query: Annotated[str, option("TEXT", "Text in the titles.")] = "",
    limit: Limit = MOST_LISTED,
    as_json: AsJson = False,
    profile: ProfileName = "",
) -> None:
    """List conversations, the most recently changed first."""
    found = run_with_client(lambda client: _listed(client, query, limit), profile)
    nothing = 'there are no such conversations; `everloop send "…"` begins one'
    print_found(found, HEAD, _row, nothing, as_json=as_json)


async def _listed(client: "Client", query: str, limit: int) -> "list[Context]":
    found: list[Context] = []
    async for each in client.contexts(query=query):
        found.append(each)
        if len(found) == limit:
            break
    return found


def _row(context: "Context") -> tuple[str, ...]:
    title = " ".join(context.title.split())
    open_ = f" ({context.open_tasks} open)" if context.open_tasks else ""
    agents = ", ".join(context.agents) or NOTHING
    return (
        context.id,
        cut(title, LONGEST_TITLE) or NOTHING,
        f"{context.tasks}{open_}",
        agents,
        local_time(context.updated_at),
    )


@app.command()
def show(context: ContextArgument, *, as_json: AsJson = False, profile: ProfileName = "") -> None:
    """Show a conversation: its messages and tool calls."""
    found, messages = run_with_client(lambda client: _read(client, context), profile)
    from everloop.cli.client import task_reports

    if as_json:
        print_json({"context": found, "messages": messages})
        return
    print_fields(
        {
            "context": found.id,
            "title": found.title,
            "tasks": str(found.tasks),
            "agents": ", ".join(found.agents),
            "created": local_time(found.created_at),
            "updated": local_time(found.updated_at),
            "kept for": found.retention or "",
        }
    )
    print_line("")
    task_reports.print_transcript(messages)


async def _read(client: "Client", context: str) -> "tuple[Context, list[ConversationMessage]]":
    return await client.context(context), [each async for each in client.conversation(context)]


@app.command()
def delete(
    context: ContextArgument, *, yes: Yes = False, as_json: AsJson = False, profile: ProfileName = ""
) -> None:
    """Delete a conversation with its tasks and artifacts. Running tasks are ended."""
    delete_for_good(
        f"the conversation {context} with all its tasks and artifacts",
        lambda client: client.delete_context(context),
        profile,
        is_sure=yes,
        as_json=as_json,
    )


def delete_for_good(
    what: str,
    begin: "Callable[[Client], Awaitable[Deletion]]",
    profile: str,
    *,
    is_sure: bool,
    as_json: bool,
) -> None:
    """Delete an item permanently after confirmation, and report the removed data.

    Raises:
        CommandError: it was not confirmed, or it failed.
    """
    if not is_sure:
        _make_sure(what)
    done = run_with_client(lambda client: _deleted(client, begin), profile)
    if as_json:
        print_json(done)
    if done.state == "failed":
        raise CommandError(
            f"the deletion {done.id} of {what} failed; delete it again, nothing comes back by that"
        )
    if not as_json:
        removed = done.removed
        counts = {"task": removed.tasks, "artifact": removed.artifacts, "blob": removed.blobs}
        words = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items())
        print_line(f"deleted {what}: {words}")


def _make_sure(what: str) -> None:
    from everloop.cli.client.prompts import LeftError, PressedError, choose, is_interactive, settle

    if not is_interactive():
        raise misused(f"to delete {what} takes --yes without a terminal")

    async def is_confirmed() -> bool:
        await settle()
        return await choose([(False, "no"), (True, "yes, delete it for good")], title=f"Delete {what}?")

    try:
        said = asyncio.run(is_confirmed())
    except (LeftError, PressedError):
        said = False
    if not said:
        raise CommandError("nothing was deleted", INTERRUPTED)


async def _deleted(client: "Client", begin: "Callable[[Client], Awaitable[Deletion]]") -> "Deletion":
    """Start a deletion, and wait until it is done: it goes on in the server even if this process ends."""
    deletion = await begin(client)
    while deletion.state == "running":
        await asyncio.sleep(PAUSE)
        deletion = await client.deletion(deletion.id)
    return deletion
