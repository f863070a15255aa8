"""The desk's work, on a real Temporal and a real Valkey; a script takes the place of the model."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from agent import SUPERVISORS, agent
from shop import Ledger, Provider, Refund

from everloop.client import Approval, Client, ClientError, Done, Result
from everloop.testing import App, Script, StartApp, call

SMALL = call("refund", order="A-1001", cents=3_900, reason="It never arrived.")
LARGE = call("refund", order="A-1002", cents=64_900, reason="It arrived broken.")


class SilentLedger(Ledger):
    """Ledger that pays, and withholds its first answer until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []
        self.has_paid = threading.Event()
        self.may_answer = threading.Event()

    def pay(self, key: str, order: str, cents: int) -> Refund:
        """Pay; the first request waits for its answer."""
        self.keys.append(key)
        refund = super().pay(key, order, cents)
        if len(self.keys) == 1:
            self.has_paid.set()
            self.may_answer.wait()
        return refund


@pytest.fixture
def silent_ledger(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentLedger]:
    """Ledger of a provider at the address that the agent uses."""
    ledger = SilentLedger()
    with Provider(ledger) as provider:
        monkeypatch.setenv("SHOP_PAYMENTS", provider.url)
        threading.Thread(target=provider.serve_forever).start()
        yield ledger
        ledger.may_answer.set()
        provider.shutdown()


@pytest.fixture
def ledger(silent_ledger: SilentLedger) -> Ledger:
    """Ledger that answers at once."""
    silent_ledger.may_answer.set()
    return silent_ledger


@dataclass(frozen=True)
class People:
    """Persons with keys, and the gateway's settings for them."""

    settings: dict[str, str]
    ann: str
    sue: str

    def customer(self, app: App) -> Client:
        """Return the client of a customer."""
        return Client(app.url, api_key=self.ann)

    def supervisor(self, app: App) -> Client:
        """Return the client of a supervisor."""
        return Client(app.url, api_key=self.sue)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> People:
    """Ann, who buys, and Sue, who supervises: `everloop keys add` as an operator would."""
    file = tmp_path_factory.mktemp("keys") / "keys.jsonl"

    def add(owner: str, scopes: str) -> str:
        command = [sys.executable, "-m", "everloop", "keys", "add", owner, "--scopes", scopes, "--file", file]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]

    settings = {"EVERLOOP_AUTH": "api-key", "EVERLOOP_API_KEYS_FILE": str(file)}
    return People(settings, add("ann", "tasks:read,tasks:write"), add("sue", SUPERVISORS))


async def only_approval(supervisor: Client) -> Approval:
    """Return the only pending approval of a supervisor; lists lag behind tasks for a moment."""
    while not (waiting := [each async for each in supervisor.approvals()]):  # noqa: ASYNC110 -- another process
        await asyncio.sleep(0.05)
    (approval,) = waiting
    return approval


async def ended(customer: Client, task: Result) -> Result:
    """Wait for the end of a task."""
    (result,) = [event.result async for event in customer.watch(task.id) if isinstance(event, Done)]
    return result


async def test_a_small_refund_needs_nobody(everloop_app: StartApp, people: People, ledger: Ledger) -> None:
    """The desk looks the order up and refunds it; the order of another customer is not found."""
    others = call("find_order", order="B-2001")
    script = Script([call("find_order", order="A-1001"), others], SMALL, "You get your 39 euros back.")
    app = await everloop_app(agent, model=script, settings=people.settings)
    async with people.customer(app) as ann:
        result = await ann.send("My kettle A-1001 never arrived, nor did B-2001.")

    looked, other, refunded = result.tool_calls
    assert looked.result == '{"customer":"ann","article":"A kettle","cents":3900}'
    assert other.result == "LookupError: ann has no order B-2001"
    assert refunded.result == '{"id":"R-1","order":"A-1001","cents":3900}'
    assert [refund.cents for refund in ledger.refunds.values()] == [3_900]


async def test_a_large_refund_is_a_supervisors(
    everloop_app: StartApp, people: People, ledger: Ledger
) -> None:
    """The customer cannot approve it. Sue sees the refund, and it is paid when she agrees."""
    script = Script(LARGE, "You get your 649 euros back.")
    app = await everloop_app(agent, model=script, settings=people.settings)
    async with people.customer(app) as ann, people.supervisor(app) as sue:
        asked = await ann.send("My espresso machine A-1002 arrived broken.")
        assert (asked.state, asked.questions[0].approvers) == ("input-required", SUPERVISORS)
        with pytest.raises(ClientError, match=SUPERVISORS):
            await ann.approve(asked.id, asked.questions[0].id)
        with pytest.raises(ClientError):
            await sue.task(asked.id)  # the task itself is hidden from her
        assert not ledger.refunds

        approval = await only_approval(sue)
        assert approval.arguments == LARGE.arguments
        decision = await sue.decide(approval.task_id, approval.question_id, note="as agreed by phone")
        result = await ended(ann, asked)

    assert result.text == "You get your 649 euros back."
    assert [refund.cents for refund in ledger.refunds.values()] == [64_900]
    assert (decision.by.split()[0], decision.scope) == ("sue", SUPERVISORS)


async def test_a_no_reaches_the_customer(everloop_app: StartApp, people: People, ledger: Ledger) -> None:
    """The model reads the reason, and nothing is paid."""
    script = Script(LARGE, "We have to see photographs of it first.")
    app = await everloop_app(agent, model=script, settings=people.settings)
    async with people.customer(app) as ann, people.supervisor(app) as sue:
        asked = await ann.send("My espresso machine A-1002 arrived broken.")
        approval = await only_approval(sue)
        await sue.decide(approval.task_id, approval.question_id, approved=False, note="photographs first")
        result = await ended(ann, asked)

    assert (result.tool_calls[0].outcome, ledger.refunds) == ("rejected", {})
    assert "photographs first" in script.requests[-1].results[-1]


async def test_a_worker_that_dies_after_it_paid_does_not_pay_again(
    everloop_app: StartApp, people: People, silent_ledger: SilentLedger
) -> None:
    """The provider has paid when SIGKILL comes, before its answer arrived: the same key is sent again."""
    script = Script(SMALL, "You get your 39 euros back.")
    app = await everloop_app(agent, model=script, worker="process", settings=people.settings)
    async with people.customer(app) as ann:
        task = await ann.send("My kettle A-1001 never arrived.", detach=True)
        await asyncio.to_thread(silent_ledger.has_paid.wait)
        await app.kill_worker()
        result = await ended(ann, task)

    assert (result.state, result.tool_calls[0].result) == (
        "completed",
        '{"id":"R-1","order":"A-1001","cents":3900}',
    )
    assert len(silent_ledger.refunds) == 1
    assert len(silent_ledger.keys) == 2
    assert len(set(silent_ledger.keys)) == 1
