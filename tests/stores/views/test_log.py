"""Random histories of a task: the log and its fold come to the same as the store before it."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everloop.runtime.redis import connect_redis
from everloop.stores.log import store as log_store
from everloop.stores.views.store import TaskViews
from tests.stores.examples import stream_of, submitted
from tests.stores.views.histories import CHANGES, CHILD_PUBLISHES, Change
from tests.stores.views.test_task_views_model import apply, loaded


@settings(max_examples=60, deadline=None)
@given(
    changes=st.lists(CHANGES | CHILD_PUBLISHES, min_size=1, max_size=8),
    small_tail=st.sampled_from([0, 64 * 1024]),
)
async def test_the_log_comes_to_the_same(redis_url: str, changes: Sequence[Change], small_tail: int) -> None:
    """Whatever is created, published and restored in whatever order, views and streams are the same."""
    view = submitted()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_store, "SMALL_TAIL", small_tail)
        async with connect_redis(redis_url) as redis:
            before, log = TaskViews(redis), log_store.TaskViews(redis)
            for change in changes:
                await apply(before, view, change)
                await apply(log, view, change)
                assert await loaded(log, view.task_id) == await loaded(before, view.task_id)
                assert await log.state(view.task_id) == await before.state(view.task_id)
            assert await stream_of(log, view.task_id) == await stream_of(before, view.task_id)
