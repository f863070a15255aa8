"""What every value that crosses a process boundary has in common."""

import json
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from everloop.agents import limits
from everloop.agents.agent import Agent
from everloop.workflows.contract.calls import CallModelInput
from everloop.workflows.contract.events import EVENT_ADAPTER
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from everloop.workflows.contract.tasks import AgentSpec, Compaction, Memory

SECRET = "what the user wrote"


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (CallModelInput.model_validate_json, f'{{"new": ["{SECRET}"], "task": "{SECRET}"}}'),
        (EVENT_ADAPTER.validate_json, f'{{"kind": "warning", "text": ["{SECRET}"]}}'),
        (EVENT_ADAPTER.validate_json, f'["{SECRET}"]'),
        (AgentSpec.model_validate_json, f'{{"id": "one", "memory": {{"strategy": "{SECRET}"}}}}'),
    ],
)
def test_an_error_shows_no_value(parse: Callable[[str], object], text: str) -> None:
    """Errors go to logs and workflow histories, which hold no content."""
    with pytest.raises(ValidationError) as caught:
        parse(text)

    assert SECRET not in str(caught.value)


def test_what_an_author_defines_arrives_as_what_a_task_pins() -> None:
    """Each setting of it, without those that have their default."""
    convert = WIRE_DATA_CONVERTER.payload_converter
    spec = Agent("one", "A", "", memory=limits.Memory(5), compaction=limits.Compaction("summary")).spec

    payload = convert.to_payload(spec)

    assert json.loads(payload.data)["memory"] == {"max_messages": 5}
    pinned = convert.from_payload(payload, AgentSpec)
    assert (pinned.memory, pinned.compaction) == (Memory(5), Compaction("summary"))
