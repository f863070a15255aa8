"""The side effects a workflow may ask for. `activities` implements them; method names are wire format."""

from abc import ABC, abstractmethod

from temporalio import activity

from everloop.workflows.contract import calls
from everloop.workflows.contract.messages import AssistantMessage, SummaryMessage, ToolMessage


class ModelPort(ABC):
    """Talk to a language model."""

    @abstractmethod
    @activity.defn
    async def call_model(self, call: calls.CallModelInput) -> AssistantMessage:
        """Stream one completion, publish its deltas, cache and return the whole reply.

        A retry after the reply was cached returns it without a second call. `call.tool` makes the model call
        that tool; what it says besides is not shown.

        Raises:
            ApplicationError: `TranscriptMissing`, `ModelRefused`, `ContextTooLong` (not retryable),
                `PriceUnknown` (not retryable), `ModelUnavailable`, `AgentUnknown` (retryable); see
                `everloop.workflows.contract.failures`.
        """

    @abstractmethod
    @activity.defn
    async def compact_context(self, call: calls.CompactContextInput) -> SummaryMessage:
        """Make, cache and return the message that stands for older ones.

        What the model cannot sum up is left out, with a warning; an earlier summary stays.

        Raises:
            ApplicationError: `TranscriptMissing` (not retryable).
        """


class ToolPort(ABC):
    """Run the tools of an agent."""

    @abstractmethod
    @activity.defn
    async def run_tool(self, call: calls.RunToolInput) -> calls.ToolReply:
        """Validate the arguments, run the tool at most once (more often only if it is idempotent).

        A `Question` means that the call waits for people: it comes again with their answer. Whatever goes
        wrong in the tool is a `ToolMessage` that says so, never an exception, unless its definition asks
        for retries.

        Raises:
            ApplicationError: `ToolFailed` (retryable): the tool is tried again.
        """

    @abstractmethod
    @activity.defn
    async def store_result(self, call: calls.StoreResultInput) -> ToolMessage | None:
        """Cache and announce a result that the workflow made itself; repeating it changes nothing.

        Return the result as the model reads it where that is its beginning only, else None.
        """


class AgentPort(ABC):
    """Look up definitions of agents."""

    @abstractmethod
    @activity.defn
    async def load_agent(self, call: calls.LoadAgentInput) -> calls.LoadedAgent:
        """Announce that the call starts, and return what the task of a sub-agent pins.

        Like any tool, the call may need an approval first, or be vetoed by a plugin.

        Raises:
            ApplicationError: `AgentUnknown` (retryable).
        """

    @abstractmethod
    @activity.defn
    async def prepare_task(self, call: calls.PrepareTaskInput) -> calls.PreparedTask:
        """Ask the agent's plugins for the tools of the task, and put their list into the cached transcript.

        Raises:
            ApplicationError: `AgentUnknown`, `ToolsUnavailable` (retryable), `PluginFailed`.
        """

    @abstractmethod
    @activity.defn
    async def before_request(self, call: calls.BeforeRequestInput) -> calls.BeforeRequestResult:
        """Let the plugins change or refuse what the client said.

        Raises:
            ApplicationError: `AgentUnknown` (retryable), `PluginFailed`.
        """

    @abstractmethod
    @activity.defn
    async def after_completion(self, call: calls.AfterCompletionInput) -> None:
        """Let the plugins know how the task ended; what they raise is logged. They may hear of it again."""


class TranscriptPort(ABC):
    """Refill the transcript cache."""

    @abstractmethod
    @activity.defn
    async def store_transcript(self, call: calls.StoreTranscriptInput) -> None:
        """Write messages at their positions, over whatever stands there."""


class ContextPort(ABC):
    """Remember what was said in a context, over all its tasks."""

    @abstractmethod
    @activity.defn
    async def load_context(self, call: calls.LoadContextInput) -> calls.LoadContextResult:
        """Return the newest messages, and put them at the beginning of the cached transcript."""

    @abstractmethod
    @activity.defn
    async def save_context(self, call: calls.SaveContextInput) -> calls.SaveContextResult | None:
        """Append messages to the conversation; repeating it for the same task changes nothing.

        Raises:
            ApplicationError: `TranscriptMissing` (not retryable).
        """

    @abstractmethod
    @activity.defn
    async def compact_conversation(self, call: calls.CompactConversationInput) -> None:
        """Let the model sum up what is too old to be recalled; the messages themselves stay.

        A summary is kept by the range that it covers: repeating it costs no second call.

        Raises:
            ApplicationError: the model refused, or cannot answer now; see `ModelPort.call_model`.
        """


class PublishPort(ABC):
    """Tell subscribers what happened."""

    @abstractmethod
    @activity.defn
    async def publish(self, call: calls.PublishInput) -> calls.SaveContextResult | None:
        """Publish events; repeating it changes nothing (`everloop.workflows.contract.events`).

        Raises:
            ApplicationError: `TranscriptMissing` (not retryable): what is to be remembered is lost, and
            nothing
                was published.
        """


class NarratorPort(ABC):
    """Say what a task is doing while it works."""

    @abstractmethod
    @activity.defn
    async def narrate(self, call: calls.NarrateInput) -> None:
        """Publish short statuses until an artifact begins, the task waits for people, or it ends."""


class SchedulePort(ABC):
    """Hand out what schedules keep."""

    @abstractmethod
    @activity.defn
    async def attach(self, call: calls.AttachInput) -> None:
        """Give a task copies of its schedule's files, and let it notify; repeating it changes nothing.

        Raises:
            ApplicationError: `FilesUnavailable` (retryable), `AttachmentLost`.
        """


class PushPort(ABC):
    """Notify clients by webhook."""

    @abstractmethod
    @activity.defn
    async def deliver_push(self, push: calls.PushRef) -> calls.DeliverPushResult:
        """Send the next notification, if there is one; a webhook that gets it again can tell by its id.

        Raises:
            ApplicationError: `PushFailed`, `TaskUnreadable` (retryable); see
            `everloop.workflows.contract.calls`.
        """
