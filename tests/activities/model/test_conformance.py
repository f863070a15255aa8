"""The models that ship pass the checks of models, over real HTTP."""

from collections.abc import Callable

import pytest

from everloop.models.chat import Chat
from everloop.models.conformance import MODEL_CHECKS, Check, Stage
from everloop.models.responses import Responses
from tests.support.servers.zoo.responses import OpenAIResponses
from tests.support.servers.zoo.stages import ServerStage, ThinkingOpenAI

STAGES: dict[str, Callable[[], Stage]] = {
    "chat": lambda: ServerStage(Chat, ThinkingOpenAI),
    "responses": lambda: ServerStage(Responses, OpenAIResponses),
}


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
async def test_models_conform(check: Check, stage: Callable[[], Stage]) -> None:
    """What a model has to do, each of ours does."""
    await check(stage())
