"""`everloop send` and `everloop tasks` in pipes: their output for programs, and their ends."""

import json
import shlex
from pathlib import Path

import pytest

from everloop.client import Client
from tests.acceptance.cli.terminal import Shell
from tests.support.rigs.deployment import Service
from tests.support.rigs.people import call
from tests.support.servers.scripted_openai import Refusal, Reply, tool_call

REPORT = [Reply(["Let me see.", tool_call("report", '{"words": "one two"}')]), Reply(["The ", "answer."])]


async def test_a_pipe_gets_the_answer_and_nothing_else(service: Service, shell: Shell) -> None:
    """Drafts are left out; calls, usage and ids go to stderr, without control sequences."""
    service.script(REPORT)
    ran = await shell.run("send", "Report.")
    assert (ran.code, ran.out) == (0, "The answer.\n")
    assert '✓ report(words="one two") → reported' in ran.err
    assert "1 tool call · 20 in, 10 out" in ran.err
    assert "\x1b" not in ran.out + ran.err


async def test_json_is_one_document_with_the_names_of_the_client(service: Service, shell: Shell) -> None:
    service.script(REPORT)
    ran = await shell.run("send", "Report.", "--json", "--context", "c-1")
    told = json.loads(ran.out)
    assert (told["state"], told["text"], told["context_id"]) == ("completed", "The answer.", "c-1")
    assert told["tool_calls"][0]["arguments"] == {"words": "one two"}
    assert told["usage"]["input_tokens"] == 20


@pytest.mark.slow
async def test_a_message_and_a_file_may_come_from_stdin(service: Service, shell: Shell) -> None:
    service.script([Reply(["Read."])])
    assert (await shell.run("send", "-", stdin="From a pipe")).code == 0
    assert "From a pipe" in json.dumps(service.model.requests[-1].messages)
    service.script([Reply(["Read."])])
    assert (await shell.run("send", "Look.", "--file", "-", stdin="a,b")).code == 0
    both = await shell.run("send", "-", "--file", "-", stdin="x")
    assert (both.code, both.out) == (2, "")
    empty = await shell.run("send", "-")
    assert empty.err == "everloop: stdin is empty; pipe the message into the command\n"


async def test_the_exit_code_is_the_state(service: Service, shell: Shell) -> None:
    """A task that fails ends the command with 3; a missing gateway, with 1 and the remedy."""
    service.script([Refusal(400, "no such model", "model_not_found")])
    failed = await shell.run("send", "Report.")
    assert (failed.code, failed.out) == (3, "")
    assert "✗ failed: " in failed.err
    away = await shell.run("send", "Report.", "--profile", "http://127.0.0.1:1")
    assert away.code == 1
    assert away.err.startswith("everloop: no answer from http://127.0.0.1:1 (its address): ")
    assert (await shell.run("send", "Report.", "--agent", "none")).code == 1


async def test_a_question_in_a_pipe_is_answered_by_the_command_that_it_names(
    service: Service, shell: Shell, ledger: Path
) -> None:
    """The first command ends with 6; the command that it proposes goes on with the task, to its end."""
    service.script([Reply([call("wipe", {"disk": "sda", "ledger": str(ledger)})]), Reply(["Done."])])
    asked = await shell.run("send", "Wipe.", "--agent", "desk")
    assert (asked.code, asked.out) == (6, "")
    (line,) = [line for line in asked.err.splitlines() if "everloop tasks approve" in line]
    proposed = shlex.split(line.partition("(or")[0])[1:]
    approved = await shell.run(*proposed)
    assert (approved.code, approved.out) == (0, "Done.\n")
    assert ledger.read_text() == '"sda"\n'
    for late in (proposed, [*proposed, "--detach"], ["tasks", "answer", proposed[2], "red"]):
        again = await shell.run(*late)
        assert (again.code, again.out) == (1, ""), again
        assert f"task {proposed[2]} is completed, and takes no answer any more; `everloop send" in again.err
        assert "taskId" not in again.err


@pytest.mark.slow
async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(
    service: Service, shell: Shell, ledger: Path
) -> None:
    service.script([Reply([call("book", {"kind": "data", "ledger": str(ledger)})]), Reply(["Booked."])])
    task = json.loads((await shell.run("send", "Book.", "--agent", "desk", "--json")).out)["id"]
    wrong = await shell.run("tasks", "answer", task, "--data", '{"adults": 99}')
    assert wrong.code == 6
    assert "maximum" in wrong.err
    right = await shell.run("tasks", "answer", task, "--data", '{"adults": 2}')
    assert (right.code, right.out) == (0, "Booked.\n")
    assert (await shell.run("tasks", "answer", task, "--data", "{")).code == 2


