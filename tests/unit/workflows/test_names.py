"""Names never collide, and ids follow from their content."""

import pytest

from everloop.stores.keys import head_key, owner_of_list_key, owner_tasks_key, records_key, transcript_key
from everloop.stores.log.log_codec import word
from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.names import (
    TaskUnnamedError,
    call_key,
    child_task_id,
    context_key,
    derive_context_id,
    derive_task_id,
    is_agent_id,
    is_child_task_id,
    name_calls,
    push_workflow_id,
)
from everloop.workflows.contract.tasks import TaskRef
from everloop.workflows.turns.sub_agents import MAX_DEPTH


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
    """Owner, agent and context may contain separators; they are quoted."""
    assert owner_tasks_key("a}:tasks") != owner_tasks_key("a")
    assert owner_of_list_key(owner_tasks_key("{a} *:é")) == "{a} *:é"
    assert not {*" \t\n*"} & {*word("a b\t\n*")}
    assert word("") not in {word("="), word("*"), ""}


def test_nothing_is_kept_of_a_task_without_a_name() -> None:
    """A worker without the interceptor for names would mix the data of all tasks."""
    unnamed = TaskRef(owner="o", agent_id="a")
    for key in (
        lambda: head_key(unnamed.task_id),
        lambda: records_key(unnamed.task_id),
        lambda: transcript_key(unnamed.task_id, unnamed.run_id),
        lambda: context_key(unnamed.owner, unnamed.context_id),
    ):
        with pytest.raises(TaskUnnamedError, match="ActivityTasks"):
            key()


def test_the_id_of_a_delivery_fits_into_temporals_tables() -> None:
    """For any name of a config by the client; ids of a usual length are not shortened."""
    task_id, longest = derive_task_id("o", "a", "m", b""), "é" * 127
    assert push_workflow_id(task_id, "x" * 64) == f"{task_id}/push/{'x' * 64}"
    assert len(push_workflow_id(task_id, longest).encode()) <= 255
    assert push_workflow_id(task_id, longest) != push_workflow_id(task_id, longest + "x")


def _call(arguments: str, name: str = "pay") -> ToolCall:
    return ToolCall(id="whatever the provider says", name=name, arguments=arguments)


def test_calls_are_named_by_their_place() -> None:
    """Nine letters and digits, the one form that every provider accepts; no two calls of a task share one."""
    ids = [call.id for reply in (1, 12) for call in name_calls([_call("1"), _call("1"), _call("2")], reply)]
    assert ids == ["r00001c01", "r00001c02", "r00001c03", "r00012c01", "r00012c02", "r00012c03"]
    assert name_calls([_call("")], 123_456)[0].id == "r123456c01"


@pytest.mark.parametrize(
    "again", [["1", "1", "2"], ["2", "1", "1"], ["3", "1", "2", "1"]], ids=["same", "swapped", "one more"]
)
def test_a_call_that_is_asked_for_again_has_the_same_key(again: list[str]) -> None:
    """After a reset, when the model is called again: also in another order, or after another call."""
    before = [call_key(call) for call in name_calls(map(_call, ["1", "1", "2"]), 5)]
    after = [call_key(call) for call in name_calls(map(_call, again), 5)]
    assert len(set(before)) == 3
    assert set(before) <= set(after)


def test_the_id_of_the_deepest_sub_agent_fits_into_temporals_tables() -> None:
    """Five deep, below the task of an agent whose id has the maximal length."""
    task_id = f"{'a' * 64}-{derive_task_id('o', 'a', 'm', b'')}"
    for _ in range(MAX_DEPTH):
        task_id = child_task_id(task_id, call_key(*name_calls([_call("x" * 1000)], 99_999)))
    assert len(task_id.encode()) < 200


def test_another_call_at_the_same_place_has_another_key() -> None:
    """Its tool, its arguments and its reply count."""
    calls = [_call("1"), _call("2"), _call("1", "send")]
    keys = {call_key(call) for asked in calls for call in name_calls([asked], 5)}
    assert len(keys | {call_key(*name_calls([_call("1")], 6))}) == 4


def test_ids_of_tasks_begin_with_the_agent() -> None:
    """A list of workflows is readable; the length of an agent's id is bounded."""
    task_id = derive_task_id("o", "a" * 64, "m", b"")
    assert task_id.startswith(f"{'a' * 64}-")
    assert len(task_id) == 64 + 1 + 36
    assert [is_agent_id(agent_id) for agent_id in ("a" * 64, "a" * 65, "a\n")] == [True, False, False]
    assert not is_child_task_id(task_id)
    assert is_child_task_id(child_task_id(task_id, "call"))
