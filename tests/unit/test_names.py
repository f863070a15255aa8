"""Names never collide, and ids follow from what they identify."""

import pytest

from workflows.contract.names import (
    context_index_key,
    derive_context_id,
    derive_task_id,
    owner_index_key,
)


def test_the_same_message_is_the_same_task() -> None:
    """A client that sends again finds its task."""
    assert derive_task_id("o", "a", "m", b"text") == derive_task_id("o", "a", "m", b"text")


@pytest.mark.parametrize(
    "other",
    [("x", "a", "m", b"text"), ("o", "x", "m", b"text"), ("o", "a", "x", b"text"), ("o", "a", "m", b"x")],
)
def test_whatever_differs_is_another_task(other: tuple[str, str, str, bytes]) -> None:
    """Owner, agent, messageId and content all count."""
    assert derive_task_id(*other) != derive_task_id("o", "a", "m", b"text")


def test_parts_of_a_name_do_not_run_together() -> None:
    """Moving a letter from one part to the next gives another id."""
    assert derive_task_id("ab", "c", "m", b"") != derive_task_id("a", "bc", "m", b"")
    assert derive_context_id("task") != "task"


def test_an_owner_cannot_name_another_owners_index() -> None:
    """Owner and context are chosen by clients; a separator in them is quoted."""
    assert owner_index_key("a:context:c") != context_index_key("a", "c")
    assert context_index_key("a", "b:context:c") != context_index_key("a:context:b", "c")
