"""The agents' work, on a real Temporal and a real Valkey; a function takes the place of their models."""

import asyncio
from collections import Counter

import pytest
from agent import Claim, Quotation, editor, reader, report
from pydantic import JsonValue

from everloop.testing import Call, ChatRequest, FunctionModel, StartApp, call

FLOODS = "How high was the water in Mill Lane before and after 2001?"
FISH = "Which fish live above the bridge before and after 2001?"
DRY = {"document": "flood-review-2007", "quote": "In Mill Lane no house was flooded. In 1998 it had been 23."}
BACK = {"document": "river-trust-survey-2004", "quote": "Salmon have come back to the upper river."}
MADE_UP = {"document": "flood-review-2007", "quote": "The removal of the weir alone has saved Mill Lane."}


def published(*quotations: dict[str, str]) -> Call:
    """Return the call that publishes a claim for each quotation."""
    claims: list[JsonValue] = [
        {"sentence": f"Claim {number}.", "quotations": [dict(each)]}
        for number, each in enumerate(quotations, start=1)
    ]
    return call("publish", title="The weir", claims=claims, open_questions=["Weir or wall?"])


class Models:
    """Stand-in for the models: the editor asks two readers, both search and answer, the editor publishes."""

    def __init__(self, *reports: Call) -> None:
        self.asked: Counter[str] = Counter()
        self.reports = list(reports)
        self.fish_is_asked = asyncio.Event()
        self.fish_may_answer = asyncio.Event()

    async def __call__(self, request: ChatRequest) -> str | Call | list[Call]:
        """Return the next reply of the requested model."""
        if "publish" not in request.tool_names:
            return await self._read(request)
        self.asked["editor"] += 1
        if not request.results:
            return [call("reader", request=FLOODS), call("reader", request=FISH)]
        return self.reports.pop(0) if self.reports else "The floods are lower, and salmon are back."

    async def _read(self, request: ChatRequest) -> str | Call:
        self.asked[request.prompt] += 1
        if not request.results:
            return call("search", words=request.prompt)
        if request.prompt == FISH:
            self.fish_is_asked.set()
            await self.fish_may_answer.wait()
        return f"Found: {DRY if request.prompt == FLOODS else BACK}"


async def test_readers_work_at_once_and_claims_have_sources(everloop_app: StartApp) -> None:
    """An invented quotation is rejected, and the editor corrects it before the report is published."""
    models = Models(published(DRY, MADE_UP), published(DRY, BACK))
    models.fish_may_answer.set()
    app = await everloop_app(editor, reader, model=FunctionModel(models))

    result = await app.ask("What came of the removal of the weir?")

    outcomes = [(made.name, made.outcome) for made in result.tool_calls]
    assert outcomes == [("reader", "ok"), ("reader", "ok"), ("publish", "error"), ("publish", "ok")]
    assert "does not stand in flood-review-2007" in str(result.tool_calls[2].result)
    (written,) = [artifact.text for artifact in result.artifacts if artifact.id == "report"]
    assert "Claim 2. [2]" in written
    assert "2. river-trust-survey-2004, line 11: “Salmon have come back to the upper river.”" in written

    assert models.asked == {"editor": 4, FLOODS: 2, FISH: 2}


async def test_what_was_read_is_not_read_again_after_a_crash(everloop_app: StartApp) -> None:
    """The worker dies while one reader still works: it continues, the other one's findings are stored."""
    models = Models(published(DRY, BACK))
    app = await everloop_app(editor, reader, model=FunctionModel(models), worker="process")

    task = await app.start("What came of the removal of the weir?")
    await models.fish_is_asked.wait()
    while "ok" not in [made.outcome for made in (await app.client.task(task.id)).tool_calls]:  # noqa: ASYNC110 -- the worker is another process
        await asyncio.sleep(0.05)
    await app.kill_worker()
    models.fish_may_answer.set()
    result = await app.wait(task)

    assert result.state == "completed"
    assert models.asked == {"editor": 3, FLOODS: 2, FISH: 3}  # the interrupted call, once more


def test_a_quotation_is_found_across_lines() -> None:
    """Line breaks are ignored, changed words are rejected, and an unknown document is an error."""
    across = "by the gauge at the station: 86 cubic metres a second in both years."

    def claim(document: str, quote: str) -> list[Claim]:
        return [Claim(sentence="So it is.", quotations=[Quotation(document=document, quote=quote)])]

    written = report("Title", claim("flood-review-2007", across), [])
    assert "flood-review-2007, line 3: “by the gauge" in written
    with pytest.raises(ValueError, match="word for word"):
        report("Title", claim("flood-review-2007", across.replace("86", "87")), [])
    with pytest.raises(LookupError):
        report("Title", claim("../agent", across), [])
