"""Schedules over HTTP: their owner alone makes, reads, changes, runs and removes them."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from pydantic import JsonValue
from redis.asyncio import Redis
from temporalio.client import Client

from everloop.activities.scheduled_tasks import ScheduledTasks
from everloop.agents.agent import Agent
from everloop.gateway.auth.access import AccessControl
from everloop.gateway.operations.push import PushOperations
from everloop.gateway.settings import Attachments
from everloop.runtime.redis import connect_redis
from everloop.runtime.schedules.recurrence import Recurrence
from everloop.runtime.schedules.schedule_definition import ScheduleDefinition, schedule_id
from everloop.runtime.schedules.schedules import Schedules
from everloop.runtime.temporal.blob_payloads import data_converter
from everloop.stores.artifacts.artifact_store import ArtifactSettings, make_artifacts
from everloop.stores.artifacts.record import ArtifactAddress, ArtifactRecord
from everloop.stores.artifacts.schedule_files import make_schedule_files
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.stores.log.log_store import TaskViews
from everloop.stores.push.configs import PushConfigs
from everloop.stores.push.schedule_webhooks import ScheduleWebhooks
from everloop.stores.quotas import LimitSettings, Quotas
from everloop.workflows.contract.http_extension import HTTP_BASE
from everloop.workflows.contract.names import context_key
from tests.gateway.harness import AGENT, Named, PromptModel, key_scheme, running_gateway, unique, working
from tests.support.encryption import keyring
from tests.support.rigs.push_rig import LOOPBACK_ALLOWED

KEYS = {
    "ann": (f"ann-{uuid4()}", ["tasks:read", "tasks:write"]),
    "bob": (f"bob-{uuid4()}", ["tasks:read", "tasks:write"]),
    "bound": ("", ["tasks:read", "tasks:write", "agents:other"]),
    "root": ("root", ["admin"]),
}
KEYS["bound"] = (KEYS["ann"][0], KEYS["bound"][1])

OTHER = Agent(id="other", name="Other", description="Is for others.", model="scripted")

FILE = b"some bytes"
WEBHOOK = "http://127.0.0.1:1/hook"

Json = dict[str, JsonValue]


@dataclass(frozen=True)
class Office:
    """A gateway with a worker behind it, and what is in its Redis."""

    http: httpx.AsyncClient
    keys: Mapping[str, Mapping[str, str]]
    configs: PushConfigs
    redis: Redis
    attachments: Attachments

    async def call(
        self, method: str, path: str = "", body: object = None, caller: str = "ann"
    ) -> httpx.Response:
        url = f"{HTTP_BASE}/schedules{path}"
        return await self.http.request(method, url, json=body, headers=self.keys[caller])

    async def made(self, **fields: object) -> Json:
        """Make a schedule of an owner of its own; return it."""
        made = await self.call("POST", "", {**schedule(), "id": unique("s"), **fields})
        assert made.status_code == 201, made.text
        return made.json()

    async def ended(self, task_id: str) -> Json:
        """Wait for a task of a schedule; return it."""
        while True:
            params = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task_id}}
            answer = (await self.http.post("/", json=params, headers=self.keys["ann"])).json()
            task = cast("Json", answer.get("result", {}))
            if task and cast("Json", task["status"])["state"] == "TASK_STATE_COMPLETED":
                return task

    async def lifetimes(self, url: str, context_id: str) -> list[timedelta]:
        """Return how long a file of a schedule, and the copy in a context, are kept."""
        context, artifact_id, *_ = map(unquote, urlsplit(url).path.removeprefix("/artifacts/").split("/"))
        keys = (context_key(KEYS["ann"][0], each) for each in (context, context_id))
        texts = [await self.redis.get(ArtifactAddress(key, artifact_id).record_key) for key in keys]
        ends = [ArtifactRecord.model_validate_json(text or "").expires_at for text in texts]
        return [end - datetime.now(UTC) for end in ends]


def schedule(text: str = "Report.") -> Json:
    """Return a schedule whose next run is far away."""
    return {"message": {"parts": [{"text": text}]}, "cron": "0 0 1 1 *"}


def error_of(answered: httpx.Response) -> tuple[int, str]:
    return answered.status_code, answered.json()["error"]["message"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def office(
    client: Client, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Office]:
    scheme, keys = key_scheme(tmp_path_factory.mktemp("keys") / "keys", KEYS)
    queue = unique("schedules")
    async with connect_redis(redis_url) as redis:
        blobs = RedisBlobs(redis)
        views, configs = TaskViews(redis), PushConfigs(redis)
        files = make_schedule_files(ArtifactSettings(), redis, blobs, views.retention)
        webhooks = ScheduleWebhooks(redis, configs)
        quotas = Quotas(redis)
        attachments = Attachments(files, webhooks, quotas)
        scheduled = ScheduledTasks(files, webhooks, quotas, LimitSettings())

        async def notify(*_: object) -> None:
            """Send no notification."""

        push = PushOperations(configs, notify, LOOPBACK_ALLOWED, "http://here/")
        async with (
            working(client, views, queue, PromptModel(views), schedules=scheduled),
            running_gateway(
                client,
                views,
                queue=queue,
                agents=[AGENT, OTHER],
                access=AccessControl(scheme),
                push=push,
                attachments=attachments,
                artifacts=make_artifacts(ArtifactSettings(), redis, blobs, views.retention),
            ) as gateway,
        ):
            yield Office(gateway.http, keys, configs, redis, attachments)


async def test_a_schedule_is_made_read_changed_and_removed(office: Office) -> None:
    """Each answer is the schedule after the call; a change keeps all other fields."""
    made = await office.made(timeZone="Europe/Berlin", note="Ask Ann.", contextId="talk")
    path = f"/{made['id']}"
    assert made["nextRuns"]
    assert (
        made.items()
        >= {
            "agent": "staged",
            "message": {"role": "ROLE_USER", "parts": [{"text": "Report."}]},
            "cron": "0 0 1 1 *",
            "timeZone": "Europe/Berlin",
            "overlap": "skip",
            "contextId": "talk",
            "note": "Ask Ann.",
            "paused": False,
            "lastRuns": [],
        }.items()
    )
    assert (await office.call("GET", path)).json() == made

    paused = (await office.call("POST", f"{path}:pause")).json()
    assert paused == {**made, "paused": True, "nextRuns": []}
    changed = (await office.call("PATCH", path, {"every": "90m", "note": "", "contextId": ""})).json()
    assert changed == {
        **{name: value for name, value in paused.items() if name != "cron"},
        "every": "1h30m",
        "note": "",
        "contextId": "",
    }
    texted = (await office.call("PATCH", path, schedule("Read."))).json()
    assert (texted["message"]["parts"], texted["cron"]) == ([{"text": "Read."}], "0 0 1 1 *")
    assert (await office.call("POST", f"{path}:resume")).json() == {
        **texted,
        "paused": False,
        "nextRuns": made["nextRuns"],
    }
    assert (await office.call("DELETE", path)).json() == {"id": made["id"]}
    assert (await office.call("GET", path)).status_code == 404
    assert (await office.call("DELETE", path)).status_code == 404


async def test_a_schedule_of_one_time_runs_then(office: Office) -> None:
    """A time without a zone is in that of the schedule."""
    at = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    made = await office.made(cron="", at=at.isoformat())
    written = f"{at:%Y-%m-%dT%H:%M:%S}.000Z"
    assert (made["at"], made["nextRuns"]) == (written, [written])
    local = await office.made(cron="", at="2099-07-01T09:00:00", timeZone="Europe/Berlin")
    assert local["nextRuns"] == ["2099-07-01T07:00:00.000Z"]


async def test_runs_get_the_files_and_the_webhook_of_their_schedule(office: Office) -> None:
    """Each task has its own; they go with a change or a removal, and stay as long as the schedule does."""
    sent = {"raw": base64.b64encode(FILE).decode(), "filename": "a.bin", "mediaType": "application/x"}
    message = {"parts": [{"text": "Read it."}, sent]}
    hook = {"url": WEBHOOK, "token": "hush", "authentication": {"scheme": "Bearer", "credentials": "hush"}}
    made = await office.made(message=message, pushConfig=hook)
    assert "hush" not in str(made)
    assert cast("Json", made["pushConfig"])["url"] == WEBHOOK
    started = await office.call("POST", f"/{made['id']}:run")
    assert started.status_code == 201, started.text
    task_id = started.json()["taskId"]
    task = await office.ended(task_id)
    (said,) = cast("list[Json]", task["history"])[:1]
    text, file = cast("list[Json]", said["parts"])
    assert (text["text"], base64.b64decode(str(file["raw"]))) == ("Read it.", FILE)
    (config,) = await office.configs.list_configs(task_id)
    assert (config.url, config.token, config.credentials, config.task_id) == (
        WEBHOOK,
        "hush",
        "hush",
        task_id,
    )
    known = (await office.call("GET", f"/{made['id']}")).json()
    assert [(run["taskId"], run["state"]) for run in known["lastRuns"]] == [(task_id, "TASK_STATE_COMPLETED")]

    (_, kept) = cast("list[Json]", cast("Json", known["message"])["parts"])
    got = await office.http.get(str(kept["url"]), headers=office.keys["ann"])
    assert got.content == FILE
    other = {**schedule(), "id": made["id"], "message": {"parts": [{"text": "Leave it."}, sent]}}
    assert (await office.call("POST", "", other)).status_code == 409
    keeps, task_has = await office.lifetimes(str(kept["url"]), str(task["contextId"]))
    assert keeps > timedelta(days=36_000) > timedelta(days=31) > task_has
    changed = (await office.call("PATCH", f"/{made['id']}", {"pushConfig": None})).json()
    assert "pushConfig" not in changed
    assert (await office.call("DELETE", f"/{made['id']}")).status_code == 200
    gone = await office.http.get(str(kept["url"]), headers=office.keys["ann"])
    assert gone.status_code == 404


async def test_making_the_same_again_makes_one(office: Office) -> None:
    """A client without an answer repeats its request, with an id or without.

    Another schedule under the id is refused.
    """
    unnamed = schedule(unique("text"))
    first, second = await office.call("POST", "", unnamed), await office.call("POST", "", unnamed)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    named = await office.made()
    other = await office.call("POST", "", {**schedule("Read."), "id": named["id"]})
    assert error_of(other)[0] == 409
    assert "change it by PATCH" in error_of(other)[1]


@pytest.mark.parametrize(
    ("when", "shown"),
    [
        ({"every": "90m"}, {"every": "1h30m"}),
        ({"at": "2099-03-01T09:00:00", "timeZone": "Europe/Berlin"}, {"at": "2099-03-01T08:00:00.000Z"}),
        ({"cron": "0 9 * * * 2099"}, {"cron": "0 9 * * * 2099"}),
        ({"cron": "@every 400d/10m"}, {"cron": "@every 400d/10m"}),
        ({"cron": "0 0 1 1 * # yearly"}, {"cron": "0 0 1 1 *"}),
    ],
)
async def test_a_time_may_be_written_in_any_way(office: Office, when: Json, shown: Json) -> None:
    """The shown time means the same; repeats are equal, and a change of another field keeps it."""
    body = {**schedule(), "cron": "", **when, "id": unique("report")}
    made, again = await office.call("POST", "", body), await office.call("POST", "", body)
    assert (made.status_code, again.status_code) == (201, 201), again.text
    assert shown.items() <= made.json().items()
    assert again.json() == made.json()
    changed = await office.call("PATCH", f"/{body['id']}", {"note": "Ask Ann."})
    assert changed.json() == {**made.json(), "note": "Ask Ann."}
    assert (await office.call("DELETE", f"/{body['id']}")).status_code == 200


async def test_changes_at_once_are_all_made(office: Office) -> None:
    """No change undoes another, such as a pause or a webhook's credentials."""
    for text in ("once", "twice", "thrice", "more"):  # they do not collide in every run
        path = f"/{(await office.made())['id']}"
        message = {"parts": [{"text": text}]}
        changes = [{"message": message}, {"pushConfig": {"url": WEBHOOK}}, {"note": text}]
        calls = [office.call("PATCH", path, change) for change in changes]
        answers = await asyncio.gather(*calls, office.call("POST", f"{path}:pause"))
        now = (await office.call("GET", path)).json()
        assert [each.status_code for each in answers] == [200] * 4
        assert (now["message"]["parts"], now["pushConfig"]["url"]) == ([{"text": text}], WEBHOOK)
        assert (now["note"], now["paused"]) == (text, True)


