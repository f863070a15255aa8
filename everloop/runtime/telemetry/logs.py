"""Logs of a process: JSON lines on stderr, ours and those of the libraries, without what people have said."""

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

from everloop.workflows.contract import names
from everloop.workflows.contract.tasks import TaskRef, TaskView

# What a log line says of the task that it is about.

_HASH_LENGTH = 12


OfTask = TaskRef | TaskView
"""What names its task."""


def owner_hash(owner: str) -> str:
    """Return what stands for an owner in logs: names of owners may be those of people."""
    return sha256(owner.encode()).hexdigest()[:_HASH_LENGTH]


def task_fields(task: OfTask) -> dict[str, str]:
    """Return the fields of a line that is about a task."""
    return {"task_id": task.task_id, "context_id": task.context_id, "owner_hash": owner_hash(task.owner)}


def bind_task(task: OfTask) -> None:
    """Put the fields on all further lines of this asyncio task, and of those that it starts."""
    bind_contextvars(**task_fields(task))


def bind_owner(owner: str) -> None:
    """Put the hash of who calls on all further lines of this asyncio task, and of those that it starts."""
    bind_contextvars(owner_hash=owner_hash(owner))


LogLevel = Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(str.lower)]

CHATTY = ("httpx", "httpcore", "httpx2", "httpcore2", "openai", "a2a", "botocore", "boto3", "urllib3")
"""Loggers of libraries that log from warnings on: at level info they log addresses, which hold ids."""

MOST_FRAMES = 30
"""Calls of a stack that a line names, the innermost ones."""

_TEMPORAL = ("temporal_workflow", "temporal_activity")
"""Where the lines of Temporal's SDK say what they are about. Nothing else that a library adds is written."""

_TEMPORAL_FIELDS = ("activity_type", "attempt", "run_id", "workflow_run_id", "workflow_type")


def configure_logs(level: LogLevel, out: TextIO | None = None) -> None:
    """Write every log record, ours and the libraries', as one JSON line on `out` (default stderr).

    Lines have no texts of exceptions, for these quote what people and tools say; at level debug they do.
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
    # What they would put into the text, `_flatten_temporal` makes fields of.
    workflow.logger.workflow_info_on_message = activity.logger.activity_info_on_message = False


_WORKFLOW_STEPS = "temporalio.worker._workflow_instance"


def _is_no_failure_at_the_moment_of_a_cancel(record: logging.LogRecord) -> bool:
    """Leave out what the SDK logs of an activity that fails in the step in which its call is cancelled.

    The cancellation counts, as it should; that the SDK then drops the failure unread is what asyncio tells.
    """
    error = record.exc_info[1] if record.exc_info else None
    is_unread = record.getMessage().startswith("Future exception was never retrieved")
    return not (is_unread and isinstance(error, ActivityError))


def temporal_core_logs() -> LoggingConfig:
    """Return what brings the lines of Temporal's native part into the log: warnings, without their fields."""
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
    """Say which task a line of workflow code is about, as its search attributes have it."""
    if workflow.in_workflow():
        info = workflow.info()
        event.setdefault("task_id", info.workflow_id)
        if context_id := info.typed_search_attributes.get(names.CONTEXT_ID):
            event.setdefault("context_id", context_id)
        if owner := info.typed_search_attributes.get(names.OWNER):
            event.setdefault("owner_hash", owner_hash(owner))
    return event


def _flatten_temporal(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Say as our own lines do what a line of Temporal's SDK is about."""
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
    """Cut what a library wrote to one line: asyncio goes on with the results and exceptions of tasks."""
    event["event"] = str(event["event"]).partition("\n")[0]
    return event


def _exceptions_by_kind(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Name what was raised, and where, without a word of its text."""
    if error := _exception_of(event):
        for field, value in exception_fields(error).items():
            event.setdefault(field, value)
    return event


def exception_fields(error: BaseException) -> dict[str, object]:
    """Return what was raised, and where, without a word of its text; the stack as lines of one text.

    That is what `stack` means to structlog's own renderers; in our JSON it is a list.
    """
    causes = [_kind(cause) for cause in chain_of(error)[1:]]
    fields: dict[str, object] = {"error_type": _kind(error), "stack": "\n".join(_stack(error.__traceback__))}
    return {**fields, "caused_by": causes} if causes else fields


def _stack_as_list(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    if isinstance(stack := event.get("stack"), str):
        event["stack"] = stack.splitlines()
    return event


def _exceptions_in_full(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    if error := _exception_of(event):
        event.setdefault("error_type", _kind(error))
        event["exception"] = full_text(error)
    return event


def full_text(error: BaseException) -> str:
    """Return an exception as Python prints it, with what it says."""
    return "".join(traceback.format_exception(error)).rstrip()


def _exception_of(event: EventDict) -> BaseException | None:
    given = event.pop("exc_info", None)
    if isinstance(given, BaseException):
        return given
    if isinstance(given, tuple):
        return cast("tuple[object, BaseException | None, object]", given)[1]
    return sys.exc_info()[1] if given else None


def _kind(error: BaseException) -> str:
    return type(error).__name__


def _stack(trace_: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace_)[-MOST_FRAMES:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an exception and what led to it; a chain that bites its tail ends there."""
    chain = [error]
    while (last := chain[-1]) and (
        cause := last.__cause__ or (None if last.__suppress_context__ else last.__context__)
    ):
        if any(cause is each for each in chain):
            break
        chain.append(cause)
    return chain


def _log_the_end(kind: type[BaseException], error: BaseException, trace_: TracebackType | None) -> None:
    """Log what ends the process, as Python would print it."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace_)
        return
    structlog.get_logger().critical("the process ends by a defect", exc_info=error)
