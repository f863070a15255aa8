"""Side effects of workflows. `activities` implements them; method names are wire format."""

from abc import ABC, abstractmethod

from temporalio import activity

from everloop.workflows.contract import calls
from everloop.workflows.contract.messages import AssistantMessage, SummaryMessage, ToolMessage


class ModelPort(ABC):
    """Call a language model."""

    @abstractmethod
    @activity.defn
    async def call_model(self, call: calls.CallModelInput) -> AssistantMessage:
        """Stream one completion, publish its deltas, cache and return the complete reply.

        A retry after the reply was cached returns it without a second call. `call.tool` forces a call
        of that tool; other text of the reply is not shown.

        Raises:
            ApplicationError: `TranscriptMissing`, `ModelRefused`, `ContextTooLong` (not retryable),
                `PriceUnknown` (not retryable), `ModelUnavailable`, `AgentUnknown` (retryable); see
                `everloop.workflows.contract.failures`.
        """

    @abstractmethod
    @activity.defn
    async def compact_context(self, call: calls.CompactContextInput) -> SummaryMessage:
        """Make, cache and return the summary that replaces older messages.

        Messages that the model cannot sum up are left out, with a warning; an earlier summary stays.

        Raises:
            ApplicationError: `TranscriptMissing` (not retryable).
        """


class ToolPort(ABC):
    """Run the tools of an agent."""

    @abstractmethod
    @activity.defn
    async def run_tool(self, call: calls.RunToolInput) -> calls.ToolReply:
        """Validate the arguments, and run the tool at most once (more often only if it is idempotent).

        A `Question` means that the call waits for people: it is repeated with their answer. An error of
        the tool is a `ToolMessage`, never an exception, unless its definition has retries.

        Raises:
            ApplicationError: `ToolFailed` (retryable): the tool is tried again.
        """

    @abstractmethod
    @activity.defn
    async def store_result(self, call: calls.StoreResultInput) -> ToolMessage | None:
        """Cache and publish a result that the workflow made; repeating it changes nothing.

        Return the truncated result for the model if it is too long, else None.
        """


class AgentPort(ABC):
    """Look up definitions of agents."""

    @abstractmethod
    @activity.defn
    async def load_agent(self, call: calls.LoadAgentInput) -> calls.LoadedAgent:
        """Publish the start of the call, and return the definition that the task of a sub-agent pins.

        Like any tool, the call may need an approval first, or be vetoed by a plugin.

        Raises:
            ApplicationError: `AgentUnknown` (retryable).
        """

    @abstractmethod
    @activity.defn
    async def prepare_task(self, call: calls.PrepareTaskInput) -> calls.PreparedTask:
        """List the tools of the agent's plugins, and put the list into the cached transcript.

        Raises:
            ApplicationError: `AgentUnknown`, `ToolsUnavailable` (retryable), `PluginFailed`.
        """

    @abstractmethod
    @activity.defn
    async def before_request(self, call: calls.BeforeRequestInput) -> calls.BeforeRequestResult:
        """Run the plugins' hooks, which may change or refuse messages of the client.

        Raises:
            ApplicationError: `AgentUnknown` (retryable), `PluginFailed`.
        """

    @abstractmethod
    @activity.defn
    async def after_completion(self, call: calls.AfterCompletionInput) -> None:
        """Notify the plugins of the end of the task, at least once. Their exceptions are logged."""


class TranscriptPort(ABC):
    """Refill the transcript cache."""

    @abstractmethod
    @activity.defn
    async def store_transcript(self, call: calls.StoreTranscriptInput) -> None:
        """Write messages at their positions, over existing ones."""


class ContextPort(ABC):
    """Store the conversation of a context, over all its tasks."""

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
        """Sum up messages too old to be recalled by a model call; the messages themselves stay.

        A summary is stored by the range that it covers: repeating it costs no second call.

        Raises:
            ApplicationError: the model refused, or cannot answer now; see `ModelPort.call_model`.
        """


class PublishPort(ABC):
    """Publish events to subscribers."""

    @abstractmethod
    @activity.defn
    async def publish(self, call: calls.PublishInput) -> calls.SaveContextResult | None:
        """Publish events; repeating it changes nothing (`everloop.workflows.contract.events`).

        Raises:
            ApplicationError: `TranscriptMissing` (not retryable): the messages to remember are lost,
                and nothing was published.
        """


class NarratorPort(ABC):
    """Report the activity of a task while it works."""

    @abstractmethod
    @activity.defn
    async def narrate(self, call: calls.NarrateInput) -> None:
        """Publish short statuses until an artifact begins, the task waits for people, or it ends."""


class SchedulePort(ABC):
    """Admit the tasks of schedules, and provide their files and webhooks."""

    @abstractmethod
    @activity.defn
    async def admit(self, call: calls.AdmitInput) -> None:
        """Count a scheduled task against its owner's limits.

        Raises:
            ApplicationError: `TooMuchAsked`; retryable if there will soon be room.
        """

    @abstractmethod
    @activity.defn
    async def attach(self, call: calls.AttachInput) -> None:
        """Give a task copies of its schedule's files and its webhook; repeating it changes nothing.

        Raises:
            ApplicationError: `FilesUnavailable` (retryable), `AttachmentLost`.
        """


class PushPort(ABC):
    """Notify clients by webhook."""

    @abstractmethod
    @activity.defn
    async def deliver_push(self, push: calls.PushRef) -> calls.DeliverPushResult:
        """Send the next notification, if there is one. Its id is the same when it is sent again.

        Raises:
            ApplicationError: `PushFailed`, `TaskUnreadable` (retryable); see
                `everloop.workflows.contract.calls`.
        """
