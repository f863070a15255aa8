"""Names never collide, and ids follow from what they identify."""

import pytest

from workflows.contract.names import (
    child_task_id,
    derive_context_id,
    derive_task_id,
    is_child_task_id,
    open_tasks_key,
    push_workflow_id,
    task_list_key,
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


def test_an_owner_cannot_name_the_list_of_another() -> None:
    """Owner, agent and context may hold separators; they are quoted."""
    assert task_list_key("a:agent:b", "c") != task_list_key("a", "b:agent:c")
    assert task_list_key("a", "b:context:c") != task_list_key("a", "b", "c")
    assert task_list_key("a", "b", "c:tasks:d") != task_list_key("a", "b", "c", "d")
    assert open_tasks_key("a:agent:b") != open_tasks_key("a")


def test_the_id_of_a_delivery_fits_into_temporals_tables() -> None:
    """Whatever the client calls its config; ids of a usual length stand there as they are."""
    task_id, longest = derive_task_id("o", "a", "m", b""), "é" * 127
    assert push_workflow_id(task_id, "x" * 64) == f"{task_id}/push/{'x' * 64}"
    assert len(push_workflow_id(task_id, longest).encode()) <= 255
    assert push_workflow_id(task_id, longest) != push_workflow_id(task_id, longest + "x")


def test_the_task_of_a_sub_agent_is_known_by_its_id() -> None:
    """Tasks of clients have other ids."""
    task_id = derive_task_id("o", "a", "m", b"")
    assert not is_child_task_id(task_id)
    assert is_child_task_id(child_task_id(task_id, "call"))
