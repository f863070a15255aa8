"""What becomes of a delivery whose config is removed, set anew, or lost."""

from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from everloop.activities.push.webhook import Answer, Webhooks
from everloop.workflows.contract.calls import DeliverPushResult
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import status
from tests.support.rigs.push_rig import LOOPBACK_ALLOWED, PushRig
from tests.support.servers.webhook import running_webhook

DONE = DeliverPushResult(done=True)


async def test_a_webhook_that_is_gone_is_removed() -> None:
    """Nothing more is sent there."""
    async with running_webhook(410) as hook:
        rig = PushRig(hook.url)
        await rig.begin(status(1, TaskState.INPUT_REQUIRED))
        end = await rig.deliver_all()
    assert end == DONE
    assert len(hook.refused) == 1
    assert hook.taken == []
    assert await rig.configs.list_configs(rig.task.task_id) == []


async def test_a_config_that_was_deleted_ends_its_delivery() -> None:
    """Nothing is sent, and that is no error."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url)
        await rig.begin(status(1, TaskState.COMPLETED))
        await rig.configs.delete(rig.task.task_id, rig.config.id)
        with capture_logs() as lines:
            end = await rig.deliver()
    assert end == DONE
    assert (hook.taken, lines) == ([], [])


async def test_a_config_that_was_lost_ends_its_delivery_with_an_error() -> None:
    """Its store was emptied: the task goes on, nobody hears of it, and an operator has to know."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url)
        await rig.begin(status(1))
        emptied = PushRig(hook.url, views=rig.views)
        emptied.task, emptied.config = rig.task, rig.config
        with capture_logs() as lines:
            end = await emptied.deliver()
    assert end == DONE
    assert [(line["log_level"], line["event"].partition(":")[0]) for line in lines] == [
        ("error", "push config lost")
    ]


@pytest.mark.parametrize("change", ["url", "token"])
async def test_a_config_that_was_set_anew_survives_the_end_of_its_old_webhook(change: str) -> None:
    """The new one hears what the old one did not take."""

    class Replacing(Webhooks):
        async def post(
            self, url: str, content: bytes, headers: Mapping[str, str], *, owner: str = ""
        ) -> Answer:
            if url == old.url and not new.taken:
                await rig.configs.put(fresh)
            return await super().post(url, content, headers, owner=owner)

    async with running_webhook(410) as old, running_webhook() as new:
        rig = PushRig(old.url, webhooks=Replacing(LOOPBACK_ALLOWED))
        value = new.url if change == "url" else "new"
        fresh = rig.config.model_copy(update={change: value})
        await rig.begin(status(1, TaskState.COMPLETED))
        await rig.deliver_all()

    assert [each.id for each in old.refused] == [each.id for each in [*new.taken, *old.taken]]
    assert await rig.configs.get(rig.task.task_id, rig.config.id) == fresh
