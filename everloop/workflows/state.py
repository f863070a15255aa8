"""State of a running task, and its changes. No I/O, no clock: times are arguments."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, Field, JsonValue

from everloop.workflows.contract.events import RESPONSE_ARTIFACT, USAGE, ResumedAfter, Shown, StatusChanged
from everloop.workflows.contract.messages import (
    BYTES_PER_TOKEN,
    AgentMessage,
    AssistantMessage,
    Message,
    SummaryMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolsMessage,
    TranscriptMessage,
    Usage,
    UserMessage,
    answer_part,
    content_digest,
    extend_digest,
    measure,
    prompt_tokens_of,
)
from everloop.workflows.contract.names import message_identity, relayed_question
from everloop.workflows.contract.questions import Answer, Question
from everloop.workflows.contract.tasks import (
    AgentSpec,
    Artifact,
    Fork,
    TaskInput,
    TaskState,
    TaskStatus,
    ToolSpec,
)


class Phase(StrEnum):
    """Position of the loop."""

    PREPARING = "preparing"
    MODEL = "model"
    TOOLS = "tools"
    WAITING = "waiting"
    DONE = "done"


class QuestionEntry(BaseModel):
    """An unanswered question. `deadline` is set once it is published, if it has a timeout.

    `asked_by` is the pending call whose sub-agent asks; its task tracks the timeout, and receives the
    answer.
    """

    question: Question
    deadline: datetime | None = None
    asked_by: str = ""


class TaskRunState(BaseModel):
    """The state of one task; all of it is carried over when a long task continues as a new run."""

    started_at: datetime
    """Start of the task's first run; its wall clock counts from here."""
    phase: Phase = Phase.PREPARING
    iteration: int = 0
    """The current or last iteration; counts from 1."""

    # The transcript, and its cache.
    transcript: list[TranscriptMessage] = Field(default_factory=list[TranscriptMessage])
    """Every message once, as models receive them."""
    recalled: int = 0
    """Number of messages before the task's first one: those of earlier tasks of the context or the history
    of a fork, and the list of tools."""
    fork_first: int | None = None
    """In a fork, the position of its origin's first message, among the recalled messages."""
    digest: str = ""
    """Digest of the whole transcript (`extend_digest`)."""
    cached: int = 0
    """Number of its messages that the cache holds, as far as is confirmed."""
    resent: int = 0
    """Number of messages that were last sent to the cache again."""
    size: int = 0
    """Approximate bytes of transcript and history."""
    prompt_tokens: int = 0
    """Approximate length of the next prompt."""
    previous_run: str = ""
    """The previous run of the task, until its first reply."""

    # Messages of the client.
    inbox: list[UserMessage] = Field(default_factory=list[UserMessage])
    """Messages that no model call has received yet."""
    unpublished: list[Message] = Field(default_factory=list[Message])
    """Answers and messages that were accepted, but are in no status yet."""
    digests: dict[str, str] = {}
    """Digests of the client's messages (`content_digest`), by message id."""

    # Calls of the last reply.
    pending: list[ToolCall] = Field(default_factory=list[ToolCall])
    """Calls without a result."""
    results: dict[str, ToolMessage] = {}
    """Results of the others, by call id."""
    fallbacks: dict[str, str] = {}
    """The tool that runs in place of one that failed, by call id."""
    skipped: dict[str, str] = {}
    """Notes of operators for calls to skip, by call id."""

    # Questions to people.
    questions: list[QuestionEntry] = Field(default_factory=list[QuestionEntry])
    """Open questions, in their order."""
    asked: list[str] = Field(default_factory=list[str])
    """Ids of all questions until now."""
    answers: dict[str, list[Answer]] = {}
    """Answers to the calls of the last reply, by call id."""
    relayed: dict[str, list[Answer]] = {}
    """Answers that sub-agents have yet to receive, by the call that asked."""
    asked_agents: dict[str, str] = {}
    """Calls with a running sub-agent, with the ids of their tasks."""

    # Models, failures, limits.
    model_index: int = 0
    """The current model: 0 is the agent's own, the others are its fallbacks."""
    tries: int = 0
    """Model calls without a reply since the last reply."""
    tool_failures: int = 0
    """Iterations in a row without a successful tool call."""
    invalid_answers: int = 0
    """Answers that do not match the output model, since the last accepted one."""
    sub_agents: int = 0
    """Number of started tasks of sub-agents."""
    usage: Usage = Usage()
    waits_for_resume: str = ""
    """The failure, while the task waits for an operator."""
    last_signal: str = ""
    """Effect of an operator's last signal."""
    last_call: str = ""
    """The limit at which the model had its last call, as text."""
    last_reason: str = ""
    """The name of that limit, of `failures`."""
    first_model: int = 0
    """Models before this one have refused, and are not called again."""
    come_back_at: datetime | None = None
    """When the first model is called again, after another one replaced it for a while."""

    # State visible to clients.
    version: int = 0
    """Number of published statuses."""
    status: TaskStatus
    history: list[Message] = Field(default_factory=list[Message])
    outbox: list[StatusChanged] = Field(default_factory=list[StatusChanged])
    """Statuses without a confirmed call, in order of version: they may or may not be published
    (`everloop.workflows.scope.Outbox`)."""
    interim: str = ""
    """Text of the model beside its calls, until a status carries it."""
    answer: AssistantMessage | None = None
    """The final answer; it stays while a missing artifact is still to be written."""
    answer_at: int = -1
    """Its position in the transcript."""
    is_data: bool = False
    """Whether the answer is JSON."""
    artifact_ids: list[str] = Field(default_factory=list[str])
    """Artifacts written by successful calls."""
    unstated: dict[str, int] = {}
    """Artifacts written since the last status, with their versions."""
    is_routed: bool = False
    """Whether routing has decided for or against a task."""

    # The agent.
    agent: AgentSpec | None = None
    """The agent that works on the task, if it is not the first one."""
    successor: AgentSpec | None = None
    """The next agent of the task."""
    listed_tools: dict[str, ToolSpec] = {}
    """Tools that plugins have listed for the task."""

    @classmethod
    def begin(cls, message: UserMessage, at: datetime, started_at: datetime | None = None) -> "TaskRunState":
        """Return the state of a submitted task with its first message, which starts now."""
        status = TaskStatus(state=TaskState.SUBMITTED, at=at)
        begun = cls(started_at=started_at or at, inbox=[message], status=status)
        begun.note_message(message)
        return begun

    def digest_of(self, message: UserMessage) -> str:
        """Return the digest of the accepted message with this id; empty without one."""
        return self.digests.get(message_identity(message.message_id), "")

    def note_message(self, message: UserMessage) -> str:
        """Record a message, so that it is accepted once, also by later runs; return its digest."""
        return self.digests.setdefault(message_identity(message.message_id), content_digest(message))

    @property
    def expected_digest(self) -> str:
        """The expected digest of the cached transcript; empty if no check is needed.

        Messages that were just sent again equal the workflow's. A worker of another version may parse
        them differently, and would only request them once more.
        """
        return "" if self.resent == len(self.transcript) else self.digest

    @property
    def carried_size(self) -> int:
        """Approximate bytes of the input of a new run."""
        rest = (*self.inbox, *self.unpublished, *self.results.values())
        return self.size + sum(map(measure, rest))

    @property
    def new_messages(self) -> tuple[UserMessage, ...]:
        """The end of the transcript that no model call has received; only user messages can be there."""
        return tuple(m for m in self.transcript[self.cached :] if isinstance(m, UserMessage))

    def recall(self, earlier: list[TranscriptMessage]) -> None:
        """Begin the transcript with the messages of earlier tasks, which are already in the cache."""
        self.prompt_tokens = self._append(*earlier)
        self.cached = self.recalled = len(earlier)

    def begin_fork(self, fork: Fork) -> None:
        """Begin the transcript with the history of another task, which is not in the cache yet."""
        self._append(*fork.messages)
        self.recalled, self.fork_first = len(fork.messages), fork.first
        self.prompt_tokens = prompt_tokens_of(fork.messages)
        said = {message.message_id for message in fork.messages if isinstance(message, UserMessage)}
        self.inbox = [message for message in self.inbox if message.message_id not in said]

    @property
    def first(self) -> int:
        """The position of the task's first message, which stays in every prompt."""
        return self.recalled if self.fork_first is None else self.fork_first

    def list_tools(self, listed: ToolsMessage, tools: dict[str, ToolSpec]) -> None:
        """Append the list of tools, which is already in the cache, to the transcript."""
        if len(self.transcript) == self.recalled:
            self.recalled += 1
        self.prompt_tokens += self._append(listed)
        self.cached = len(self.transcript)
        self.listed_tools = tools

    def take_inbox(self, screened: Sequence[UserMessage] = ()) -> tuple[UserMessage, ...]:
        """Append the messages in the inbox to the transcript, and return them.

        `screened` are the first of them as changed by plugins for the model; clients see the original
        text.
        """
        taken = tuple(self.inbox)
        read = (*screened, *taken[len(screened) :])
        self.prompt_tokens += self._append(*read)
        self.inbox.clear()
        return taken

    def take_unpublished(self) -> tuple[Message, ...]:
        """Return the client's accepted messages that are in no status yet."""
        taken = tuple(self.unpublished)
        self.unpublished.clear()
        return taken

    def change_status(
        self,
        state: TaskState,
        at: datetime,
        *,
        message: AgentMessage | None = None,
        received: tuple[Message, ...] = (),
        resumed: ResumedAfter | None = None,
    ) -> StatusChanged:
        """Count a new status, put its event into the outbox and return it.

        It carries the usage of the task, and all open questions: an answer may arrive at any time.

        The history grows as a view's does when it folds the event: by the message of the status that is
        replaced, then by the client's.
        """
        if self.status.state.is_interrupted and state is TaskState.WORKING:
            resumed = "answer"
        added = (*((self.status.message,) if self.status.message else ()), *received)
        self.history.extend(added)
        self.size += sum(map(measure, added))
        self.version += 1
        questions = self.open_questions
        metadata: dict[str, JsonValue] = {USAGE: self.usage.to_metadata()}
        self.status = TaskStatus(state=state, at=at, message=message, questions=questions, metadata=metadata)
        changed = StatusChanged(
            version=self.version, received=received, resumed=resumed, shows=self._shown(), **dict(self.status)
        )
        self.outbox.append(changed)
        return changed

    def _shown(self) -> Shown | None:
        """Return the content that the view must have with a new status."""
        answer = self.answer_at if self.artifacts else None
        written, self.unstated = self.unstated, {}
        return Shown(answer=answer, artifacts=written) if written or answer is not None else None

    def _append(self, *messages: TranscriptMessage) -> int:
        """Append messages, and return their approximate tokens in a prompt."""
        sizes = [measure(message) for message in messages]
        self.transcript.extend(messages)
        self.digest = extend_digest(self.digest, messages)
        self.size += sum(sizes)
        return sum(size // BYTES_PER_TOKEN for size in sizes)

    def fold_reply(self, reply: AssistantMessage) -> None:
        """Append the model's reply to the transcript; its text is interim until it is an answer."""
        tokens = self._append(reply)
        self.cached = len(self.transcript)
        self.usage += reply.usage
        self.interim = "" if reply.fails else reply.text
        # The provider's opaque fields are not needed to run a call, or to ask about it.
        self.pending = [c.model_copy(update={"opaque": ""}) if c.opaque else c for c in reply.tool_calls]
        counted = reply.usage.input_tokens + reply.usage.output_tokens
        self.prompt_tokens = counted or self.prompt_tokens + tokens
        self.tries = 0
        self.previous_run = ""
        if reply.is_invalid:
            self.invalid_answers += 1
        elif not (reply.tool_calls or reply.refused):
            self.invalid_answers = 0

    def add_notice(self, text: str) -> None:
        """Append a notice for the model, which clients do not see."""
        # Without an id, which each message of the client has.
        message = UserMessage(message_id="", parts=(TextPart(text=f"[{text}]"),))
        self.prompt_tokens += self._append(message)

    def add_refusal(self, reply: AssistantMessage) -> None:
        """Append the reason for a refused reply for the model; clients have not seen the reply."""
        self.add_notice(f"Your last reply was not accepted: {reply.refused}")
        self.interim = ""

    def fall_back(self, come_back_at: datetime | None) -> None:
        """Switch to the next model, until a time or for the rest of the task."""
        if come_back_at:
            self.come_back_at = come_back_at
        elif self.model_index == self.first_model:
            self.first_model += 1
        self.model_index += 1

    def come_back(self, *, to: int | None = None) -> None:
        """Return to the first model; `to` is a new first one."""
        if to is not None:
            self.first_model = to
        self.model_index, self.come_back_at = self.first_model, None

    def hold_answer(self, answer: AssistantMessage, *, is_data: bool = False) -> None:
        """Hold the answer that may end the task: its text is not interim."""
        self.answer, self.answer_at = answer, len(self.transcript) - 1
        self.interim, self.is_data = "", is_data

    def take_back_answer(self) -> None:
        """Turn a held answer into interim text: the client has sent more."""
        if self.answer:
            self.answer, self.interim = None, self.answer.text

    def fold_summary(self, summary: SummaryMessage) -> None:
        """Append the summary of older messages; the prompt length follows from the next reply."""
        self._append(summary)
        self.cached = len(self.transcript)
        self.usage += summary.usage
        self.prompt_tokens = 0
        self.previous_run = ""

    def fold_tool_results(self, results: list[ToolMessage]) -> None:
        """Append tool results to the transcript, in the order of their calls."""
        self.prompt_tokens += self._append(*results)
        self.cached = len(self.transcript)
        written = (each for result in results if result.outcome == "ok" for each in result.artifacts)
        self.artifact_ids = list(dict.fromkeys([*self.artifact_ids, *written]))
        outcomes = {result.outcome for result in results}
        if "ok" in outcomes:
            self.tool_failures = 0
        elif outcomes != {"rejected"}:  # a rejection by a person is not a failure
            self.tool_failures += 1
        self.pending, self.results, self.fallbacks, self.answers, self.skipped = [], {}, {}, {}, {}

    def end_call(self, call: ToolCall, result: ToolMessage) -> None:
        """Store the result of a pending call until the other calls of its reply have ended."""
        self.results[call.id] = result
        self.unstated |= result.versions
        self.pending = [each for each in self.pending if each.id != call.id]

    def skip_call(self, call: ToolCall, result: ToolMessage) -> None:
        """End a pending call with a result of ours, and close its questions and its sub-agent's."""
        self.relayed.pop(call.id, None)
        self.asked_agents.pop(call.id, None)
        own = call.id
        self.questions = [
            each for each in self.questions if own not in (each.asked_by, each.question.call.id)
        ]
        self.end_call(call, result)

    def ask(self, question: Question) -> None:
        """Open a question."""
        self.asked.append(question.id)
        self._open([QuestionEntry(question=question)])

    def relay_questions(self, call_id: str, questions: Sequence[Question]) -> None:
        """Replace the open questions of a call's sub-agent; they have ids of our own here.

        An answered question is not opened again before the sub-agent has the answer.
        """
        others = [entry for entry in self.questions if entry.asked_by != call_id]
        open_now = {entry.question.id: entry for entry in self.questions if entry.asked_by == call_id}
        answered = {answer.question_id for answer in self.relayed.get(call_id, ())}
        relayed = [
            question.model_copy(update={"id": relayed_question(call_id, question.id)})
            for question in questions
            if question.id not in answered
        ]
        self.asked.extend(question.id for question in relayed if question.id not in self.asked)
        self.questions = others
        self._open([open_now.get(q.id) or QuestionEntry(question=q, asked_by=call_id) for q in relayed])

    def _open(self, entries: list[QuestionEntry]) -> None:
        """Add open questions: published ones come first, and the first of them is the current one.

        It stays the first until it is closed, so that an answer cannot go to another question.
        """
        published = [question.id for question in self.status.questions]
        order = [call.id for call in self.pending]
        self.questions.extend(entries)
        self.questions.sort(
            key=lambda entry: (
                published.index(entry.question.id) if entry.question.id in published else len(published),
                order.index(entry.asked_by or entry.question.call.id),
            )
        )

    @property
    def open_questions(self) -> tuple[Question, ...]:
        return tuple(entry.question for entry in self.questions)

    def take_answer(self, answer: Answer, message: Message | None = None) -> None:
        """Close a question; its call continues. `message` is the answer in the history of the task."""
        (entry,) = (entry for entry in self.questions if entry.question.id == answer.question_id)
        self.questions.remove(entry)
        if entry.asked_by:
            theirs = answer.question_id.removeprefix(relayed_question(entry.asked_by, ""))
            passed_on = answer.model_copy(update={"question_id": theirs})
            self.relayed.setdefault(entry.asked_by, []).append(passed_on)
        else:
            self.answers.setdefault(entry.question.call.id, []).append(answer)
        if message:
            self.unpublished.append(message)

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """Artifacts recorded in the history of the workflow."""
        if self.answer is None or not self.answer.text:
            return ()
        parts = (answer_part(self.answer.text, is_data=self.is_data),)
        id_, position = RESPONSE_ARTIFACT, self.answer_at
        return (Artifact(artifact_id=id_, name=id_, parts=parts, complete=True, position=position),)


class CarriedTask(TaskInput):
    """The workflow's input: a task starts as a `TaskInput`; a later run also gets its state."""

    carried: TaskRunState | None = None
