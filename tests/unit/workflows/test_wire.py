"""What every value that crosses a process boundary has in common."""

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from everloop.workflows.contract.calls import CallModelInput
from everloop.workflows.contract.events import EVENT_ADAPTER

SECRET = "what the user wrote"


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (CallModelInput.model_validate_json, f'{{"new": ["{SECRET}"], "task": "{SECRET}"}}'),
        (EVENT_ADAPTER.validate_json, f'{{"kind": "warning", "text": ["{SECRET}"]}}'),
        (EVENT_ADAPTER.validate_json, f'["{SECRET}"]'),
    ],
)
def test_an_error_shows_no_value(parse: Callable[[str], object], text: str) -> None:
    """Errors go to logs and workflow histories, which hold no content."""
    with pytest.raises(ValidationError) as caught:
        parse(text)

    assert SECRET not in str(caught.value)
