"""An artifact whose view is lost while it is written."""

from contextlib import closing
from pathlib import Path

import pytest

from everloop.runtime.redis import connect_redis
from everloop.stores.artifacts.interface import AddParts, Append, Change, Complete, Fail
from everloop.stores.artifacts.redis import RedisArtifacts
from everloop.stores.artifacts.rendering import render_artifact
from everloop.stores.blobs.local import LocalBlobs
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.messages import TextPart
from everloop.workflows.contract.names import history_key, stream_key, view_key
from tests.stores.examples import submitted
from tests.stores.published.artifact_desk import ID, Desk, create, text

CLOSING = [
    Complete(),
    Fail(),
    Append(b"c", last_chunk=True),
    AddParts((text("c", "text/x"),), last_chunk=True),
]


@pytest.mark.parametrize("is_restored", [True, False])
@pytest.mark.parametrize("last", CLOSING, ids=lambda change: type(change).__name__)
async def test_a_view_that_was_lost_is_right_when_the_artifact_is_closed(
    redis_url: str, tmp_path: Path, last: Change, *, is_restored: bool
) -> None:
    """What follows on a draft that the view does not know any more is dropped until then."""
    with closing(LocalBlobs(tmp_path)) as blobs:
        async with connect_redis(redis_url) as redis:
            views = RedisTaskViews(redis)
            desk = Desk(RedisArtifacts(redis, blobs, views), views)
            await desk.apply(create(text("a")))
            view = submitted(desk.task.task_id)
            await redis.delete(view_key(view.task_id), history_key(view.task_id), stream_key(view.task_id))
            if is_restored:
                stored = await desk.artifacts.get_artifact(desk.context, ID)
                artifact = await render_artifact(desk.artifacts, stored)
                await views.restore(view.model_copy(update={"run_id": "run", "artifacts": (artifact,)}))
            await desk.apply(Append(b"b"))
            found = await views.artifact(view.task_id, ID)
            assert (found and found.artifact.parts) == ((TextPart(text="a"),) if is_restored else None)

            await desk.apply(last)

            await desk.assert_shown_as_stored()
