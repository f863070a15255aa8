"""A workflow that sends a word in each place where Temporal takes text."""

from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

_TIMEOUT = timedelta(seconds=30)


@activity.defn
async def speak(word: str) -> str:
    """Send the word in a heartbeat, in a failure with details and a cause, and in the result."""
    if not activity.info().heartbeat_details:
        activity.heartbeat(word)
        raise ApplicationError(f"failure: {word}", word) from ValueError(f"cause: {word}")
    return f"result: {word}"


@workflow.defn
class Listener:
    """The child."""

    @workflow.run
    async def run(self, word: str) -> str:
        raise ApplicationError(f"child: {word}", word)


@workflow.defn
class Talker:
    """Sends the word everywhere until its end is requested, and then fails with it."""

    @workflow.init
    def __init__(self, word: str) -> None:
        self._word = word
        self._ends = False

    @workflow.run
    async def run(self, word: str) -> str:
        workflow.set_current_details(f"details: {word}")
        await workflow.execute_activity(
            speak,
            word,
            summary=f"summary: {word}",
            start_to_close_timeout=_TIMEOUT,
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=50), maximum_attempts=5),
        )
        await workflow.sleep(timedelta(milliseconds=1), summary=f"timer: {word}")
        try:
            await workflow.execute_child_workflow(
                Listener.run, word, id=f"{workflow.info().workflow_id}/child", memo={"memo": word}
            )
        except Exception as error:  # noqa: BLE001 -- a child that failed
            self._word = str(error.__cause__)
        workflow.upsert_memo({"memo": word})
        await workflow.wait_condition(lambda: self._ends)
        raise ApplicationError(f"end: {word}", word)

    @workflow.signal
    def end(self, word: str) -> None:
        self._ends = True

    @workflow.update
    async def said(self, word: str) -> str:
        """Return the child's word once it has arrived."""
        await workflow.wait_condition(lambda: self._word.startswith("child"))
        return self._word

    @workflow.query
    def word(self, suffix: str) -> str:
        return self._word + suffix
