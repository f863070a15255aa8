"""Spans of one trace, written as a tree."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from opentelemetry.proto.trace.v1.trace_pb2 import Span

LOST = "(its parent was lost)"


QUERIES = {"QueryWorkflow:view", "HandleQuery:view"}


def tree_of(spans: Iterable[Span], trace_id: str, root: str) -> str:
    """Return a line for each span, below its parent and indented; equal ones stay as many as they are.

    Brothers stand in the order of their names, and of what is below them. `root` is the id of the client's
    span. A span whose parent never came stands at the end, below a line that says so. Queries are left out: a
    gateway asks a workflow whose worker is slow to publish.
    """
    mine = [span for span in spans if span.trace_id.hex() == trace_id and span.name not in QUERIES]
    children: dict[str, list[Span]] = defaultdict(list)
    for span in mine:
        children[span.parent_span_id.hex()].append(span)
    known = {span.span_id.hex() for span in mine} | {root}
    lost = [span for span in mine if span.parent_span_id.hex() not in known]
    lines = _lines(children[root], children)
    if lost:
        lines += [LOST, *(f"  {line}" for line in _lines(lost, children))]
    return "\n".join(lines)


def _lines(spans: Iterable[Span], children: dict[str, list[Span]]) -> list[str]:
    return [line for branch in sorted(_branches(spans, children)) for line in branch]


def _branches(spans: Iterable[Span], children: dict[str, list[Span]]) -> Iterator[list[str]]:
    for span in spans:
        below = _lines(children.get(span.span_id.hex(), ()), children)
        yield [span.name, *(f"  {line}" for line in below)]
