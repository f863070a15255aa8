"""Long results: the model gets the beginning, and reads the rest in pages."""

import re
from collections.abc import Callable, Sequence

import pytest
from temporalio.testing import ActivityEnvironment

from everloop.activities.tools.tool_results import bounded
from everloop.agents.guard import guard
from everloop.agents.hooks import Veto
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.stores.artifacts.artifact_errors import ArtifactOvertakenError
from everloop.stores.tool_records import ToolRecords
from everloop.workflows.contract.calls import StoreResultInput
from everloop.workflows.contract.events import ToolCompleted
from everloop.workflows.contract.messages import ToolCall, ToolMessage
from everloop.workflows.contract.names import call_key, result_artifact
from tests.support.fakes.failing import failing
from tests.support.rigs.artifacts.rig import CONTEXT, RecordingArtifacts, content_of
from tests.support.rigs.tool_rig import ToolRig, after, before
from tests.support.stores import database

MOST = 65_536


async def pages(rig: ToolRig, result: ToolMessage) -> tuple[str, list[str]]:
    """Return the complete result as the model reads it, and the pages after the beginning."""
    shown, _, note = result.content.rpartition("\n")
    read = list[str]()
    next_one = re.fullmatch(
        r'\[[\d,]+ of [\d,]+ characters; read on with read_result\("(\S+)", start=(\d+)\)\]', note
    )
    assert next_one
    name, start = next_one[1], next_one[2]
    while start:
        call = rig.call("read_result", f'{{"result": "{name}", "start": {start}}}', call_id=f"read-{start}")
        page = await rig.run(call)
        assert (page.outcome, page.whole) == ("ok", 0)
        more = re.search(r"\n\[more from start=(\d+) on\]$", page.content)
        read.append(page.content[: more.start()] if more else page.content)
        start = more[1] if more else ""
    return shown + "".join(read), read


def reciting(text: str) -> Callable[[], str]:
    def recite() -> str:
        """Recite."""
        return text

    return recite


async def test_a_long_result_is_read_on_to_its_last_character() -> None:
    """A result of 5 MB in any script is read to its end, in pages of at most a result, without approvals."""
    text = "".join(f"{number} é漢😀\n" for number in range(300_000))
    heard = list[str]()

    def note(said: ToolCall | ToolMessage) -> None:
        heard.append(said.name)

    plugins = [before(note), after(note), guard(allow=["recite"], default="deny")]
    rig = ToolRig(tool(reciting(text)), plugins=plugins)
    result = await rig.run(rig.call("recite"))
    whole, read = await pages(rig, result)
    assert len(text.encode()) > 4_900_000
    assert result.whole == len(text.encode())
    assert len(result.content.partition("\n[")[0].encode()) <= MOST
    assert whole == text
    assert max(len(page.encode()) for page in read) <= MOST
    assert heard == ["recite", "recite"]


async def test_reading_on_needs_no_approval() -> None:
    """Reading on needs no approval, even if all calls do: the task already has the result."""
    rig = ToolRig(needs_approval=True)
    assert (await rig.run(rig.call("read_result", '{"result": "x"}'))).outcome == "error"
    assert (await rig.run(rig.call("read_attachment", '{"artifact_id": "x"}'))).outcome == "error"


@pytest.mark.parametrize(
    ("size", "most", "whole"), [(10, 10, 0), (11, 10, 11), (MOST, None, 0), (MOST + 1, None, MOST + 1)]
)
async def test_how_long_a_result_may_be(size: int, most: int | None, whole: int) -> None:
    """The limit of a result comes from the tool, else from the agent; a shorter one is not stored apart."""
    artifacts = RecordingArtifacts()
    rig = ToolRig(tool(max_result=most)(reciting("x" * size)), artifacts=artifacts)
    result = await rig.run(rig.call("recite"))
    assert (result.whole, result.kept != "", len(artifacts.changes)) == (whole, whole > 0, int(whole > 0))
    assert result.content.startswith("x" * (most or MOST if whole else size))
    completed = (await rig.events())[-1]
    assert isinstance(completed, ToolCompleted)
    assert (completed.size, completed.cut) == (size, size > 16_000 or whole > 0)
    assert result.artifacts == ()
    assert await artifacts.list_artifacts(CONTEXT) == []


async def kept_by(rig: ToolRig, result: ToolMessage) -> str:
    return (await content_of(rig, result_artifact(rig.task_id, result.kept))).decode()


async def test_what_is_kept_is_what_the_model_may_read() -> None:
    """The stored result is the one that the model may read.

    Redacted, changed by plugins, also of a failure.
    """

    @tool(max_result=50)
    async def log(context: ToolContext, fails: bool = False) -> str:  # noqa: FBT001, FBT002 -- a model's argument
        """Log."""
        token = await context.secret("token")
        if fails:
            raise ValueError(f"{token} " * 100)
        return f"{token} name " * 100

    def without_names(result: ToolMessage) -> ToolMessage | Veto:
        return result.model_copy(update={"content": result.content.replace("name", "***")})

    rig = ToolRig(log, plugins=[after(without_names)])
    await rig.supply("token", "geheim-123")
    returned = await rig.run(rig.call("log"))
    failed = await rig.run(rig.call("log", '{"fails": true}'))
    assert await kept_by(rig, returned) == "[secret] *** " * 100
    assert failed.outcome == "error"
    assert await kept_by(rig, failed) == f"ValueError: {'[secret] ' * 100}"


