"""Everything a running task knows, and how it changes. No I/O, no clock: times are arguments."""

import json
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, Field, JsonValue

from everloop.workflows.contract.events import RESPONSE_ARTIFACT, USAGE, ResumedAfter, StatusChanged
from everloop.workflows.contract.messages import (
    AgentMessage,
    AssistantMessage,
    DataPart,
    Message,
    SummaryMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolsMessage,
    TranscriptMessage,
    Usage,
    UserMessage,
    content_digest,
)
from everloop.workflows.contract.names import message_identity, relayed_question
from everloop.workflows.contract.questions import Answer, Question
from everloop.workflows.contract.tasks import (
    AgentSpec,
    Artifact,
    TaskInput,
    TaskState,
    TaskStatus,
    ToolSpec,
    TranscriptPage,
)
from everloop.workflows.contract.transcripts import estimate_tokens, extend_digest, measure

VIEW_BYTES = 1_500_000
"""The `view` query returns the newest messages that fit: Temporal takes payloads up to 2 MB."""


class Phase(StrEnum):
    """Where the loop stands."""

    PREPARING = "preparing"
    MODEL = "model"
    TOOLS = "tools"
    WAITING = "waiting"
    DONE = "done"


class OpenQuestion(BaseModel):
    """A question that nobody has answered yet. `deadline` is set once it was shown, if it has a timeout.

    `asked_by` is the pending call whose sub-agent asks; its task keeps the time, and takes the answer.
    """

    question: Question
    deadline: datetime | None = None
    asked_by: str = ""


