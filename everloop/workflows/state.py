"""Everything a running task knows, and how it changes. No I/O, no clock: times are arguments."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, Field, JsonValue

from everloop.workflows.contract.events import RESPONSE_ARTIFACT, USAGE, ResumedAfter, StatusChanged
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
    """Where the loop stands."""

    PREPARING = "preparing"
    MODEL = "model"
    TOOLS = "tools"
    WAITING = "waiting"
    DONE = "done"


class OpenQuestion(BaseModel):
    """A question that nobody has answered yet. `deadline` is set once it is published, if it has a timeout.

    `asked_by` is the pending call whose sub-agent asks; its task keeps the time, and takes the answer.
    """

    question: Question
    deadline: datetime | None = None
    asked_by: str = ""


class TaskRunState(BaseModel):
    """The state of one task; all of it goes along when a long task continues as a new run."""

    started_at: datetime
    """When a worker first took the task; its wall clock counts from here."""
    phase: Phase = Phase.PREPARING
    iteration: int = 0
    """The one that runs, or ran last; counts from 1."""

    # The transcript, and its cache.
    transcript: list[TranscriptMessage] = Field(default_factory=list[TranscriptMessage])
    """Every message once, as the model reads them."""
    recalled: int = 0
    """How many messages at its beginning are older than the task's first one: those of earlier tasks of the
    context or the past of a fork, and the list of tools."""
    fork_first: int | None = None
    """In a fork, where the first message of its origin stands, within what was recalled."""
    digest: str = ""
    """That of the whole transcript (`extend_digest`)."""
    cached: int = 0
    """How many of its messages the cache holds, as far as the workflow knows."""
    resent: int = 0
    """How many were sent to the cache again last."""
    size: int = 0
    """About how many bytes transcript and history have."""
    prompt_tokens: int = 0
    """About how long the next prompt is."""
    previous_run: str = ""
    """The run that this one continues, until its first reply."""

    # Messages of the client.
    inbox: list[UserMessage] = Field(default_factory=list[UserMessage])
    """Messages that no model call has taken in yet."""
    unpublished: list[Message] = Field(default_factory=list[Message])
    """Answers and messages that are taken in, and that no status has carried yet."""
    digests: dict[str, str] = {}
    """What each message of the client says (`content_digest`), by its id."""

    # Calls of the last reply.
    pending: list[ToolCall] = Field(default_factory=list[ToolCall])
    """Those that have no result yet."""
    results: dict[str, ToolMessage] = {}
    """Results of the others, by call id."""
    fallbacks: dict[str, str] = {}
    """The tool that runs in place of one that failed, by call id."""
    skipped: dict[str, str] = {}
    """Notes of operators who want to end a call, by call id."""

    # Questions to people.
    questions: list[OpenQuestion] = Field(default_factory=list[OpenQuestion])
    """Those that are open, in the order in which they are asked."""
    asked: list[str] = Field(default_factory=list[str])
    """Ids of all questions that were ever asked."""
    answers: dict[str, list[Answer]] = {}
    """Answers to the calls of the last reply, by call id."""
    relayed: dict[str, list[Answer]] = {}
    """Answers that sub-agents are still to be handed, by the call that asked them."""
    asked_agents: dict[str, str] = {}
    """Calls whose sub-agents work, with the ids of their tasks."""

    # Models, failures, limits.
    model_index: int = 0
    """Which model is asked: 0 is the agent's own, the others are its fallbacks."""
    tries: int = 0
    """Model calls that ended without a reply since the last reply."""
    tool_failures: int = 0
    """Iterations in a row in which no tool call worked."""
    invalid_answers: int = 0
    """Answers that are not the data wanted, since the last that stood."""
    sub_agents: int = 0
    """Tasks of sub-agents that were started."""
    usage: Usage = Usage()
    waits_for_resume: str = ""
    """What failed, while an operator is waited for."""
    last_signal: str = ""
    """What the last signal of an operator did."""
    last_call: str = ""
    """The limit at which the model had its last call, in words."""
    last_reason: str = ""
    """The name of that limit, of `failures`."""
    first_model: int = 0
    """Models before this one have refused, and are not asked again."""
    come_back_at: datetime | None = None
    """When the first model is asked again, after another one took its place for a while."""

    # What clients see.
    version: int = 0
    """Counts the published statuses."""
    status: TaskStatus
    history: list[Message] = Field(default_factory=list[Message])
    outbox: list[StatusChanged] = Field(default_factory=list[StatusChanged])
    """Statuses of which no call that carried them has ended, in order of version: nobody knows whether they
    are published (`everloop.workflows.scope.Outbox`)."""
    interim: str = ""
    """What the model wrote to the client beside its calls, until a status carries it."""
    answer: AssistantMessage | None = None
    """What the task ends with; it stands while an artifact that is missing is still to be written."""
    is_data: bool = False
    """Whether the answer is JSON."""
    artifact_ids: list[str] = Field(default_factory=list[str])
    """Artifacts that calls which worked have written."""
    is_routed: bool = False
    """Whether it is decided that there is a task, or none."""

    # The agent.
    agent: AgentSpec | None = None
    """The agent that works on the task, if it is not the one that the task began with."""
    successor: AgentSpec | None = None
    """The agent that takes the task over next."""
    listed_tools: dict[str, ToolSpec] = {}
    """Tools that plugins have listed for the task."""

    @classmethod
    def begin(cls, message: UserMessage, at: datetime, started_at: datetime | None = None) -> "TaskRunState":
        """Return the state of a task that was submitted with its first message, and that starts now."""
        status = TaskStatus(state=TaskState.SUBMITTED, at=at)
        begun = cls(started_at=started_at or at, inbox=[message], status=status)
        begun.note_message(message)
        return begun

    def digest_of(self, message: UserMessage) -> str:
        """Return the digest of the message of this id that the task has taken in; empty if it has none."""
        return self.digests.get(message_identity(message.message_id), "")

    def note_message(self, message: UserMessage) -> str:
        """Remember a message, so that it is taken in once, also by later runs; return its digest."""
        return self.digests.setdefault(message_identity(message.message_id), content_digest(message))

    @property
    def expected_digest(self) -> str:
        """The digest that the cached transcript has to have; empty if nobody has to look.

        What was sent again just now is what the workflow holds. A worker of another version may read it with
        other eyes, and would only have it sent once more.
        """
        return "" if self.resent == len(self.transcript) else self.digest

    @property
    def carried_size(self) -> int:
        """About how many bytes a new run of the task would be given."""
        rest = (*self.inbox, *self.unpublished, *self.results.values())
        return self.size + sum(map(measure, rest))

    @property
    def new_messages(self) -> tuple[UserMessage, ...]:
        """The end of the transcript that no model call has seen; only user messages can be there."""
        return tuple(m for m in self.transcript[self.cached :] if isinstance(m, UserMessage))

    def recall(self, earlier: list[TranscriptMessage]) -> None:
        """Begin the transcript with the messages of earlier tasks; the cache holds them already."""
        self.prompt_tokens = self._append(*earlier)
        self.cached = self.recalled = len(earlier)

    def begin_fork(self, fork: Fork) -> None:
        """Begin the transcript with the past of another task; the cache has yet to be filled with it."""
        self._append(*fork.messages)
        self.recalled, self.fork_first = len(fork.messages), fork.first
        self.prompt_tokens = prompt_tokens_of(fork.messages)
        said = {message.message_id for message in fork.messages if isinstance(message, UserMessage)}
        self.inbox = [message for message in self.inbox if message.message_id not in said]

    @property
    def first(self) -> int:
        """The position of the first message that the task is about: it stays in every prompt."""
        return self.recalled if self.fork_first is None else self.fork_first

    def list_tools(self, listed: ToolsMessage, tools: dict[str, ToolSpec]) -> None:
        """Put the list of tools, which the cache holds already, at the end of the transcript."""
        if len(self.transcript) == self.recalled:
            self.recalled += 1
        self.prompt_tokens += self._append(listed)
        self.cached = len(self.transcript)
        self.listed_tools = tools

    def take_inbox(self, screened: Sequence[UserMessage] = ()) -> tuple[UserMessage, ...]:
        """Move the messages that came meanwhile to the end of the transcript and return them.

        `screened` are the first of them as plugins let the model read them; clients see what they wrote.
        """
        taken = tuple(self.inbox)
        read = (*screened, *taken[len(screened) :])
        self.prompt_tokens += self._append(*read)
        self.inbox.clear()
        return taken

    def take_unpublished(self) -> tuple[Message, ...]:
        """Return the messages of the client that are taken in and that no status has carried yet."""
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
        """Count a new status, put the event that announces it into the outbox and return it.

        It carries what the task has used, and all questions that are open: an answer may come at any time.

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
        changed = StatusChanged(version=self.version, received=received, resumed=resumed, **dict(self.status))
        self.outbox.append(changed)
        return changed

    def _append(self, *messages: TranscriptMessage) -> int:
        """Return about how many tokens they add to a prompt."""
        sizes = [measure(message) for message in messages]
        self.transcript.extend(messages)
        self.digest = extend_digest(self.digest, messages)
        self.size += sum(sizes)
        return sum(size // BYTES_PER_TOKEN for size in sizes)

    def fold_reply(self, reply: AssistantMessage) -> None:
        """Put the model's reply at the end of the transcript; its text is interim until it is an answer."""
        tokens = self._append(reply)
        self.cached = len(self.transcript)
        self.usage += reply.usage
        self.interim = "" if reply.fails else reply.text
        # What a provider wants back is for nobody who runs a call, or asks about it.
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
        """Let the model read something that no client gets to see."""
        # Without an id: no message of the client has none.
        message = UserMessage(message_id="", parts=(TextPart(text=f"[{text}]"),))
        self.prompt_tokens += self._append(message)

    def add_refusal(self, reply: AssistantMessage) -> None:
        """Let the model read why its reply does not stand; clients have not seen it."""
        self.add_notice(f"Your last reply was not accepted: {reply.refused}")
        self.interim = ""

    def fall_back(self, come_back_at: datetime | None) -> None:
        """Turn to the next model: until then, or for the rest of the task."""
        if come_back_at:
            self.come_back_at = come_back_at
        elif self.model_index == self.first_model:
            self.first_model += 1
        self.model_index += 1

    def come_back(self, *, to: int | None = None) -> None:
        """Ask the first model again; `to` is another first one than so far."""
        if to is not None:
            self.first_model = to
        self.model_index, self.come_back_at = self.first_model, None

    def hold_answer(self, answer: AssistantMessage, *, is_data: bool = False) -> None:
        """Keep the answer that the task may end with: its text is not interim."""
        self.answer, self.interim, self.is_data = answer, "", is_data

    def take_back_answer(self) -> None:
        """Let an answer that was held be interim: the client has sent more."""
        if self.answer:
            self.answer, self.interim = None, self.answer.text

    def fold_summary(self, summary: SummaryMessage) -> None:
        """Put what stands for older messages at the end; the next reply says how long a prompt is."""
        self._append(summary)
        self.cached = len(self.transcript)
        self.usage += summary.usage
        self.prompt_tokens = 0
        self.previous_run = ""

    def fold_tool_results(self, results: list[ToolMessage]) -> None:
        """Put tool results, in the order of their calls, at the end of the transcript."""
        self.prompt_tokens += self._append(*results)
        self.cached = len(self.transcript)
        written = (each for result in results if result.outcome == "ok" for each in result.artifacts)
        self.artifact_ids = list(dict.fromkeys([*self.artifact_ids, *written]))
        outcomes = {result.outcome for result in results}
        if "ok" in outcomes:
            self.tool_failures = 0
        elif outcomes != {"rejected"}:  # a person's no is nobody's failure
            self.tool_failures += 1
        self.pending, self.results, self.fallbacks, self.answers, self.skipped = [], {}, {}, {}, {}

    def end_call(self, call: ToolCall, result: ToolMessage) -> None:
        """Keep the result of a pending call until the other calls of its reply have ended."""
        self.results[call.id] = result
        self.pending = [each for each in self.pending if each.id != call.id]

    def skip_call(self, call: ToolCall, result: ToolMessage) -> None:
        """End a pending call with a result of ours; nothing of it, or of its sub-agent, is asked any more."""
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
        self._open([OpenQuestion(question=question)])

    def relay_questions(self, call_id: str, questions: Sequence[Question]) -> None:
        """Let the open questions of a call's sub-agent be these; they stand under ids of our own.

        One that was answered here is not opened again before the sub-agent was handed the answer.
        """
        kept = [entry for entry in self.questions if entry.asked_by != call_id]
        open_now = {entry.question.id: entry for entry in self.questions if entry.asked_by == call_id}
        answered = {answer.question_id for answer in self.relayed.get(call_id, ())}
        relayed = [
            question.model_copy(update={"id": relayed_question(call_id, question.id)})
            for question in questions
            if question.id not in answered
        ]
        self.asked.extend(question.id for question in relayed if question.id not in self.asked)
        self.questions = kept
        self._open([open_now.get(q.id) or OpenQuestion(question=q, asked_by=call_id) for q in relayed])

    def _open(self, entries: list[OpenQuestion]) -> None:
        """Add open questions: those that clients have seen come first, and the first of them is asked now.

        It stays the first until it is closed: who answers it must not answer another one.
        """
        seen = [question.id for question in self.status.questions]
        order = [call.id for call in self.pending]
        self.questions.extend(entries)
        self.questions.sort(
            key=lambda entry: (
                seen.index(entry.question.id) if entry.question.id in seen else len(seen),
                order.index(entry.asked_by or entry.question.call.id),
            )
        )

    @property
    def open_questions(self) -> tuple[Question, ...]:
        return tuple(entry.question for entry in self.questions)

    def take_answer(self, answer: Answer, message: Message | None = None) -> None:
        """Close a question; its call goes on. `message` is the answer in the history of the task."""
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
        """The artifacts that the history of the workflow can vouch for."""
        if self.answer is None or not self.answer.text:
            return ()
        parts = (answer_part(self.answer.text, is_data=self.is_data),)
        return (Artifact(artifact_id=RESPONSE_ARTIFACT, name=RESPONSE_ARTIFACT, parts=parts, complete=True),)


class CarriedTask(TaskInput):
    """The workflow's input: a task starts as a `TaskInput`; a later run of it gets what is known so far."""

    carried: TaskRunState | None = None
