"""The models that ship pass the checks of models, over real HTTP."""

import pytest

from everloop.models.conformance import MODEL_CHECKS, Check, Stage
from tests.support.servers.zoo.stages import ServerStage

STAGES = {"chat": ServerStage}


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
async def test_models_conform(check: Check, stage: type[Stage]) -> None:
    """What a model has to do, each of ours does."""
    await check(stage())
