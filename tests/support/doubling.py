"""A schema of a few KB that no validator comes to an end of."""

from collections.abc import Iterator

import pytest
from pydantic import JsonValue

from runtime import foreign_schemas


@pytest.fixture
def small_budget() -> Iterator[None]:
    """Give checks little time, so that tests with many of them take little."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foreign_schemas, "BUDGET", 0.2)
        foreign_schemas._PROCESSES.close()
        yield
        foreign_schemas._PROCESSES.close()


def doubling(times: int = 40, kind: str = "object") -> dict[str, JsonValue]:
    """Return one that checks a value of this kind 2 to the power of `times` times."""
    parts: dict[str, JsonValue] = {str(times): {"type": kind}}
    for number in range(times):
        twice: JsonValue = {"$ref": f"#/$defs/{number + 1}"}
        parts[str(number)] = {"allOf": [twice, twice]}
    return {"$defs": parts, "$ref": "#/$defs/0"}
