"""The side effects a workflow may ask for. `activities` implements them; method names are wire format."""

from abc import ABC, abstractmethod

from temporalio import activity

from workflows.contract.calls import (
    CallModelInput,
    PublishInput,
    RunToolInput,
    StoreTranscriptInput,
)
from workflows.contract.messages import AssistantMessage, ToolMessage


class ModelPort(ABC):
    """Talk to a language model."""

    @abstractmethod
    @activity.defn
    async def call_model(self, call: CallModelInput) -> AssistantMessage:
        """Stream one completion, publish its deltas, cache and return the whole reply.

        A retry after the reply was cached returns it without a second call.

        Raises:
            ApplicationError: `TranscriptMissing`, `ModelRefused`, `ContextTooLong` (not retryable),
                `ModelUnavailable`, `AgentUnknown` (retryable); see `workflows.contract.failures`.
        """


class ToolPort(ABC):
    """Run the tools of an agent."""

    @abstractmethod
    @activity.defn
    async def run_tool(self, call: RunToolInput) -> ToolMessage:
        """Validate the arguments, run the tool at most once (more often only if it is idempotent).

        Whatever goes wrong in the tool is a `ToolMessage` with outcome "error", never an exception.
        """


class TranscriptPort(ABC):
    """Refill the transcript cache."""

    @abstractmethod
    @activity.defn
    async def store_transcript(self, call: StoreTranscriptInput) -> None:
        """Write messages at their positions, over whatever stands there."""


class PublishPort(ABC):
    """Tell subscribers what happened."""

    @abstractmethod
    @activity.defn
    async def publish(self, call: PublishInput) -> None:
        """Publish events; repeating it changes nothing (`workflows.contract.events`)."""
