"""Logs of a process: JSON lines on stderr, ours and the libraries', without user content."""

import logging
import sys
import traceback
from collections.abc import Mapping
from hashlib import sha256
from types import TracebackType
from typing import Annotated, Literal, TextIO, cast

import structlog
from opentelemetry import trace
from pydantic import BeforeValidator
from structlog.contextvars import bind_contextvars
from structlog.typing import EventDict, Processor, WrappedLogger
from temporalio import activity, workflow
from temporalio.exceptions import ActivityError
from temporalio.runtime import LogForwardingConfig, LoggingConfig
from temporalio.service import RPCError

from everloop.runtime.user_code import MAX_ERRORS, error_kind, inner_errors
from everloop.workflows.contract import names
from everloop.workflows.contract.parts import shorten
from everloop.workflows.contract.tasks import TaskRef, TaskView

# The task of a log line.

_HASH_LENGTH = 12


OfTask = TaskRef | TaskView
"""A task, as log lines name it."""


def owner_hash(owner: str) -> str:
    """Return the pseudonym of an owner in logs: owners may be names of people."""
    return sha256(owner.encode()).hexdigest()[:_HASH_LENGTH]


def task_fields(task: OfTask) -> dict[str, str]:
    """Return the log fields of a task."""
    return {"task_id": task.task_id, "context_id": task.context_id, "owner_hash": owner_hash(task.owner)}


def bind_task(task: OfTask) -> None:
    """Add the fields of a task to all further lines of this asyncio task and its children."""
    bind_contextvars(**task_fields(task))


def bind_owner(owner: str) -> None:
    """Add the owner's hash to all further lines of this asyncio task and its children."""
    bind_contextvars(owner_hash=owner_hash(owner))


LogLevel = Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(str.lower)]

CHATTY = ("httpx", "httpcore", "httpx2", "httpcore2", "openai", "a2a", "botocore", "boto3", "urllib3")
"""Libraries logged from warnings on: at level info they log addresses, which contain ids."""

MOST_FRAMES = 30
"""Maximum frames of a stack in a line, innermost first."""

LONGEST_TEXT = 500
"""Maximum characters of an error text of Temporal's server."""

_TEMPORAL = ("temporal_workflow", "temporal_activity")
"""Fields in which Temporal's SDK describes the source of a line. All other extra fields are dropped."""

_TEMPORAL_FIELDS = ("activity_type", "attempt", "run_id", "workflow_run_id", "workflow_type")


def configure_logs(level: LogLevel, out: TextIO | None = None) -> None:
    """Write every log record, ours and the libraries', as one JSON line to `out` (default stderr).

    Exception texts are left out, because they quote people and tools; level debug includes them.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace_ids,
        _add_workflow,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),  # what is not logged costs nothing
        cache_logger_on_first_use=True,
    )
    foreign = [structlog.stdlib.ExtraAdder(_TEMPORAL), _flatten_temporal, _first_line]
    exceptions = _exceptions_in_full if level == "debug" else _exceptions_by_kind
    handler = logging.StreamHandler(out or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, *foreign],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                exceptions,
                _stack_as_list,
                structlog.processors.JSONRenderer(default=str),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for chatty in CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)
    logging.getLogger(_WORKFLOW_STEPS).addFilter(_is_no_failure_at_the_moment_of_a_cancel)
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_the_end
    # `_flatten_temporal` makes fields of this, in place of text.
    workflow.logger.workflow_info_on_message = activity.logger.activity_info_on_message = False


_WORKFLOW_STEPS = "temporalio.worker._workflow_instance"


def _is_no_failure_at_the_moment_of_a_cancel(record: logging.LogRecord) -> bool:
    """Drop the SDK's record of an activity that fails in the very step in which it is cancelled.

    The cancellation wins, as it should; asyncio then reports the failure as never retrieved.
    """
    error = record.exc_info[1] if record.exc_info else None
    is_unread = record.getMessage().startswith("Future exception was never retrieved")
    return not (is_unread and isinstance(error, ActivityError))


def temporal_core_logs() -> LoggingConfig:
    """Return the configuration for warnings of Temporal's native part, without their fields."""
    return LoggingConfig(
        filter=LoggingConfig.default.filter,
        forwarding=LogForwardingConfig(
            logger=logging.getLogger("temporalio"),
            prepend_target_on_message=False,
            append_log_fields_to_message=False,
        ),
    )