async def test_what_is_no_character_is_none_to_the_model_either() -> None:
    """An unpaired surrogate from a tool or a plugin is replaced, because no record could hold it."""
    from_tool = await ToolRig(tool(reciting("a\ud800"))).run(ToolRig().call("recite"))
    plugin = after(lambda result: result.model_copy(update={"content": "b\udc00"}))
    rig = ToolRig(tool(reciting("a")), plugins=[plugin])
    from_plugin = await rig.run(rig.call("recite"))
    assert (from_tool.content, from_plugin.content) == ("a?", "b?")


async def test_a_result_that_cannot_be_kept_is_cut_and_says_so() -> None:
    """A result that cannot be stored is cut with a note, and the tool does not run again."""
    artifacts = RecordingArtifacts()
    rig = ToolRig(tool(max_result=10)(reciting("é" * 20)), artifacts=artifacts)
    artifacts.fails_before = lambda _: ArtifactOvertakenError("x")
    result = await rig.run(rig.call("recite"))
    assert result.content == (
        "ééééé\n[5 of 20 characters; the rest could not be kept; if you need it, ask for less at once]"
    )
    assert (result.outcome, result.whole, result.kept) == ("ok", 40, "")


async def test_a_store_that_is_away_is_waited_for() -> None:
    """A store that is away is waited for; then the result is cut."""
    artifacts = RecordingArtifacts()
    rig = ToolRig(tool(max_result=10)(reciting("x" * 20)), artifacts=artifacts)
    artifacts.fails_before = lambda number: BlobsUnavailableError("s3", "full") if number == 1 else None
    assert (await rig.run(rig.call("recite"))).kept
    artifacts.fails_before = lambda _: BlobsUnavailableError("s3", "full")
    result = ToolMessage(call_id="call", name="recite", content="x" * 20)
    assert not (await bounded(result, 10, artifacts, rig.task, "key", max_outage=0)).kept


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_worker_that_dies_with_a_result_kept_leaves_one_artifact(*, idempotent: bool) -> None:
    """After a crash, an idempotent tool stores its result in the same artifact.

    Another's outcome is unknown.
    """
    texts = ["first " * 10, "second " * 10]

    @tool(idempotent=idempotent, max_result=10)
    def recite() -> str:
        """Recite."""
        return texts.pop(0)

    artifacts = RecordingArtifacts()
    records = failing(ToolRecords(database()), "finishing", error=RuntimeError("killed"), times=1)
    rig = ToolRig(recite, artifacts=artifacts, records=records)
    call = rig.call("recite")
    with pytest.raises(RuntimeError, match="killed"):
        await rig.attempt_call(call)
    await rig.take_for_lost(call)
    result = await rig.attempt_call(call)
    again = await rig.attempt_call(call)
    assert isinstance(result, ToolMessage)
    assert again == result
    if idempotent:
        assert await kept_by(rig, result) == "second " * 10
        assert len(artifacts.changes) == 2
    else:
        assert (result.outcome, result.whole) == ("unknown", 0)


async def test_the_answer_of_a_sub_agent_is_bounded_too() -> None:
    """A sub-agent's answer is bounded, the same for model and workflow in each run.

    A short one is not sent.
    """
    rig = ToolRig()
    written = ToolCall(id="call", name="writer", arguments="{}")
    long = StoreResultInput(
        task=rig.task, position=0, result=written.result("x" * 70_000), key=call_key(written)
    )
    short = long.model_copy(update={"position": 1, "result": written.result("x")})
    stored: Sequence[ToolMessage | None] = [
        await ActivityEnvironment().run(rig.port.store_result, call) for call in (long, long, short)
    ]
    opened = await rig.transcripts.open(rig.task_id, "run", 2)
    assert stored[0]
    assert stored == [stored[0], stored[0], None]
    assert opened.messages == (stored[0], short.result)
    assert (await pages(rig, stored[0]))[0] == "x" * 70_000


async def test_a_result_is_for_its_task_alone() -> None:
    """Only its own task reads on in a result; no tool overwrites, deletes or lists it."""

    @tool
    async def meddle(artifact_id: str, context: ToolContext) -> str:
        """Meddle."""
        said = [f"{len(await context.artifacts.list())} listed"]
        for act in (context.artifacts.write_file(artifact_id, "x"), context.artifacts.delete(artifact_id)):
            try:
                await act
            except ValueError as error:
                said.append(str(error))
        return "\n".join(said)

    rig = ToolRig(tool(max_result=10)(reciting("x" * 20)), meddle)
    result = await rig.run(rig.call("recite"))
    artifact_id = result_artifact(rig.task_id, result.kept)
    meddled = await rig.run(rig.call("meddle", f'{{"artifact_id": "{artifact_id}"}}'))
    said = "ids that begin with 'everloop-result-' are for long results; choose another one"
    assert meddled.content.split("\n") == ["0 listed", said, said]
    as_attachment = await rig.run(rig.call("read_attachment", f'{{"artifact_id": "{artifact_id}"}}'))
    assert "which only read_result reads" in as_attachment.content
    rig.task_id = "another"
    elsewhere = await rig.run(rig.call("read_result", f'{{"result": "{result.kept}"}}'))
    assert elsewhere.outcome == "error"
    assert f"this task has kept no result '{result.kept}'" in elsewhere.content
