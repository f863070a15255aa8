"""How the workflow tells clients and operators what it does."""

from temporalio import workflow

from everloop.workflows import display
from everloop.workflows.activity_options import publish as publishing
from everloop.workflows.contract import names
from everloop.workflows.contract.calls import PublishInput
from everloop.workflows.contract.events import ResumedAfter
from everloop.workflows.contract.messages import AgentMessage, Message, TextPart
from everloop.workflows.contract.ports import PublishPort
from everloop.workflows.contract.tasks import TaskInput, TaskRef, TaskState, TaskView
from everloop.workflows.scope import TaskScope
from everloop.workflows.state import Phase, TaskRunState


def say(state: TaskRunState, received: tuple[Message, ...] = ()) -> None:
    """Let the next call tell of the remark, and of what the client said, if there is either."""
    if state.remark or received:
        message = remark_message(state.remark)
        state.remark = ""
        working(state, message, received)


def working(
    state: TaskRunState,
    message: AgentMessage | None = None,
    received: tuple[Message, ...] = (),
    *,
    resumed: ResumedAfter | None = None,
) -> None:
    """Let the next call tell that the task works; `resumed`: again, after what."""
    now = workflow.now()
    state.change_status(TaskState.WORKING, now, message=message, received=received, resumed=resumed)


async def publish(scope: TaskScope, summary: str) -> None:
    """Publish a status at once, with those before it that no call is known to have published."""
    with scope.outbox.carried() as statuses:
        call = PublishInput(task=scope.ref, events=statuses)
        await workflow.execute_activity_method(PublishPort.publish, call, **publishing(summary))


def opening(ref: TaskRef, task: TaskInput) -> TaskView:
    """Return the view of a task as its client first sees it."""
    return TaskView(
        task_id=ref.task_id,
        context_id=ref.context_id,
        owner=ref.owner,
        agent_id=ref.agent_id,
        created_at=task.created_at,
        status=TaskRunState.begin(task.message, task.created_at).status,
        history=(task.message,),
    )


async def open_task(task: TaskRef, opening: TaskView) -> None:
    """Let clients see a task that was hidden so far."""
    call = PublishInput(task=task, events=(), opening=opening)
    await workflow.execute_activity_method(PublishPort.publish, call, **publishing("task created"))


def remark_message(text: str) -> AgentMessage | None:
    """Return a message of the agent, with an id of its own; None for no text."""
    return AgentMessage(message_id=str(workflow.uuid4()), parts=(TextPart(text=text),)) if text else None


def enter(state: TaskRunState, phase: Phase) -> None:
    """Begin a phase, and show it in the Temporal UI."""
    state.phase = phase
    show(state)


def show(state: TaskRunState) -> None:
    """Show in the Temporal UI where the task stands."""
    workflow.set_current_details(display.details(state))


def index(state: TaskRunState, shown: TaskState) -> None:
    """Let the task be found by its state, and a view that lacks the status which says so be known by it."""
    workflow.upsert_search_attributes(
        [names.TASK_STATE.value_set(shown), names.TASK_VERSION.value_set(state.version)]
    )
