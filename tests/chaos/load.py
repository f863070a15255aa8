"""The load: clients that send the orders of a seed, and act as their kind of order requires."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from tests.chaos.caller import Caller, RefusedError
from tests.chaos.orders import FIRST, Order
from tests.chaos.story import TERMINAL, Json, Story

POSTED = ("posts", "routed")
"""Kinds that are sent without a stream."""

ANSWERED = ("asks", "doubts", "logs in")
"""Kinds whose questions the client answers."""

ASKING = ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")


@dataclass
class Outcome:
    """A task from its client's view: as it streamed, and as GetTask shows it in the end.

    `begun` and `ended` are seconds since the load began. `content` are the bytes of the artifact `bytes`.
    `waits_for`: Temporal's pending calls of a task that has not ended.
    """

    order: Order
    story: Story
    begun: float
    ended: float | None = None
    task: Json = field(default_factory=dict[str, object])
    content: bytes = b""
    waits_for: list[str] = field(default_factory=list[str])
    at_once: str | None = None
    """The message that was answered in place of a task; None: there is a task."""


@dataclass
class Load:
    """Begins orders at a steady rate while the time lasts, and records their progress.

    `hook`: the address below which half of the tasks notify; "": no notifications. `may_be_shown_anew` is as
    of a `Story`.
    """

    seed: int
    caller: Caller
    hook: str
    clock: Callable[[], float]
    may_be_shown_anew: bool = False
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    _running: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @property
    def open(self) -> int:
        """The number of tasks that have not ended."""
        return sum(outcome.ended is None for outcome in self.outcomes)

    async def begin(self, seconds: float, rate: float, fewest: int, most: int) -> None:
        """Begin `rate` orders per second for so many seconds, and longer until they are the `fewest`.

        While `most` of them are open no further one begins.
        """
        number = 0
        while (now := self.clock()) < seconds or number < fewest:
            if self.open < most and number <= now * rate:
                outcome = Outcome(
                    Order(self.seed, number),
                    Story(self.clock, may_be_shown_anew=self.may_be_shown_anew),
                    now,
                )
                self.outcomes.append(outcome)
                self._spawn(self._work(outcome))
                number += 1
            await asyncio.sleep(0.25 / rate)

    async def end(self, patience: float) -> None:
        """Wait until all orders have ended, but no longer than that many seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while self._running and (left := deadline - loop.time()) > 0:
            await asyncio.wait(self._running, timeout=left)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _work(self, outcome: Outcome) -> None:
        """Follow one order to its end, and read its task then."""
        story = outcome.story
        try:
            await (self._post(outcome) if outcome.order.kind in POSTED else self._stream(outcome))
            if outcome.at_once is None:
                outcome.task = await self._get_ended(outcome)
            if outcome.order.kind == "files":
                context = outcome.task["contextId"]
                outcome.content = await self.caller.download(story, f"/artifacts/{context}/bytes/parts/0")
        except (RefusedError, KeyError, ValueError, AssertionError) as error:
            story.problems.append(f"{type(error).__name__}: {error}")
        outcome.ended = self.clock()

    async def _get_ended(self, outcome: Outcome) -> Json:
        """Return the task of GetTask. After Redis was set back it is open until it is repaired."""
        order, story = outcome.order, outcome.story
        while True:
            task = await self.caller.call(story, "GetTask", {"id": story.task_id}, agent=order.agent)
            if task["status"]["state"] in TERMINAL or not self.may_be_shown_anew:
                return task
            story.note("GetTask shows no end; asks again")
            await asyncio.sleep(1)

    async def _post(self, outcome: Outcome) -> None:
        """Send a message that waits for the end of its task; a gateway that stops answers before that."""
        order, story = outcome.order, outcome.story
        while not story.is_over:
            answer = await self.caller.call(story, "SendMessage", self._message(order), agent=order.agent)
            if message := answer.get("message"):
                outcome.at_once = "".join(part["text"] for part in message["parts"])
                return
            story.take({"task": answer["task"]}, "")

    async def _stream(self, outcome: Outcome) -> None:
        """Follow the stream, and send meanwhile the messages of this kind of order."""
        order, story = outcome.order, outcome.story
        said: set[str] = set()
        if order.kind == "recalls":
            await self._say_first(outcome)
        async for _ in self.caller.follow(story, self._message(order)):
            if story.state in ASKING and order.kind in ANSWERED:
                for question in set(story.questions) - said:
                    said.add(question)
                    self._spawn(self._answer(outcome, question))
            if order.kind == "cancels" and story.task_id and not said:
                said.add("cancel")
                self._spawn(self._cancel(outcome))

    async def _answer(self, outcome: Outcome, question: str) -> None:
        order, story = outcome.order, outcome.story
        is_first = question.startswith(order.turns[0][0].id.partition("c")[0])
        reply = order.reply if not is_first else ("yes" if order.approves else "no")
        reply = {"doubts": "no", "logs in": order.secret}.get(order.kind, reply)
        params: Json = _message(f"answer {question} of {order.name}", reply, story.task_id)
        params["message"]["metadata"] = {"question": question}
        await self._say(story, "SendMessage", params)

    async def _say_first(self, outcome: Outcome) -> None:
        """Wait for the end of a conversation's first task."""
        order, state = outcome.order, ""
        params: Json = _message(f"{FIRST}{order.name}", f"{FIRST}{order.name}")
        params["message"]["contextId"] = _context(order)
        while state not in TERMINAL:
            state = (await self.caller.call(outcome.story, "SendMessage", params))["task"]["status"]["state"]
        if state != "TASK_STATE_COMPLETED":
            outcome.story.problems.append(f"the first task of its conversation came to {state}")

    async def _cancel(self, outcome: Outcome) -> None:
        await asyncio.sleep(outcome.order.patience)
        await self._say(outcome.story, "CancelTask", {"id": outcome.story.task_id})

    async def _say(self, story: Story, method: str, params: Json) -> None:
        try:
            await self.caller.call(story, method, params)
            story.note(f"{method} was taken")
        except RefusedError as refused:
            # The first try may have arrived, and its answer lost: the task's end shows whether it was.
            story.note(f"{method} was refused: {refused}")

    def _message(self, order: Order) -> Json:
        params: Json = _message(order.name, order.name)
        if order.kind == "recalls":
            params["message"]["contextId"] = _context(order)
        configuration: Json = {"returnImmediately": False}
        if self.hook and order.is_pushed:
            configuration["taskPushNotificationConfig"] = {"url": f"{self.hook}/{order.number}"}
        return {**params, "configuration": configuration}


def _context(order: Order) -> str:
    return f"conversation {order.seed} {order.number}"


def _message(message_id: str, text: str, task_id: str = "") -> Json:
    """Return the parameters of SendMessage; an answer does not wait for the task."""
    message: Json = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    if task_id:
        message["taskId"] = task_id
    return {"message": message, "configuration": {"returnImmediately": bool(task_id)}}
