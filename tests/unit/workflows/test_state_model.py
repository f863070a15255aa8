"""Random lives of a task: the state of its workflow equals the view folded from its events."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.messages import (
    AgentMessage,
    AssistantMessage,
    Message,
    TextPart,
    ToolCall,
    ToolMessage,
    TranscriptMessage,
    UserMessage,
)
from everloop.workflows.contract.tasks import TaskState, TaskStatus, TaskView
from everloop.workflows.reporting import recent_history
from everloop.workflows.state import TaskRunState
from tests.support.fences import FencedTask

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
RUN = "run"
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
STATES = st.sampled_from([TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED])


def parts(text: str) -> tuple[TextPart]:
    return (TextPart(text=text),)


@dataclass
class Expected:
    """The same task in the simplest form: lists that only grow."""

    transcript: list[TranscriptMessage] = field(default_factory=list[TranscriptMessage])
    inbox: list[UserMessage] = field(default_factory=list[UserMessage])
    unseen: list[UserMessage] = field(default_factory=list[UserMessage])
    told: list[Message] = field(default_factory=list[Message])
    status_message: AgentMessage | None = None


class TaskLife(RuleBasedStateMachine):
    """A client that sends messages, a model that answers, tools that run, and a view beside them."""

    @initialize(text=TEXTS)
    def submit(self, text: str) -> None:
        """Begin as the gateway does: the view holds the first message before any event is published."""
        self.first = UserMessage(message_id="u0", parts=parts(text))
        self.state = TaskRunState.begin(self.first, EPOCH)
        self.expected = Expected(inbox=[self.first])
        self.taken: tuple[UserMessage, ...] = ()
        self.events: list[StatusChanged] = []
        self.ids = 0
        self.view = FencedTask()
        self.view.create(
            TaskView(
                task_id="task",
                context_id="context",
                owner="owner",
                agent_id="agent",
                created_at=EPOCH,
                status=TaskStatus(state=TaskState.SUBMITTED, at=EPOCH),
                history=(self.first,),
            )
        )

    def new_id(self, kind: str) -> str:
        self.ids += 1
        return f"{kind}{self.ids}"

    @rule(text=TEXTS)
    def receive(self, text: str) -> None:
        message = UserMessage(message_id=self.new_id("u"), parts=parts(text))
        self.state.inbox.append(message)
        self.expected.inbox.append(message)

    @precondition(lambda self: not self.taken)
    @rule()
    def take_inbox(self) -> None:
        """Every waiting message is taken once, in order; the next status includes it."""
        self.taken = self.state.take_inbox()
        assert list(self.taken) == self.expected.inbox
        self.expected.transcript += self.expected.inbox
        self.expected.unseen += self.expected.inbox
        self.expected.inbox = []

    @precondition(lambda self: self.taken or self.events)
    @rule(state=STATES, text=st.none() | TEXTS)
    def change_status(self, state: TaskState, text: str | None) -> None:
        """The first status includes the first message, as in the loop."""
        message = None if text is None else AgentMessage(message_id=self.new_id("a"), parts=parts(text))
        at = EPOCH + timedelta(seconds=len(self.events))
        event = self.state.change_status(state, at, message=message, received=self.taken)
        self._expect(event)
        assert self.view.publish(RUN, [event]) == [event]

    def _expect(self, event: StatusChanged) -> None:
        assert event.version > max((earlier.version for earlier in self.events), default=0)
        assert event.received == self.taken
        self.events.append(event)
        if self.expected.status_message:
            self.expected.told.append(self.expected.status_message)
        self.expected.told += self.taken
        self.expected.status_message = event.message
        self.taken = ()

    @precondition(lambda self: not self.state.pending)
    @rule(text=TEXTS, calls=st.integers(0, 3))
    def reply(self, text: str, calls: int) -> None:
        """The model has read the whole transcript, and its reply."""
        wanted = tuple(ToolCall(id=self.new_id("c"), name="x", arguments="{}") for _ in range(calls))
        reply = AssistantMessage(text=text, tool_calls=wanted)
        self.state.fold_reply(reply)
        self.expected.transcript.append(reply)
        self.expected.unseen = []

    @precondition(lambda self: self.state.pending)
    @rule()
    def run_tools(self) -> None:
        results = [ToolMessage(call_id=c.id, name=c.name, content="ok") for c in self.state.pending]
        self.state.fold_tool_results(results)
        self.expected.transcript += results
        self.expected.unseen = []
        assert self.state.pending == []

    @precondition(lambda self: self.events)
    @rule(data=st.data())
    def publish_again(self, data: st.DataObject) -> None:
        """A status that was published before is dropped."""
        again = data.draw(st.sampled_from(self.events))
        assert self.view.publish(RUN, [again]) == []

    @invariant()
    def positions_are_stable(self) -> None:
        """Each message of the transcript stays at its position."""
        assert self.state.transcript == self.expected.transcript

    @invariant()
    def new_messages_are_what_no_model_call_has_seen(self) -> None:
        assert list(self.state.new_messages) == self.expected.unseen

    @invariant()
    def history_holds_everything_once(self) -> None:
        assert self.state.history == self.expected.told
        ids = [message.message_id for message in self.state.history]
        assert len(ids) == len(set(ids))
        assert recent_history(self.state) == tuple(self.state.history)

    @invariant()
    def the_view_is_that_of_the_workflow(self) -> None:
        """History, status and version; until the first status the view holds the first message alone."""
        view = self.view.view
        assert view
        assert (view.status, view.version) == (self.state.status, self.state.version)
        assert list(view.history) == (self.state.history if self.events else [self.first])


class TestTaskLife(TaskLife.TestCase):
    """After any events in any order, nothing is lost, and view and workflow agree."""

    settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
