"""Limits of a task, model settings, memory, retries of tools, and queues."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator, model_validator

from everloop.agents.errors import definition
from everloop.runtime.outbound.policy import problem_of_headers
from everloop.workflows.contract import agent_settings
from everloop.workflows.contract.names import WORKER_QUEUES

LONGEST = timedelta(days=3650)
"""Ten years: practically unlimited, but still a date that calendars and timers can hold."""

_COUNT = "a whole number from 1"
_TIME = f"a timedelta above 0, of at most {LONGEST.days} days"
_NO_LIMIT = "or None for no limit"

Count = Annotated[int, Field(ge=1, description=_COUNT)]

Time = Annotated[timedelta, Field(gt=timedelta(0), le=LONGEST, description=_TIME)]

_BYTES = "a whole number of bytes, from 1"

Bytes = Annotated[int, Field(ge=1, description=_BYTES)]

BytesOrDefault = Annotated[Bytes | None, Field(description=_BYTES)]

CountLimit = Annotated[Count | None, Field(description=f"{_COUNT}, {_NO_LIMIT}")]


@definition
class Memory(agent_settings.Memory):
    """Recall of the earlier tasks of the context: the newest messages within a limit.

    Raises:
        AgentDefinitionError: an unknown strategy, or no room for a message.
    """


@definition
class Compaction(agent_settings.Compaction):
    """Compaction of a long prompt; the first message always stays.

    Raises:
        AgentDefinitionError: an unknown strategy, or a prompt of no tokens.
    """


_NOT_BODY = ("model", "messages", "tools", "stream", "stream_options", "n")
"""Fields of a request that have another place, or that would make the reply unreadable."""


@definition
class ModelSettings(agent_settings.ModelSettings):
    """Parameters and timeouts of model calls; those that are not set are the provider's.

    It is part of histories: no secrets in `extra_headers`, `extra_body` and `provider_tools`.

    Raises:
        AgentDefinitionError: a setting that no provider could accept.
    """

    @field_validator("extra_body")
    @classmethod
    def _check_body(cls, body: Mapping[str, object] | None) -> Mapping[str, object] | None:
        if wrong := [name for name in _NOT_BODY if name in (body or {})]:
            raise ValueError(f"extra_body has {', '.join(wrong)}, which cannot be set")
        return body

    @field_validator("extra_headers")
    @classmethod
    def _check_headers(cls, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        if problem := problem_of_headers(headers or {}):
            raise ValueError(f"extra_headers: {problem}")
        return headers


@definition
class Limits:
    """Limits at which a task stops; None means no limit. The usage of sub-agents counts too.

    Raises:
        AgentDefinitionError: a limit that no task could keep.
    """

    iterations: Count = 30
    """Model calls."""
    tokens: CountLimit = None
    """Sum of prompt and reply tokens."""
    cost: Annotated[float | None, Field(gt=0, description=f"a number above 0, {_NO_LIMIT}")] = None
    """In US dollars."""
    wall_clock: Annotated[Time | None, Field(description=f"{_TIME}, {_NO_LIMIT}")] = None
    """From the first run of the task, waiting for people included."""
    tool_failures: CountLimit = 3
    """Iterations in a row without a successful tool call."""
    sub_agents: CountLimit = 50
    """Tasks of sub-agents that one task may start."""
    last_call: bool = True
    """At the limit of iterations, tokens or cost the model is called once more, without tools, for a final
    answer. False: the task fails."""


@definition
class Retries:
    """Retries of a tool that raises, or takes too long; every wait is up to a fifth shorter or longer.

    Raises:
        AgentDefinitionError: no attempt at all, or waits that shrink or end before they begin.
    """

    attempts: Annotated[int, Field(ge=1, description=f"{_COUNT} (no retry)")] = 3
    """Total, the first one included."""
    delay: Annotated[timedelta, Field(ge=timedelta(0), description="a timedelta from 0 to longest")] = (
        timedelta(seconds=1)
    )
    """Wait before the first retry."""
    factor: Annotated[float, Field(ge=1, description="a number from 1")] = 2.0
    """Factor of each later wait."""
    longest: Annotated[
        timedelta, Field(le=LONGEST, description=f"a timedelta of at most {LONGEST.days} days")
    ] = timedelta(minutes=1)
    """Maximum wait."""

    @model_validator(mode="after")
    def _begin_before_they_end(self) -> "Retries":
        if self.delay > self.longest:
            raise ValueError(f"delay is {self.delay}; give one from 0 to longest ({self.longest})")
        return self

    def delay_after(self, failures: int) -> timedelta:
        """Return the wait after this number of failures (1 or more), before jitter.

        >>> [Retries(delay=timedelta(seconds=2)).delay_after(failures).seconds for failures in (1, 2, 3)]
        [2, 4, 8]
        """
        try:
            return min(self.longest, self.delay * self.factor ** (failures - 1))
        except OverflowError:
            return self.longest


# Queues of their own, for agents and tools that need other workers, or a concurrency limit.

_MOST_BYTES = 200  # Temporal has 255 for the name, and adds a prefix and a suffix


def _check_queue(name: str) -> str:
    if not name.strip() or "," in name or not name.isprintable() or len(name.encode()) > _MOST_BYTES:
        raise ValueError(f"task_queue is {name!r}; give up to {_MOST_BYTES} bytes without commas")
    if name in WORKER_QUEUES:
        raise ValueError(
            f"task_queue is {name!r}, which is what `everloop worker --queues` calls a queue of all agents"
        )
    return name


TaskQueue = Annotated[str, AfterValidator(_check_queue)]