async def test_nobody_else_knows_of_a_schedule(office: Office) -> None:
    """Another owner, who may use the same id, and a caller bound to other agents get 404.

    An admin does not.
    """
    made = await office.made()
    path = f"/{made['id']}"
    for caller in ("bob", "bound"):
        for method, suffix in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", ":run")):
            got = await office.call(method, path + suffix, {} if method == "PATCH" else None, caller)
            assert error_of(got) == (404, f"there is no schedule {made['id']!r} of this owner"), (
                caller,
                method,
            )
    theirs = await office.call("POST", "", {**schedule(), "id": made["id"]}, "bob")
    assert theirs.status_code == 201
    assert (await office.call("DELETE", f"{path}?owner={KEYS['bob'][0]}", None, "root")).status_code == 200
    assert (await office.call("GET", path)).json() == made


async def test_who_is_not_known_finds_nothing_of_owners(
    office: Office, client: Client, views: TaskViews
) -> None:
    """Where no caller is authenticated, Temporal's ids of owners' schedules lead nowhere."""
    id_ = schedule_id(KEYS["ann"][0], str((await office.made())["id"]))
    async with running_gateway(client, views, queue="none", attachments=office.attachments) as gateway:
        got = await gateway.http.get(f"{HTTP_BASE}/schedules/{id_}")
    assert error_of(got) == (404, f"there is no schedule {id_!r} of this owner")


