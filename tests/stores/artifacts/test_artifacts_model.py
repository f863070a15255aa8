"""Random histories of an artifact: each store has the same result as a naive model."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everloop.stores.artifacts.artifact_errors import (
    ArtifactClosedError,
    ArtifactError,
    ArtifactExistsError,
    ArtifactMissingError,
    PartIndexError,
)
from everloop.stores.artifacts.changes import (
    AddParts,
    Append,
    Change,
    Complete,
    Create,
    Fail,
    NewPart,
    Replace,
)
from everloop.workflows.contract.artifacts import ArtifactStatus
from tests.stores.artifacts.artifact_rig import ArtifactRig


@dataclass(frozen=True)
class Delete:
    """Remove the artifact."""


@dataclass(frozen=True)
class Step:
    """A change with a name, which may be empty or that of an earlier one."""

    change: Change | Delete
    operation_id: str


@dataclass
class Model:
    """The expected artifact; `parts` are their contents."""

    parts: list[bytes] = field(default_factory=list[bytes])
    status: ArtifactStatus = ArtifactStatus.BUILDING
    version: int = 0
    chunks: int = 0
    known: set[str] = field(default_factory=set[str])

    def apply(self, step: Step) -> type[ArtifactError] | None:
        """Make a change, or return the reason of its refusal."""
        if isinstance(step.change, Delete):
            self.version, self.chunks = 0, 0
            self.known.clear()
            return None
        if step.operation_id in self.known:
            return None
        before = self.version
        refused = self._change(step.change)
        if self.version > before and step.operation_id:
            self.known.add(step.operation_id)
        return refused

    def _change(self, change: Change) -> type[ArtifactError] | None:
        if isinstance(change, Create):
            return self._create(change)
        if not self.version:
            return ArtifactMissingError
        if isinstance(change, Complete | Fail):
            return self._close(change)
        if self.status is not ArtifactStatus.BUILDING:
            return ArtifactClosedError
        refused = self._write(change)
        if not refused:
            self.version += 1
            if not isinstance(change, Replace) and change.last_chunk:
                self.status = ArtifactStatus.COMPLETE
        return refused

    def _create(self, change: Create) -> type[ArtifactError] | None:
        if self.version and not change.override:
            return ArtifactExistsError
        self.version, self.chunks = self.version + 1, 0
        self.parts = [part.content for part in change.parts]
        self.status = ArtifactStatus.COMPLETE if change.complete else ArtifactStatus.BUILDING
        return None

    def _close(self, change: Complete | Fail) -> type[ArtifactError] | None:
        status = ArtifactStatus.COMPLETE if isinstance(change, Complete) else ArtifactStatus.FAILED
        if self.status is ArtifactStatus.BUILDING:
            self.status, self.version = status, self.version + 1
            return None
        return None if self.status is status else ArtifactClosedError

    def _write(self, change: Append | AddParts | Replace) -> type[ArtifactError] | None:
        count = len(self.parts)
        if isinstance(change, AddParts):
            self.parts += [part.content for part in change.parts]
            self.chunks += 1
            return None
        index = count - 1 if change.index == -1 and isinstance(change, Append) else change.index
        if not 0 <= index < count:
            return PartIndexError
        if isinstance(change, Replace):
            self.parts[index] = change.part.content
            return None
        self.parts[index] += change.content
        self.chunks += 1
        return None


SIZES = [0, 1, 30, 99, 100, 101, 250, 399, 400, 401, 850]


def filled(letter: int, size: int) -> bytes:
    return bytes([letter]) * size


def file(content: bytes) -> NewPart:
    return NewPart("file", content)


def one_in(count: int) -> st.SearchStrategy[bool]:
    return st.integers(1, count).map(lambda number: number == 1)


CONTENTS = st.builds(filled, st.integers(0, 255), st.sampled_from(SIZES))
PARTS = st.builds(file, CONTENTS)
FEW_PARTS = st.lists(PARTS, max_size=2).map(tuple)
CREATES = st.builds(Create, st.just("task"), FEW_PARTS, complete=one_in(6), override=st.booleans())
APPENDS = st.builds(Append, CONTENTS, st.sampled_from([-1, -1, -1, 0, 0, 1, 2]), last_chunk=one_in(12))
CHANGES = (
    APPENDS
    | APPENDS
    | APPENDS
    | APPENDS
    | CREATES
    | st.builds(AddParts, FEW_PARTS)
    | st.builds(Replace, st.integers(-1, 2), PARTS)
    | st.sampled_from([Complete(), Fail(), Delete()])
)
STEPS = st.lists(st.builds(Step, CHANGES, st.sampled_from(["", "", "", "x", "y"])), min_size=4, max_size=20)
HISTORIES = STEPS.map(lambda steps: [Step(Create("task", (NewPart("file"),)), ""), *steps])


async def refusal(rig: ArtifactRig, step: Step) -> type[ArtifactError] | None:
    try:
        if isinstance(step.change, Delete):
            await rig.artifacts.delete_artifact(rig.context_id, "a")
        else:
            await rig.artifacts.apply(rig.context_id, "a", step.change, operation_id=step.operation_id)
    except ArtifactError as error:
        return type(error)
    return None


async def check(rig: ArtifactRig, history: Sequence[Step]) -> None:
    """Compare store and model after each step: what is refused, and what is kept."""
    rig = replace(rig, context_id=f"owner:{uuid4()}", task_id=f"task-{uuid4()}")
    model = Model()
    for step in history:
        assert await refusal(rig, step) == model.apply(step)
        listed = await rig.artifacts.list_artifacts(rig.context_id)
        assert [(found.version, found.status) for found in listed] == (
            [(model.version, model.status)] if model.version else []
        )
        if listed:
            assert await rig.artifacts.get_artifact(rig.context_id, "a") == listed[0]
            assert [part.size for part in listed[0].parts] == [len(part) for part in model.parts]
            contents = [await rig.content("a", index) for index in range(len(model.parts))]
            assert contents == model.parts


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORIES)
async def test_a_store_is_as_the_model(artifact_rig: ArtifactRig, history: Sequence[Step]) -> None:
    """Whatever is created, appended, replaced, closed and deleted, nothing is kept but that."""
    await check(artifact_rig, history)
