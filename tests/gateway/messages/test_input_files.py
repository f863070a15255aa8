"""Files in messages: stored before their task starts, shown with it, and downloaded again."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from a2a.types.a2a_pb2 import GetTaskRequest, Part, SendMessageRequest, Task
from a2a.utils.errors import InvalidParamsError
from redis.asyncio import Redis
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl, RequestLimits
from everloop.gateway.context import ANONYMOUS
from everloop.gateway.operations.input_files import InputFiles
from everloop.gateway.requests.incoming_parts import InputFile
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.stores.artifacts.artifact_store import FRESH, Artifacts
from everloop.stores.artifacts.changes import Change, Create, NewPart
from everloop.stores.artifacts.rendering import RENDERED_PART_BYTES
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.stores.log.log_store import TaskViews
from everloop.stores.quotas import LimitSettings, Quotas
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.messages import FilePart, StoredPartRef
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.questions import QuestionKind
from everloop.workflows.contract.tasks import TaskState
from tests.gateway.harness import Named, RunningGateway, StoodIn, running_gateway, stand_in_worker, unique
from tests.gateway.messages.questions import ask
from tests.support.a2a_client import connected, request, send
from tests.support.stores import redis_of

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def with_parts(*parts: Part, message_id: str = "", task_id: str = "") -> SendMessageRequest:
    message = request(unique("files"), message_id=message_id, task_id=task_id, return_immediately=True)
    message.message.parts.extend(parts)
    return message


def png(content: bytes = PNG) -> Part:
    return Part(raw=content, media_type="Image/PNG", filename="plot 1.png")


async def inputs_of(gateway: RunningGateway, task: Task) -> Sequence[StoredArtifact]:
    return await gateway.artifacts.list_artifacts(context_key(ANONYMOUS, task.context_id))


async def test_a_file_is_stored_before_the_task_hears_of_it(
    stand_in: RunningGateway, client: Client, views: TaskViews
) -> None:
    """The workflow gets its location, with type, name and size; its bytes are an input of the context."""
    async with connected(stand_in.url, streaming=False) as a2a:
        task = await send(a2a, with_parts(png(), Part(url="https://there.example/a.pdf", filename="a.pdf")))
    (stored,) = await inputs_of(stand_in, task)
    (message,) = await StoodIn(client, views, task).messages()
    assert message.parts[1:] == (
        FilePart(
            media_type="image/png",
            filename="plot 1.png",
            size=len(PNG),
            stored=StoredPartRef(artifact_id=stored.artifact_id),
        ),
        FilePart(filename="a.pdf", url="https://there.example/a.pdf"),
    )
    assert stored.artifact_id.startswith("input-")
    assert (stored.is_input, stored.status, stored.task_id) == (True, "complete", task.id)
    context = context_key(ANONYMOUS, task.context_id)
    read = [piece async for piece in stand_in.artifacts.read_part(context, stored.artifact_id)]
    assert b"".join(read) == PNG


async def test_an_output_that_took_the_id_of_a_file_is_no_file(stand_in: RunningGateway) -> None:
    """The artifact under its id is checked before the file counts as stored."""
    message = with_parts(png())
    async with connected(stand_in.url, streaming=False) as a2a:
        task = await send(a2a, message)
        (stored,) = await inputs_of(stand_in, task)
        output = Create("other", (NewPart("text"),), override=True, complete=True)
        await stand_in.artifacts.apply(stored.context_id, stored.artifact_id, output)
        await send(a2a, message)
    (mended,) = await inputs_of(stand_in, task)
    assert (mended.is_input, mended.parts) == (True, stored.parts)


class AwayArtifacts(Artifacts):
    """Fails to store until it is back."""

    is_back = False

    async def apply(
        self,
        context_id: str,
        artifact_id: str,
        change: Change,
        *,
        operation_id: str = "",
        follows: str = "",
    ) -> StoredArtifact:
        if not self.is_back:
            raise BlobsUnavailableError("s3 at secret-key", "away")
        return await super().apply(context_id, artifact_id, change)


async def test_no_task_starts_while_its_files_cannot_be_kept(client: Client, views: TaskViews) -> None:
    """The client gets a retry time; sending the same message again starts the task.

    The refused message does not count among the owner's open tasks.
    """
    redis = redis_of(views)
    limits = RequestLimits(LimitSettings(max_open_tasks=1), Quotas(redis))
    artifacts = AwayArtifacts(redis, RedisBlobs(redis))
    queue, owner = unique("away"), unique("owner")
    params: dict[str, Any] = {
        "message": {
            "messageId": unique("m"),
            "role": "ROLE_USER",
            "parts": [{"raw": "aGk="}],
        },
        "configuration": {"returnImmediately": True},
    }
    async with (
        stand_in_worker(client, queue),
        running_gateway(
            client, views, queue=queue, artifacts=artifacts, access=AccessControl(Named(), limits)
        ) as gateway,
    ):
        await gateway.call(
            "SendMessage", {"message": {**params["message"], "messageId": "other"}}, owner=owner
        )
        refused = await gateway.call("SendMessage", params, owner=owner)
        before = (await gateway.call("ListTasks", {}, owner=owner)).json()["result"]["tasks"]
        artifacts.is_back, back_at = True, datetime.now(UTC)
        taken = await gateway.call("SendMessage", params, owner=owner)
        task_id = taken.json()["result"]["task"]["id"]
        started_at = (await client.get_workflow_handle(task_id).describe()).start_time
    assert started_at >= back_at
    assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
    assert "The blob store does not answer" in refused.text
    assert "secret-key" not in refused.text
    assert before == []
    assert taken.json()["result"]["task"]["history"][0]["parts"][0]["raw"] == "aGk="


async def test_a_message_that_is_repeated_stores_nothing_twice(stand_in: RunningGateway) -> None:
    """The same message finds its task; another file under the same message id is another task."""
    message = with_parts(png(), png())
    async with connected(stand_in.url, streaming=False) as a2a:
        first, second = await send(a2a, message), await send(a2a, message)
        message.message.parts[1].raw = PNG[1:]
        third = await send(a2a, message)
    assert first.id == second.id != third.id
    (stored,) = await inputs_of(stand_in, first)
    assert stored.version == 1


@pytest.mark.parametrize(
    ("size", "field"), [(0, "raw"), (RENDERED_PART_BYTES, "raw"), (RENDERED_PART_BYTES + 1, "url")]
)
async def test_the_history_shows_small_files_whole_and_large_ones_as_a_url(
    stand_in: RunningGateway, size: int, field: str
) -> None:
    """GetTask and SendMessage show the content up to 100 KB; the URL leads to the content."""
    content = b"x" * size
    async with connected(stand_in.url, streaming=False) as a2a:
        task = await send(a2a, with_parts(png(content)))
        again = await a2a.get_task(GetTaskRequest(id=task.id))
    part = task.history[0].parts[1]
    assert again.history[0] == task.history[0]
    assert (part.WhichOneof("content"), part.media_type, part.filename) == (field, "image/png", "plot 1.png")
    if field == "raw":
        assert part.raw == content
    else:
        assert part.url.startswith(stand_in.url)
        assert (await stand_in.http.get(part.url)).content == content


@pytest.mark.parametrize(("size", "count", "shown"), [(99_000, 12, 10), (10, 60, 50)])
async def test_copies_of_a_file_count_like_files(
    stand_in: RunningGateway, size: int, count: int, shown: int
) -> None:
    """Each part counts its bytes in the answer, whether or not another part has the same."""
    async with connected(stand_in.url, streaming=False) as a2a:
        task = await send(a2a, with_parts(*[png(b"x" * size)] * count))
    kinds = [part.WhichOneof("content") for part in task.history[0].parts[1:]]
    assert kinds == ["raw"] * shown + ["url"] * (count - shown)


@pytest.mark.parametrize("kind", list(QuestionKind))
async def test_a_file_is_no_answer(
    stand_in: RunningGateway, client: Client, views: TaskViews, kind: QuestionKind
) -> None:
    """It is refused with the expected form, and not stored: it may be a secret."""
    async with connected(stand_in.url, streaming=False) as a2a:
        task = await send(a2a, with_parts())
        state = TaskState.AUTH_REQUIRED if kind is QuestionKind.AUTH else TaskState.INPUT_REQUIRED
        await StoodIn(client, views, task).publish(state, questions=(ask(kind),))
        with pytest.raises(InvalidParamsError, match="a file does not answer question"):
            await send(a2a, with_parts(Part(raw=b"s3cret"), task_id=task.id))
    assert await inputs_of(stand_in, task) == []


@pytest.mark.parametrize(("age", "version"), [(FRESH - timedelta(hours=1), 1), (FRESH, 2)])
async def test_a_file_that_was_stored_long_ago_is_stored_again(
    redis: Redis, age: timedelta, version: int
) -> None:
    """The task that gets it now has its whole time to live; a fresh file is not written again."""
    written_at = datetime.now(UTC) - age
    artifacts = Artifacts(redis, RedisBlobs(redis), clock=lambda: written_at)
    file = InputFile("input-1", NewPart("file", b"hi"))
    for task in ("first", "second"):
        await InputFiles(artifacts).store([file], "context", task)
    assert (await artifacts.get_artifact("context", "input-1")).version == version
