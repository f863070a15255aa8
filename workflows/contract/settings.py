"""What authors set of an agent and its tasks pin: how it remembers, and how it makes room."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

_TOLERANT = ConfigDict(extra="ignore", hide_input_in_errors=True)
"""As for all wire types. Authors write those of `everloop.agents.limits`, which are strict."""

_COUNT = "a whole number from 1"

_Room = Annotated[int, Field(ge=1, description=f"{_COUNT}; no memory is memory=None")]


@dataclass(frozen=True, config=_TOLERANT)
class Compaction:
    """How old messages make room when the prompt gets too long; the first message always stays."""

    strategy: Literal["window", "summary"] = "window"
    """Whether they are left out ("window"), or the model sums them up ("summary")."""
    prompt_tokens: Annotated[
        int | None, Field(ge=1, description=f"{_COUNT}, or None to wait for the provider to refuse")
    ] = None
    """Do so as soon as a prompt is about this long; None: when the provider refuses it."""


@dataclass(frozen=True, config=_TOLERANT)
class Memory:
    """What a task recalls of the earlier tasks of its context: the newest messages that fit."""

    max_messages: _Room = 20
    max_tokens: _Room = 8000
    """About so many, all in all."""
    strategy: Literal["window", "summary", "hierarchical"] = "window"
    """What does not fit is left out ("window"), or the model sums it up once the answer is given: in one
    summary ("summary"), or in summaries of summaries ("hierarchical"), which keep more of a long
    conversation."""
    auto_compact: bool = True
    """False: nothing is summed up by itself."""