async def test_an_owner_may_have_any_signs(office: Office, client: Client, views: TaskViews) -> None:
    """Temporal's queries fail for a name with a double quote or a backslash; its owner finds the schedule."""
    access, headers = AccessControl(Named()), {"owner": f'O="{unique("acme")}\\b"'}
    async with running_gateway(
        client, views, queue="none", access=access, attachments=office.attachments, agents=[AGENT]
    ) as gateway:
        address = f"{HTTP_BASE}/schedules"
        made = (await gateway.http.post(address, json=schedule(), headers=headers)).json()
        other = {"owner": headers["owner"] + "x"}
        bodies = [schedule("Report once."), schedule("Report twice.")]
        others = [(await gateway.http.post(address, json=body, headers=other)).json() for body in bodies]
        shown: list[Json] = []
        while len(shown) < len(others):
            shown = (await gateway.http.get(address, headers=other)).json()["schedules"]
        listed = (await gateway.http.get(f"{address}?pageSize=1", headers=headers)).json()["schedules"]
        for each, whose in ((made, headers), *((each, other) for each in others)):
            await gateway.http.delete(f"{address}/{each['id']}", headers=whose)
    assert [each["id"] for each in listed] == [made["id"]]


async def test_lists_have_those_of_the_owner(office: Office) -> None:
    """Page by page; Temporal shows a new one a moment later."""
    names = {str((await office.made())["id"]) for _ in range(3)}
    found = set[str]()
    while not names <= found:
        token = ""
        while True:
            page = (await office.call("GET", f"?pageSize=2&pageToken={token}")).json()
            assert len(page["schedules"]) <= 2
            found |= {each["id"] for each in page["schedules"]}
            if not (token := page["nextPageToken"]):
                break
    assert not found & {
        each["id"] for each in (await office.call("GET", "", None, "bob")).json()["schedules"]
    }
    for wrong in ("!", "bm9uZQ=="):  # Temporal would take either for an outage of its own
        status, text = error_of(await office.call("GET", f"?pageToken={wrong}"))
        assert (status, "leave it out to start over" in text) == (400, True)