def _add_trace_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def _add_workflow(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the task of a line of workflow code, from its search attributes."""
    if workflow.in_workflow():
        info = workflow.info()
        event.setdefault("task_id", info.workflow_id)
        if context_id := info.typed_search_attributes.get(names.CONTEXT_ID):
            event.setdefault("context_id", context_id)
        if owner := info.typed_search_attributes.get(names.OWNER):
            event.setdefault("owner_hash", owner_hash(owner))
    return event


def _flatten_temporal(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Convert the fields of Temporal's SDK to ours."""
    for key in _TEMPORAL:
        details = event.pop(key, None)
        if isinstance(details, Mapping):
            details = cast("Mapping[str, object]", details)
            event.setdefault("task_id", details.get("workflow_id"))
            for name in _TEMPORAL_FIELDS:
                if name in details:
                    event.setdefault(name, details[name])
    return event


def _first_line(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Truncate a library's message to its first line: asyncio appends results and exceptions of tasks."""
    event["event"] = str(event["event"]).partition("\n")[0]
    return event


def _exceptions_by_kind(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace an exception by its type and place, without its text."""
    if error := _exception_of(event):
        for field, value in exception_fields(error).items():
            event.setdefault(field, value)
    return event


def exception_fields(error: BaseException) -> dict[str, object]:
    """Return the type and stack of an exception, without its text; the stack is one multi-line text.

    structlog's own renderers expect a text in `stack`; our JSON has a list. A group has the stacks of its
    errors, one after the other. Errors of Temporal's server keep their text: it is about namespaces,
    workflows and search attributes.
    """
    inner, chain = inner_errors(error)[:MAX_ERRORS], chain_of(error)
    stack = [frame for each in inner for frame in _stack(each.__traceback__)]
    fields: dict[str, object] = {"error_type": error_kind(error), "stack": "\n".join(stack)}
    if causes := [type(each).__name__ for each in chain if len(inner) > 1 or each is not inner[0]]:
        fields["caused_by"] = causes
    if failed := next((each for each in (*inner, *chain) if isinstance(each, RPCError)), None):
        fields["error"] = f"{failed.status.name}: {shorten(failed.message, LONGEST_TEXT)}"
    return fields


def _stack_as_list(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    if isinstance(stack := event.get("stack"), str):
        event["stack"] = stack.splitlines()
    return event


def _exceptions_in_full(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    if error := _exception_of(event):
        event.setdefault("error_type", error_kind(error))
        event["exception"] = full_text(error)
    return event


def full_text(error: BaseException) -> str:
    """Format an exception as Python prints it, with its text."""
    return "".join(traceback.format_exception(error)).rstrip()


def _exception_of(event: EventDict) -> BaseException | None:
    given = event.pop("exc_info", None)
    if isinstance(given, BaseException):
        return given
    if isinstance(given, tuple):
        return cast("tuple[object, BaseException | None, object]", given)[1]
    return sys.exc_info()[1] if given else None


def _stack(trace_: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace_)[-MOST_FRAMES:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an exception, or the members of a group, and their causes; each once."""
    chain: list[BaseException] = []
    left = inner_errors(error)[:MAX_ERRORS]
    while left:
        last = left.pop(0)
        if any(last is each for each in chain):
            continue
        chain.append(last)
        if cause := last.__cause__ or (None if last.__suppress_context__ else last.__context__):
            left = [*inner_errors(cause)[:MAX_ERRORS], *left]
    return chain


def _log_the_end(kind: type[BaseException], error: BaseException, trace_: TracebackType | None) -> None:
    """Log an uncaught exception as Python would print it."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace_)
        return
    structlog.get_logger().critical("the process ends by a defect", exc_info=error)
