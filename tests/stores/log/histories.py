"""Random histories of a task, for hypothesis: changes of gateways and workers in any order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st

from everloop.workflows.contract.events import (
    FINAL_ATTEMPT,
    ChunkMode,
    Narrated,
    StatusChanged,
    TaskEvent,
    Warned,
)
from everloop.workflows.contract.messages import FilePart, Part, StoredPartRef, TextPart
from everloop.workflows.contract.tasks import TaskState, TaskStatus, TaskView
from tests.stores.examples import answered, artifact, asked, at, chunk, data, said, status, told

Ending = Literal["draft", "complete", "failed"]
RUNS = st.sampled_from(["run-a", "run-b", "run-c"])
STATES = st.sampled_from(
    [TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED]
)
QUESTIONS = st.sampled_from([(), (asked("c1"),), (asked("c1"), asked("c2.1"))])
METADATA = st.sampled_from([{}, {"usage": {"input_tokens": 3, "output_tokens": 4, "cost": 0.1}}])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
PARTS: st.SearchStrategy[Part] = (
    st.builds(TextPart, text=TEXTS)
    | st.builds(TextPart, text=TEXTS, media_type=st.just("text/markdown"))
    | st.just(data(x="1"))
    | st.just(FilePart(filename="a.bin", stored=StoredPartRef(artifact_id="log")))
)
MODES: st.SearchStrategy[ChunkMode] = st.sampled_from(["draft", "replace", "extend"])
USER_MESSAGES = st.builds(said, st.sampled_from(["m1", "m2", "m3", "m4"]))
AGENT_MESSAGES = st.none() | st.builds(told, st.sampled_from(["t1", "t2", "t3"]))
STATUSES = st.builds(
    status,
    st.integers(1, 4),
    STATES,
    step=st.integers(0, 1),
    message=AGENT_MESSAGES,
    received=st.lists(USER_MESSAGES, max_size=2).map(tuple),
    questions=QUESTIONS,
    metadata=METADATA,
    seconds=st.integers(0, 5),
)
CHUNKS = st.builds(
    chunk,
    st.just(""),
    position=st.integers(0, 2),
    attempt=st.sampled_from([1, 2, FINAL_ATTEMPT]),
    index=st.integers(0, 2),
    last=st.booleans(),
    artifact_id=st.sampled_from(["response", "log"]),
    part=PARTS,
    mode=MODES,
    failed=st.booleans(),
)
EVENTS: st.SearchStrategy[TaskEvent] = (
    STATUSES | CHUNKS | st.sampled_from([Warned(text="w"), Narrated(text="n")])
)
PASSING = (Warned, Narrated)
"""Events without an effect on the view, which are published again when repeated."""


@dataclass(frozen=True)
class Create:
    """The gateway creates the task."""


@dataclass(frozen=True)
class Publish:
    """A worker publishes a batch."""

    run_id: str
    events: Sequence[TaskEvent]


@dataclass(frozen=True)
class ChildPublish:
    """A worker publishes a batch for the task of a sub-agent."""

    path: str
    run_id: str
    events: Sequence[TaskEvent]


@dataclass(frozen=True)
class Restore:
    """A gateway restores a run's answer."""

    run_id: str
    version: int
    status: TaskStatus
    history: tuple[str, ...]
    artifacts: tuple[tuple[str, Ending], ...]

    def view_of(self, view: TaskView) -> TaskView:
        return answered(
            view,
            self.run_id,
            self.version,
            status=self.status,
            history=tuple(map(said, self.history)),
            artifacts=tuple(
                artifact(
                    f"restored {key}", complete=end == "complete", failed=end == "failed", artifact_id=key
                )
                for key, end in self.artifacts
            ),
        )


@dataclass(frozen=True)
class End:
    """A gateway records the end of a run; without a run id, that of a lost workflow."""

    run_id: str
    status: StatusChanged


ENDINGS: st.SearchStrategy[Ending] = st.sampled_from(["draft", "complete", "failed"])
CREATES = st.builds(Create)
PUBLISHES = st.builds(Publish, RUNS, st.lists(EVENTS, min_size=1, max_size=4))
CHILD_PUBLISHES = st.builds(
    ChildPublish, st.sampled_from(["call_1", "call_1/call_2"]), RUNS, st.lists(EVENTS, min_size=1, max_size=4)
)
RESTORES = st.builds(
    Restore,
    RUNS,
    st.integers(1, 4),
    st.builds(
        TaskStatus,
        state=STATES,
        at=st.integers(0, 5).map(at),
        message=AGENT_MESSAGES,
        questions=QUESTIONS,
        metadata=METADATA,
    ),
    st.lists(st.sampled_from(["m1", "m2", "m3", "m5"]), unique=True).map(tuple),
    st.lists(
        st.tuples(st.sampled_from(["response", "log"]), ENDINGS), max_size=2, unique_by=lambda pair: pair[0]
    ).map(tuple),
)
ENDS = st.builds(
    End,
    RUNS | st.just(""),
    st.builds(
        status,
        st.integers(1, 4),
        st.sampled_from([TaskState.COMPLETED, TaskState.FAILED]),
        step=st.just(1),
        message=AGENT_MESSAGES,
        seconds=st.integers(0, 5),
    ),
)
Change = Create | Publish | ChildPublish | Restore | End
CHANGES = CREATES | PUBLISHES | RESTORES | ENDS