class TaskRunState(BaseModel):
    """The state of one task; all of it goes along when a long task continues as a new run.

    `transcript` holds every message once, and `digest` is its digest; `cached` of them are in the transcript
    cache as far as the workflow knows, and `resent` were last sent there again. `size` is about how many
    bytes transcript and history have. `version` numbers the published statuses. `remark` is what the model
    said to the client and no status has carried yet. `outbox` are the statuses of which no call that carried
    them has ended, in order of version: nobody knows whether they are published
    (`everloop.workflows.scope`).

    `pending` are the calls of the last reply that have no result yet; `results`, `answers` and `fallbacks`
    (the tool that stands in now) belong to the calls of that reply, by call id; so does `skipped`, the notes
    of operators who want to end a call. `heard` are answers of the
    client that no status has taken in yet, `known` tells by id what each of its messages says
    (`content_digest`), `asked` those of all
    questions. `tries` counts the model calls that ended without a reply since the last one, `tool_failures`
    iterations in a row in which no tool call worked. `prompt_tokens` is about how long the next prompt is.
    `answer` is what the task ends with; it stands while an artifact that is missing is still to be written.
    `artifact_ids` are those that calls which worked wrote. `waits_for_resume` says what failed.
    `last_signal` says what the last one of an operator did. `is_routed`: it is decided that there is a task
    (or none). `recalled` messages at the beginning of the transcript were there before the task's own first
    one: what was said in earlier tasks of the context, and the list of its tools.

    `agent` is the one that works on the task, if it is not the one that the task began with; `successor` the
    one that takes it over next. `listed_tools` are those that plugins have listed for the task. `misfits`
    counts answers that were not the data wanted since the last that stood, `sub_agents` the tasks that were
    started for it; `asked_agents` are the calls whose sub-agents work, with the ids of their tasks.
    `relayed` are answers for sub-agents, by the call that asked them. `is_data`: the answer is JSON.
    """

    started_at: datetime
    phase: Phase = Phase.PREPARING
    iteration: int = 0
    transcript: list[TranscriptMessage] = Field(default_factory=list[TranscriptMessage])
    cached: int = 0
    resent: int = 0
    digest: str = ""
    size: int = 0
    inbox: list[UserMessage] = Field(default_factory=list[UserMessage])
    pending: list[ToolCall] = Field(default_factory=list[ToolCall])
    results: dict[str, ToolMessage] = {}
    skipped: dict[str, str] = {}
    fallbacks: dict[str, str] = {}
    questions: list[OpenQuestion] = Field(default_factory=list[OpenQuestion])
    answers: dict[str, list[Answer]] = {}
    heard: list[Message] = Field(default_factory=list[Message])
    known: dict[str, str] = {}
    asked: list[str] = Field(default_factory=list[str])
    tool_failures: int = 0
    model_index: int = 0
    tries: int = 0
    prompt_tokens: int = 0
    previous_run: str = ""
    waits_for_resume: str = ""
    last_signal: str = ""
    usage: Usage = Usage()
    version: int = 0
    status: TaskStatus
    history: list[Message] = Field(default_factory=list[Message])
    remark: str = ""
    outbox: list[StatusChanged] = Field(default_factory=list[StatusChanged])
    answer: AssistantMessage | None = None
    artifact_ids: list[str] = Field(default_factory=list[str])
    is_routed: bool = False
    recalled: int = 0
    agent: AgentSpec | None = None
    successor: AgentSpec | None = None
    listed_tools: dict[str, ToolSpec] = {}
    misfits: int = 0
    sub_agents: int = 0
    relayed: dict[str, list[Answer]] = {}
    asked_agents: dict[str, str] = {}
    is_data: bool = False

    @classmethod
    def begin(cls, message: UserMessage, at: datetime, started_at: datetime | None = None) -> "TaskRunState":
        """Return the state of a task that was submitted with its first message, and that starts now."""
        status = TaskStatus(state=TaskState.SUBMITTED, at=at)
        begun = cls(started_at=started_at or at, inbox=[message], status=status)
        begun.note_message(message)
        return begun

    def known_content(self, message: UserMessage) -> str:
        """Return the digest of the message of this id that the task has taken in; empty if it has none."""
        return self.known.get(message_identity(message.message_id), "")

    def note_message(self, message: UserMessage) -> str:
        """Remember a message, so that it is taken in once, also by later runs; return its digest."""
        return self.known.setdefault(message_identity(message.message_id), content_digest(message))

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
        rest = (*self.inbox, *self.heard, *self.results.values())
        return self.size + sum(map(measure, rest))

    @property
    def new_messages(self) -> tuple[UserMessage, ...]:
        """The end of the transcript that no model call has seen; only user messages can be there."""
        return tuple(m for m in self.transcript[self.cached :] if isinstance(m, UserMessage))

    def recall(self, earlier: list[TranscriptMessage]) -> None:
        """Begin the transcript with what was said before this task; the cache holds it already."""
        self._append(*earlier)
        self.cached = self.recalled = len(earlier)
        self.prompt_tokens = sum(map(estimate_tokens, earlier))

    def list_tools(self, listed: ToolsMessage, tools: dict[str, ToolSpec]) -> None:
        """Put the list of tools, which the cache holds already, at the end of the transcript."""
        if len(self.transcript) == self.recalled:
            self.recalled += 1
        self._append(listed)
        self.cached = len(self.transcript)
        self.prompt_tokens += estimate_tokens(listed)
        self.listed_tools = tools

    def take_inbox(self, screened: Sequence[UserMessage] = ()) -> tuple[UserMessage, ...]:
        """Move the messages that came meanwhile to the end of the transcript and return them.

        `screened` are the first of them as plugins let the model read them; clients see what they wrote.
        """
        taken = tuple(self.inbox)
        read = (*screened, *taken[len(screened) :])
        self._append(*read)
        self.prompt_tokens += sum(map(estimate_tokens, read))
        self.inbox.clear()
        return taken

    def take_heard(self) -> tuple[Message, ...]:
        """Return the answers of the client that no status has taken in yet."""
        heard = tuple(self.heard)
        self.heard.clear()
        return heard

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
        replaced, then by what the client said.
        """
        if self.status.state.is_interrupted and state is TaskState.WORKING:
            resumed = "answer"
        said = (*((self.status.message,) if self.status.message else ()), *received)
        self.history.extend(said)
        self.size += sum(map(measure, said))
        self.version += 1
        questions = self.open_questions
        metadata: dict[str, JsonValue] = {USAGE: self.usage.to_metadata()}
        self.status = TaskStatus(state=state, at=at, message=message, questions=questions, metadata=metadata)
        changed = StatusChanged(
            version=self.version,
            state=state,
            at=at,
            message=message,
            received=received,
            questions=questions,
            metadata=metadata,
            resumed=resumed,
        )
        self.outbox.append(changed)
        return changed

    def _append(self, *messages: TranscriptMessage) -> None:
        self.transcript.extend(messages)
        self.digest = extend_digest(self.digest, messages)
        self.size += sum(map(measure, messages))

    def fold_reply(self, reply: AssistantMessage) -> None:
        """Put the model's reply at the end of the transcript; its text is a remark until it is an answer."""
        self._append(reply)
        self.cached = len(self.transcript)
        self.usage += reply.usage
        self.remark = reply.text
        self.pending = list(reply.tool_calls)
        counted = reply.usage.input_tokens + reply.usage.output_tokens
        self.prompt_tokens = counted or self.prompt_tokens + estimate_tokens(reply)
        self.tries = 0
        self.previous_run = ""
        if reply.misfits:
            self.misfits += 1
        elif not (reply.tool_calls or reply.refused):
            self.misfits = 0

    def tell_refusal(self, reply: AssistantMessage) -> None:
        """Let the model read why its reply does not stand; clients have not heard of it."""
        said = f"[Your last reply was not accepted: {reply.refused}]"
        # Without an id: no message of the client has none, and no client gets to see this one.
        message = UserMessage(message_id="", parts=(TextPart(text=said),))
        self._append(message)
        self.prompt_tokens += estimate_tokens(message)
        self.remark = ""

    def hold_answer(self, answer: AssistantMessage, *, is_data: bool = False) -> None:
        """Keep the answer that the task may end with: its text is no remark."""
        self.answer, self.remark, self.is_data = answer, "", is_data

    def take_back_answer(self) -> None:
        """Make a remark of an answer that was held: the client has said more."""
        if self.answer:
            self.answer, self.remark = None, self.answer.text

    def fold_summary(self, summary: SummaryMessage) -> None:
        """Put what stands for older messages at the end; the next reply tells how long a prompt is."""
        self._append(summary)
        self.cached = len(self.transcript)
        self.usage += summary.usage
        self.prompt_tokens = 0
        self.previous_run = ""

    def fold_tool_results(self, results: list[ToolMessage]) -> None:
        """Put tool results, in the order of their calls, at the end of the transcript."""
        self._append(*results)
        self.cached = len(self.transcript)
        self.prompt_tokens += sum(map(estimate_tokens, results))
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
        self.pending.remove(call)

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
        """Let the open questions of a call's sub-agent be these; they stand under ids of our own."""
        kept = [entry for entry in self.questions if entry.asked_by != call_id]
        known = {entry.question.id: entry for entry in self.questions if entry.asked_by == call_id}
        relayed = [q.model_copy(update={"id": relayed_question(call_id, q.id)}) for q in questions]
        self.asked.extend(question.id for question in relayed if question.id not in self.asked)
        self.questions = kept
        self._open([known.get(q.id) or OpenQuestion(question=q, asked_by=call_id) for q in relayed])

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
        """Close a question; its call goes on. `message` tells the answer in the history of the task."""
        (entry,) = (entry for entry in self.questions if entry.question.id == answer.question_id)
        self.questions.remove(entry)
        if entry.asked_by:
            theirs = answer.question_id.removeprefix(relayed_question(entry.asked_by, ""))
            passed_on = answer.model_copy(update={"question_id": theirs})
            self.relayed.setdefault(entry.asked_by, []).append(passed_on)
        else:
            self.answers.setdefault(entry.question.call.id, []).append(answer)
        if message:
            self.heard.append(message)

    def transcript_page(self, start: int) -> TranscriptPage:
        """Return the messages from a position on that fit into the answer of a query, at least one."""
        room, end = VIEW_BYTES, start
        for message in self.transcript[start:]:
            room -= _size(message)
            if room < 0 and end > start:
                break
            end += 1
        following = end if end < len(self.transcript) else None
        return TranscriptPage(start=start, messages=tuple(self.transcript[start:end]), next=following)

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The artifacts that the history of the workflow can vouch for."""
        if self.answer is None or not self.answer.text:
            return ()
        parts = (self.answer_part(self.answer.text),)
        return (Artifact(artifact_id=RESPONSE_ARTIFACT, name=RESPONSE_ARTIFACT, parts=parts, complete=True),)

    def answer_part(self, text: str) -> TextPart | DataPart:
        """Return the answer as clients get it: as data, unless it is an ending of another kind."""
        try:
            return DataPart(data=json.loads(text)) if self.is_data else TextPart(text=text)
        except ValueError:
            return TextPart(text=text)

    @property
    def recent_history(self) -> tuple[Message, ...]:
        """The newest messages of the history that a view has room for besides its status and answer."""
        room = VIEW_BYTES - _size(self.status) - sum(_size(artifact) for artifact in self.artifacts)
        kept: list[Message] = []
        for message in reversed(self.history):
            room -= _size(message)
            if room < 0:
                break
            kept.append(message)
        return tuple(reversed(kept))


class CarriedTask(TaskInput):
    """The workflow's input: a task starts as a `TaskInput`; a later run of it gets what is known so far."""

    carried: TaskRunState | None = None


def _size(part: BaseModel) -> int:
    """Return the bytes that it takes in a payload."""
    return len(part.model_dump_json().encode())