@pytest.mark.slow
async def test_a_task_that_was_left_is_listed_shown_watched_and_forked(
    service: Service, shell: Shell, tmp_path: Path
) -> None:
    """`--detach` prints its id; the id alone finds its agent."""
    service.script(REPORT)
    left = await shell.run("send", "Report.", "--detach")
    task = left.out.strip()
    assert f"everloop tasks watch {task}" in left.err
    watched = await shell.run("tasks", "watch", task)
    assert (watched.code, watched.out) == (0, "The answer.\n")
    listed = json.loads((await shell.run("tasks", "list", "--limit", "1", "--json")).out)
    assert [each["id"] for each in listed] == [task]
    shown = await shell.run("tasks", "show", task)
    assert "report  ok       reported" in shown.out
    assert shown.out.endswith("Answer\nThe answer.\n")
    transcript = await shell.run("tasks", "show", task, "--transcript")
    assert "user" in transcript.out
    assert "  Report." in transcript.out
    exported = await shell.run("tasks", "export", task, "case.json")
    assert exported.out == "case.json\n"
    assert json.loads((tmp_path / "case.json").read_text())["expected"]["text"] == "The answer."
    service.script([Reply(["Otherwise."])])
    forked = await shell.run("tasks", "fork", task, "And now?")
    assert (forked.code, forked.out) == (0, "Otherwise.\n")
    assert (await shell.run("tasks", "cancel", task)).code == 1


@pytest.mark.slow
async def test_files_are_put_listed_and_fetched(service: Service, shell: Shell, tmp_path: Path) -> None:
    """Files of a message are kept; no existing file is overwritten."""
    (tmp_path / "notes.txt").write_text("eins zwei")
    service.script([Reply(["Kept."])])
    put = await shell.run("artifacts", "put", "notes.txt", "--context", "files-1", "--agent", "artifacts")
    assert put.code == 0, put.err
    listed = json.loads((await shell.run("artifacts", "list", "files-1", "--json")).out)
    (artifact,) = [each["artifact_id"] for each in listed]
    to_stdout = await shell.run("artifacts", "get", "files-1", artifact, "--to", "-")
    assert to_stdout.out == "eins zwei"
    saved = await shell.run("artifacts", "get", "files-1", artifact)
    assert saved.out == "notes-2.txt\n"
    assert (tmp_path / "notes-2.txt").read_text() == "eins zwei"
    service.script([Reply([call("write_table", {"artifact_id": "table", "rows": 5})]), Reply(["Written."])])
    made = await shell.run(
        "send", "Go.", "--agent", "artifacts", "--context", "files-1", "--save", str(tmp_path / "made")
    )
    assert made.code == 0, made.err
    fetched = await shell.run("artifacts", "get", "files-1", "table", "--to", "new/")
    assert fetched.out == "new/table.jsonl\n"
    (table,) = (tmp_path / "made").iterdir()
    assert table.read_text() == (tmp_path / "new" / "table.jsonl").read_text()
    assert [json.loads(line)["number"] for line in table.read_text().splitlines()] == [*range(5)]
    missing = await shell.run("artifacts", "get", "files-1", "none")
    assert (missing.code, artifact in missing.err) == (1, True)


async def test_agents_of_the_gateway_are_listed(service: Service, shell: Shell) -> None:
    async with Client(service.gateway.url) as client:
        named = [each.id for each in await client.agents()]
    listed = json.loads((await shell.run("agents", "--json")).out)
    assert [each["id"] for each in listed] == named


@pytest.mark.slow
async def test_a_conversation_is_found_read_and_deleted_for_good(service: Service, shell: Shell) -> None:
    """Nothing is deleted without a terminal, unless with `--yes`; then nothing of it is left."""
    service.script(REPORT)
    await shell.run("send", "A remarkable report, please.", "--context", "kept-1")
    listed = json.loads((await shell.run("contexts", "list", "--query", "remarkable", "--json")).out)
    assert [(each["id"], each["tasks"]) for each in listed] == [("kept-1", 1)]
    shown = await shell.run("contexts", "show", "kept-1")
    assert "A remarkable report, please." in shown.out
    assert "The answer." in shown.out
    unsure = await shell.run("contexts", "delete", "kept-1")
    assert (unsure.code, "--yes" in unsure.err) == (2, True)
    deleted = await shell.run("contexts", "delete", "kept-1", "--yes")
    assert (deleted.code, "1 task" in deleted.out) == (0, True), deleted.err
    assert (await shell.run("contexts", "show", "kept-1")).code == 1


@pytest.mark.slow
async def test_a_task_is_deleted_for_good(service: Service, shell: Shell) -> None:
    service.script([Reply(["Gone soon."])])
    task = json.loads((await shell.run("send", "Say it.", "--json")).out)["id"]
    assert (await shell.run("tasks", "delete", task, "--yes")).code == 0
    gone = await shell.run("tasks", "show", task)
    assert gone.code == 1
    assert gone.err.startswith(f"everloop: no task '{task}' here; ")