async def test_one_that_cannot_be_decrypted_hides_no_other(
    office: Office, views: TaskViews, temporal_address: str
) -> None:
    """It is left out of lists, as tasks are that cannot be decrypted."""
    lost, here = [
        await Client.connect(temporal_address, data_converter=data_converter(None, cipher=keyring(key)))
        for key in ("lost", "here")
    ]
    owner, once = unique("owner"), Recurrence(at=datetime.now(UTC) + timedelta(days=999))
    sealed = ScheduleDefinition("staged", "Staged", (), once, owner=owner, name="sealed")
    await Schedules(lost, "none").add(sealed)
    async with running_gateway(
        here,
        views,
        queue="none",
        access=AccessControl(Named()),
        attachments=office.attachments,
        agents=[AGENT],
    ) as gateway:
        address, headers = f"{HTTP_BASE}/schedules", {"owner": owner}
        made = (await gateway.http.post(address, json=schedule(), headers=headers)).json()
        while len((await Schedules(here, "none").of_owner(owner)).ids) < 2:
            pass
        listed = await gateway.http.get(address, headers=headers)
    for id_ in (sealed.id, schedule_id(owner, made["id"])):
        await Schedules(here, "none").remove(id_)

    assert [each["id"] for each in listed.json().get("schedules", ())] == [made["id"]], listed.text


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"message": None}, "message is missing"),
        ({"message": {"parts": []}}, "message.parts is empty"),
        ({"message": {"parts": [{"text": "x" * 100_001}]}}, "this server takes 100000"),
        ({"message": {"parts": [{"text": "x"}], "taskId": "t"}}, "message.taskId cannot be"),
        ({"cron": ""}, "a schedule has one of cron, every and at"),
        ({"every": "1h"}, "a schedule has one of cron, every and at"),
        ({"cron": "0 99 * * *"}, "cron: '0 99 * * *' cannot be used"),
        ({"timeZone": "Mars/Olympus"}, "timeZone: unknown time zone Mars/Olympus"),
        ({"timeZone": "../etc/passwd"}, "timeZone is no name of the IANA database"),
        ({"timeZone": "Local"}, "timeZone is no name of the IANA database"),
        ({"cron": "", "every": "soon"}, "every: 'soon' is not an interval"),
        ({"cron": "", "at": "soon"}, "at is no time"),
        ({"cron": "", "at": "2020-01-01T00:00:00Z"}, "at is over"),
        ({"cron": "", "at": "2101-01-01T00:00:00Z"}, "at is behind the year 2100"),
        ({"cron": "", "every": "9" * 5_000 + "s"}, "every does not fit"),
        ({"note": "x" * 2_001}, "note does not fit"),
        ({"overlap": "sometimes"}, "overlap does not fit"),
        ({"agent": "nobody"}, "agent is 'nobody', which is none of this server"),
        ({"id": "a/b"}, "id does not fit"),
        ({"pushConfig": {"url": "ftp://x"}}, "pushConfig.url "),
        ({"interval": 5}, "interval does not fit"),
        ({"x" * 10_000: 5}, "xxx does not fit"),
        ({"message": {"parts": json.loads("[" * 300 + "]" * 300)}}, "is nested too deeply"),
    ],
)
async def test_what_is_no_schedule_is_refused(office: Office, fields: Json, says: str) -> None:
    """The error names the field, however long its name, and nothing is made."""
    status, text = error_of(await office.call("POST", "", {**schedule(), **fields}))
    assert (status, says in text, len(text) < 1_000) == (400, True, True), text
