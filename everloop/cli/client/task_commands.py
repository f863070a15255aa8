"""`everloop tasks`: inspect tasks, answer them, and resume them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from everloop.cli.client.context_commands import Yes, delete_for_good
from everloop.cli.client.gateway_calls import (
    EXIT_CODES,
    MOST_LISTED,
    AgentId,
    ContextId,
    Folder,
    Gateway,
    Limit,
    ProfileName,
    TaskId,
    ask,
    finish,
    follow_task,
    print_found,
    run_with_client,
)
from everloop.cli.output import (
    INTERRUPTED,
    NOTHING,
    AsJson,
    CommandError,
    fields_of,
    local_time,
    misused,
    option,
    print_json,
    print_line,
)

if TYPE_CHECKING:
    from pydantic import JsonValue

    from everloop.cli.client.question_answering import TypedAnswer
    from everloop.client import Client, Decision, Event, Question, Result, UsageReport

HEAD = ("TASK", "STATE", "UPDATED", "CONTEXT")

app = typer.Typer(
    no_args_is_help=True,
    help="List, show, answer, fork and delete tasks.",
    epilog=EXIT_CODES,
)

QuestionId = Annotated[str, option("ID", "Question to answer (default: the oldest one).", name="--question")]
Detach = Annotated[bool, typer.Option("--detach", help="Do not follow the task afterwards.")]
Note = Annotated[str, option("TEXT", "Reason, which the model reads.", name="--note")]


def _check_state(state: str) -> str:
    from everloop.client import TaskState

    if state and state not in {*TaskState}:
        raise misused(f"--state: there is no state {state!r}; there are {', '.join(TaskState)}")
    return state


@app.command(name="list")
def list_(  # noqa: PLR0913 -- each is an option
    *,
    agent: AgentId = "",
    state: Annotated[str, option("STATE", "State: working, input-required, completed, …", _check_state)] = "",
    context: ContextId = "",
    limit: Limit = MOST_LISTED,
    as_json: AsJson = False,
    profile: ProfileName = "",
) -> None:
    """List tasks of all agents, the most recently changed first."""
    found = ask(lambda gateway: _listed(gateway, state, context, limit), profile, agent)
    nothing = 'there are no such tasks; `everloop send "…"` begins one'
    print_found(found, HEAD, _row, nothing, as_json=as_json)


async def _listed(gateway: Gateway, state: str, context: str, limit: int) -> "list[Result]":
    agents = [gateway.agent]
    if not gateway.agent:
        async with gateway.client() as client:
            agents = [each.id for each in await client.agents()]

    async def of(agent: str) -> "list[Result]":
        async with gateway.profile.client(agent) as client:
            listed = client.tasks(state=state or None, context_id=context, limit=limit)
            return [task async for task in listed]

    found = [task for tasks in await asyncio.gather(*map(of, agents)) for task in tasks]
    found.sort(key=lambda task: task.updated_at.timestamp() if task.updated_at else 0, reverse=True)
    return found[:limit]


def _row(task: "Result") -> tuple[str, str, str, str]:
    return task.id, task.state, local_time(task.updated_at) or NOTHING, task.context_id


@app.command()
def show(
    task: TaskId,
    *,
    transcript: Annotated[
        bool, typer.Option("--transcript", help="Show the messages as the model reads them.")
    ] = False,
    as_json: AsJson = False,
    profile: ProfileName = "",
) -> None:
    """Show a task: its state, questions, calls, usage, and answer."""
    from everloop.cli.client import task_reports

    if transcript:
        messages = run_with_client(lambda client: client.transcript(task), profile, task_id=task)
        if as_json:
            print_json(messages)
        else:
            task_reports.print_transcript(messages)
        return
    found, usage = run_with_client(lambda client: _read(client, task), profile, task_id=task)
    if as_json:
        report = cast("dict[str, object]", fields_of(found))
        print_json(report | ({"usage_report": usage} if usage else {}))
    else:
        task_reports.print_task(found, usage, profile)


async def _read(client: "Client", task: str) -> "tuple[Result, UsageReport | None]":
    from everloop.client import ExtensionMissingError

    found = await client.task(task)
    try:
        return found, await client.usage(task)
    except ExtensionMissingError:
        return found, None


@app.command()
def watch(task: TaskId, *, save: Folder = None, as_json: AsJson = False, profile: ProfileName = "") -> None:
    """Follow a task to its end, and answer its questions. Ctrl-C detaches from it, twice cancels it."""
    follow_task(lambda client: client.watch(task), profile, task_id=task, folder=save, as_json=as_json)


@app.command()
def cancel(task: TaskId, *, as_json: AsJson = False, profile: ProfileName = "") -> None:
    """Cancel a task. Repeating it is not an error."""
    canceled = run_with_client(lambda client: client.cancel(task), profile, task_id=task)
    if as_json:
        print_json(canceled)
    else:
        print_line(f"{canceled.id} is {canceled.state}")


@app.command(
    epilog="""    everloop tasks answer TASK "the blue one"

    everloop tasks answer TASK --data '{"adults": 2}'

    everloop tasks answer TASK - < secret.txt"""
)
def answer(  # noqa: PLR0913 -- each is an option
    task: TaskId,
    value: Annotated[
        str,
        typer.Argument(metavar="[VALUE]", help="The answer; `-` reads it from stdin.", show_default=False),
    ] = "",
    *,
    data: Annotated[str, option("JSON", "The answer as JSON, if it is not a text.")] = "",
    question: QuestionId = "",
    detach: Detach = False,
    as_json: AsJson = False,
    profile: ProfileName = "",
) -> None:
    """Answer a question of a task, and follow it. Without a value the terminal asks for one."""
    if value and data:
        raise misused("give the answer as VALUE or as --data, not both")
    said = _value(value, data)
    if said is None:
        watch(task, as_json=as_json, profile=profile)
    if not (question or as_json):
        said, question = run_with_client(lambda client: _confirmed(client, task, said), profile, task_id=task)
    _give(task, said, question, profile, detach=detach, as_json=as_json)


def _value(value: str, data: str) -> "JsonValue":
    if data:
        try:
            return cast("JsonValue", json.loads(data))
        except ValueError as error:
            raise misused(f"--data is not JSON: {error}") from None
    if value != "-":
        return value or None
    from everloop.cli.client.message_files import text_of_stdin

    return text_of_stdin().removesuffix("\n")


def _give(  # noqa: PLR0913 -- all have names
    task: str, said: "JsonValue", question: str, profile: str, *, detach: bool, as_json: bool
) -> None:
    """Send an answer, and follow the task."""

    def begin(client: "Client") -> "AsyncGenerator[Event] | Awaitable[Result]":
        if detach:
            return _answered(client, task, said, question, profile)
        from everloop.client import Part

        content = said if isinstance(said, str) else Part(data=said)
        return client.stream(content, task_id=task, question_id=question)

    follow_task(begin, profile, task_id=task, as_json=as_json)


async def _answered(client: "Client", task: str, said: "JsonValue", question: str, profile: str) -> "Result":
    from everloop.cli.client.question_answering import has_ended
    from everloop.client import InvalidError

    try:
        return await client.answer(task, said, question_id=question, detach=True)
    except InvalidError as error:
        found = await client.task(task)
        if found.is_done:
            raise has_ended(found, profile) from error
        raise


@app.command()
def approve(  # noqa: PLR0913 -- each is an option
    task: TaskId,
    *,
    no: Annotated[bool, typer.Option("--no", help="Reject the call.")] = False,
    note: Note = "",
    question: QuestionId = "",
    detach: Detach = False,
    as_json: AsJson = False,
    profile: ProfileName = "",
) -> None:
    """Approve a tool call of your task or, with a scope that approves, of another owner's.

    At a terminal the call is shown first, unless --question names it.
    """
    verdict: dict[str, JsonValue] = {"approved": not no, "note": note}
    is_sure = bool(question or no or as_json)
    decided = ask(lambda gateway: _decide(gateway, task, question, verdict, is_sure=is_sure), profile)
    if decided and as_json:
        print_json(decided)
        return
    if decided:
        print_line(f"{'approved' if decided.approved else 'rejected'} {decided.question} of {task}")
        return
    if not is_sure:
        said, question = run_with_client(
            lambda client: _confirmed(client, task, verdict), profile, task_id=task
        )
    else:
        said = verdict
    _give(task, said, question, profile, detach=detach, as_json=as_json)


async def _confirmed(client: "Client", task: str, said: "JsonValue") -> "tuple[JsonValue, str]":
    """Return an answer to the oldest question, and its id; at a terminal a yes or no is confirmed.

    The task may ask another question by now than the one that the user read.
    """
    from everloop.cli.client.prompts import is_interactive
    from everloop.cli.client.question_answering import OWNER

    if not is_interactive():
        return said, ""
    own_questions = [one for one in (await client.task(task)).questions if one.approvers == OWNER]
    if not own_questions or own_questions[0].kind != "confirmation":
        return said, own_questions[0].id if own_questions else ""
    answer = await _ask_here(own_questions[0])
    return answer.value, answer.question_id


async def _ask_here(question: "Question") -> "TypedAnswer":
    """Show a question, and return the answer of the user.

    Raises:
        CommandError: there was no answer.
    """
    from everloop.cli.client.prompts import LeftError, PressedError
    from everloop.cli.client.question_answering import ask_question, show_question
    from everloop.cli.client.screen import Screen

    say = Screen().say
    show_question(question, say)
    try:
        return await ask_question(question, say)
    except (LeftError, PressedError):
        raise CommandError("nothing was answered; the question stays open", INTERRUPTED) from None


async def _decide(
    gateway: Gateway, task: str, question: str, verdict: "dict[str, JsonValue]", *, is_sure: bool
) -> "Decision | None":
    """Answer in the owner's place, if the caller's scopes permit; return the answer, None if they do not.

    Raises:
        CommandError: the task has another owner, and no question for the caller.
    """
    from everloop.cli.client.prompts import is_interactive
    from everloop.client import ExtensionMissingError, ForbiddenError, NotFoundError, Question

    async with await gateway.client_of(task) as client:
        try:
            waiting = [each async for each in client.approvals() if each.task_id == task]
        except (ExtensionMissingError, ForbiddenError):
            return None
        if asks_us := next((one for one in waiting if question in {"", one.question_id}), None):
            if not is_sure and is_interactive():
                shown = Question(
                    id=asks_us.question_id, kind="confirmation", text=asks_us.text, purpose="approval"
                )
                verdict = cast("dict[str, JsonValue]", (await _ask_here(shown)).value)
            said, note = bool(verdict["approved"]), str(verdict["note"])
            return await client.decide(task, asks_us.question_id, approved=said, note=note)
        try:
            await client.task(task)
        except (ForbiddenError, NotFoundError):
            raise CommandError(
                f"nothing of task {task} waits for you: it has been answered already, it asks somebody else, "
                "or the task has ended"
            ) from None
        return None


@app.command()
def fork(  # noqa: PLR0913 -- each is an option
    task: TaskId,
    message: Annotated[
        str,
        typer.Argument(
            metavar="[MESSAGE]", help="Message to continue with; `-` reads it from stdin.", show_default=False
        ),
    ] = "",
    *,
    iteration: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Last iteration to copy (default: all).")
    ] = None,
    agent: Annotated[str, option("ID", "Agent of the new task (default: the same agent).")] = "",
    model: Annotated[str, option("MODEL", "Model of the new task (default: the agent's).")] = "",
    detach: Detach = False,
    as_json: AsJson = False,
    profile: ProfileName = "",
) -> None:
    """Start a new task from the transcript of another. No call of it is repeated."""
    said = _value(message, "")
    content = [said] if isinstance(said, str) else []
    begun = run_with_client(
        lambda client: client.fork(task, *content, iteration=iteration, agent=agent, model=model),
        profile,
        task_id=task,
    )
    if detach:
        finish(begun, profile, detach=True, as_json=as_json)
    watch(begun.id, as_json=as_json, profile=profile)


@app.command()
def export(
    task: TaskId,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="File (default: TASK.json).", dir_okay=False)
    ] = None,
    *,
    profile: ProfileName = "",
) -> None:
    """Export an ended task as a test case, which `everloop.testing.Case` plays."""
    from everloop.testing.cases import export as export_case
    from everloop.testing.errors import CaseError

    target = file or Path(f"{task.replace('/', '-')}.json")

    async def work(client: "Client") -> None:
        try:
            await export_case(client, task, target)
        except CaseError as error:
            raise CommandError(str(error)) from error

    run_with_client(work, profile, task_id=task)
    print_line(str(target))


@app.command()
def delete(task: TaskId, *, yes: Yes = False, as_json: AsJson = False, profile: ProfileName = "") -> None:
    """Delete a task with its sub-agents' tasks and its artifacts. A running task is ended."""
    delete_for_good(
        f"the task {task} with its artifacts",
        lambda client: client.delete_task(task),
        profile,
        is_sure=yes,
        as_json=as_json,
    )
