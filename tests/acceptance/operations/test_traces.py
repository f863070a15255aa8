"""One trace from the client through gateway and workflow to all processes of the task."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent
from typing import Any
from uuid import uuid4

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis
from everloop.runtime.telemetry.logs import owner_hash
from everloop.stores.keys import head_key
from tests.support.agents.peers import PEER_URL
from tests.support.rigs.deployment import Deployment, Gateway, running_deployment
from tests.support.seeded_secrets import seed_secret
from tests.support.servers.otlp_receiver import OtlpReceiver, running_otlp_receiver
from tests.support.servers.scripted_openai import Refusal, Reply, ScriptedOpenAI, by_model, tool_call
from tests.support.servers.tokens import AUDIENCE, ISSUER, SigningKey

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
CLIENT_SPAN = "00f067aa0ba902b7"
QUERIES = {"QueryWorkflow:view", "HandleQuery:view"}
SECRET = "the prompt is for the model alone"
AGENTS = "tests.support.agents.traced:agents"
ELSEWHERE = "tests.support.agents.traced:elsewhere"


@dataclass(frozen=True)
class Traced:
    """An Everloop that sends its spans to a receiver."""

    everloop: Deployment
    receiver: OtlpReceiver

    async def ask(self, gateway: Gateway, agent: str, **headers: str) -> dict[str, Any]:
        """Send a message in the client's trace, wait until its task is completed, and return that."""
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": SECRET}]}
        answer = await call(gateway, agent, "SendMessage", {"message": message}, **headers)
        task = answer.json()["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        return task

    async def finish(self, last: str) -> str:
        """Wait for the span that ends last, make all processes send theirs, and return the tree."""
        await self.receiver.wait_for(last)
        for process in self.everloop.started:
            await asyncio.to_thread(process.stop)  # it now sends unsent spans, and we receive them
        return tree_of(self.receiver.spans)

    def span(self, name: str) -> Span:
        """Return the one span of that name."""
        (span,) = (span for span in self.receiver.spans if span.name == name)
        return span


async def call(gateway: Gateway, agent: str, method: str, params: object, **headers: str) -> httpx.Response:
    """Send one JSON-RPC request in the client's trace."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    known = {"A2A-Version": "1.0", "traceparent": f"00-{TRACE_ID}-{CLIENT_SPAN}-01"}
    async with httpx.AsyncClient(timeout=60, headers={**known, **headers}) as http:
        return await http.post(f"{gateway.url}/agents/{agent}", json=body)


@asynccontextmanager
async def traced(directory: Path, model: ScriptedOpenAI, **variables: str) -> AsyncGenerator[Traced]:
    """Yield an Everloop without any process yet."""
    async with (
        running_otlp_receiver() as receiver,
        running_deployment(
            directory,
            model.base_url,
            agents=AGENTS,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
            OTEL_BSP_SCHEDULE_DELAY="50",
            OTEL_INSTRUMENTATION_A2A_SDK_ENABLED="false",
            **variables,
        ) as everloop,
    ):
        yield Traced(everloop, receiver)


def tree_of(spans: Iterable[Span]) -> str:
    """Return a line for each span of the trace, below its parent and indented.

    Siblings are in the order of their names and subtrees; equal ones stay. Queries are left out: a gateway
    queries a workflow whose worker is slow to publish.
    """
    children: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.trace_id.hex() == TRACE_ID and span.name not in QUERIES:
            children[span.parent_span_id.hex()].append(span)

    def below(parent: str) -> list[str]:
        branches = [
            [one.name, *(f"  {line}" for line in below(one.span_id.hex()))] for one in children[parent]
        ]
        return [line for branch in sorted(branches) for line in branch]

    return "\n".join(below(CLIENT_SPAN))


@pytest.mark.slow
async def test_one_trace_for_a_task(tmp_path: Path) -> None:
    """Tool, MCP server, sub-agent and peer are in the client's trace, once, for any number of replays."""
    script = by_model(
        lead=[Reply(EVERYTHING_AT_ONCE, usage=(30, 7)), Reply(["Done."])],
        writer=[Reply([tool_call("repeat", '{"text": "y", "times": 2}')]), Reply(["A poem."])],
        elsewhere=[Reply(["Here you are."])],
    )
    async with (
        ScriptedOpenAI(script) as model,
        traced(tmp_path, model, EVERLOOP_MAX_CACHED_WORKFLOWS="0") as run,
    ):
        gateway = await _start_both(run.everloop)
        task = await run.ask(gateway, "lead")
        tree = await run.finish("invoke_agent lead")

    assert tree == WHOLE_TREE
    services = set(run.receiver.services)
    assert services == {"everloop-gateway", "everloop-worker", "peer-gateway", "peer-worker", "mcp-server"}
    _check_model_span(next(span for span in run.receiver.spans if span.name == "chat openai/lead"))
    _check_task_span(run.span("invoke_agent lead"))
    _check_sub_agent_span(run.span("execute_tool writer"), task)
    assert SECRET not in str(run.receiver.spans)


async def _start_both(everloop: Deployment) -> Gateway:
    """Start the peer, which has queues and processes of its own, then all else; return the gateway."""
    queue = f"peer-{uuid4()}"
    there = {**everloop.environment, "EVERLOOP_AGENTS": ELSEWHERE, "EVERLOOP_TASK_QUEUE": queue}
    peer = replace(everloop, environment={**there, "OTEL_SERVICE_NAME": "peer-gateway"})
    everloop.environment[PEER_URL] = (await peer.add_gateway()).url
    await replace(everloop, environment={**there, "OTEL_SERVICE_NAME": "peer-worker"}).add_worker()
    await everloop.add_worker()
    return await everloop.add_gateway()


async def test_log_lines_say_whose_task_and_which_trace(tmp_path: Path) -> None:
    """A worker's name the task, also those of Temporal's SDK; a gateway's name the task and the caller.

    The caller's token is in none of them.
    """
    key, plan = SigningKey(), [Refusal(429, headers={"retry-after-ms": "1"}), Reply(["Done."])]
    who = {"Authorization": f"Bearer {seed_secret(key.token(sub='acme', scope='tasks:read tasks:write'))}"}
    auth = {
        "EVERLOOP_AUTH": "jwt",
        "EVERLOOP_JWT_PUBLIC_KEY_FILE": str(key.write(tmp_path / "key.pem")),
        "EVERLOOP_JWT_ISSUER": ISSUER,
        "EVERLOOP_JWT_AUDIENCE": AUDIENCE,
        "EVERLOOP_LOG_LEVEL": "debug",
    }
    async with ScriptedOpenAI(plan) as model, traced(tmp_path, model, **auth) as run:
        await run.everloop.add_worker()
        gateway = await run.everloop.add_gateway()
        task = await run.ask(gateway, "writer", **who)
        async with connect_redis(run.everloop.redis_url, NO_CIPHER) as redis:
            await redis.delete(head_key(task["id"]))
        restored = await call(gateway, "writer", "GetTask", {"id": task["id"]}, **who)
        run.everloop.valkey.kill()
        away = await call(gateway, "writer", "ListTasks", {}, **who)
        logs = run.everloop.logs()
        for process in run.everloop.started:
            process.kill()  # rather than wait until it gives its store up

    whose = {"owner_hash": owner_hash("acme"), "trace_id": TRACE_ID}
    about = {"task_id": task["id"], "context_id": task["contextId"], **whose}
    assert (restored.status_code, away.status_code) == (200, 503)
    for event in ("Completing activity as failed", "model replied", "task view restored"):
        (line,) = (line for line in logs if (line["event"], line.get("task_id")) == (event, task["id"]))
        assert about.items() <= line.items(), event
    asked = {str(line["model"]) for line in logs if line["event"] == "model replied"}
    assert {model.partition("/")[0] for model in asked} == {"openai"}
    (line,) = (line for line in logs if line["event"] == "request cannot be served now")
    assert whose.items() <= line.items()


EVERYTHING_AT_ONCE = [
    tool_call("repeat", '{"text": "x", "times": 2}', index=0),
    tool_call("note", '{"text": "x"}', index=1),
    tool_call("writer", '{"request": "Write."}', index=2),
    tool_call("colleague", '{"request": "Help."}', index=3),
]

WHOLE_TREE = dedent(
    """\
    a2a SendMessage
      StartWorkflow:AgentTask
        invoke_agent lead
          StartActivity:call_model
            RunActivity:call_model
              chat openai/lead
          StartActivity:call_model
            RunActivity:call_model
              chat openai/lead
          StartActivity:prepare_task
            RunActivity:prepare_task
          StartActivity:publish
            RunActivity:publish
          StartActivity:run_tool
            RunActivity:run_tool
              execute_tool colleague
                a2a GetTask
                a2a SendStreamingMessage
                  StartWorkflow:AgentTask
                    invoke_agent elsewhere
                      StartActivity:call_model
                        RunActivity:call_model
                          chat openai/elsewhere
                      StartActivity:publish
                        RunActivity:publish
          StartActivity:run_tool
            RunActivity:run_tool
              execute_tool note
                tools/call note
                  tools/call note
          StartActivity:run_tool
            RunActivity:run_tool
              execute_tool repeat
          execute_tool writer
            StartActivity:load_agent
              RunActivity:load_agent
            StartActivity:store_result
              RunActivity:store_result
            StartChildWorkflow:AgentTask
              invoke_agent writer
                StartActivity:call_model
                  RunActivity:call_model
                    chat openai/writer
                StartActivity:call_model
                  RunActivity:call_model
                    chat openai/writer
                StartActivity:publish
                  RunActivity:publish
                StartActivity:run_tool
                  RunActivity:run_tool
                    execute_tool repeat
    """
).rstrip()


def _check_model_span(span: Span) -> None:
    """GenAI semantic conventions."""
    attributes = {a.key: a.value for a in span.attributes}
    assert attributes["gen_ai.operation.name"].string_value == "chat"
    assert attributes["gen_ai.request.model"].string_value == "openai/lead"
    assert attributes["gen_ai.usage.input_tokens"].int_value == 30
    assert attributes["gen_ai.usage.output_tokens"].int_value == 7
    assert attributes["gen_ai.agent.id"].string_value == "lead"
    assert attributes["gen_ai.agent.name"].string_value == "Lead"
    reasons = attributes["gen_ai.response.finish_reasons"].array_value.values
    assert [reason.string_value for reason in reasons] == ["tool_calls"]


def _check_sub_agent_span(span: Span, task: Mapping[str, str]) -> None:
    """Assert the call and the task of the span."""
    assert {a.key: a.value.string_value for a in span.attributes} == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "writer",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "r00002c03",
        "gen_ai.agent.id": "lead",
        "gen_ai.conversation.id": task["contextId"],
        "everloop.task.id": task["id"],
    }


def _check_task_span(span: Span) -> None:
    """Assert that the span of a workflow names its agent."""
    attributes = {a.key: a.value.string_value for a in span.attributes}
    assert attributes["gen_ai.operation.name"] == "invoke_agent"
    assert attributes["gen_ai.agent.id"] == "lead"
    assert attributes["gen_ai.agent.version"]
    assert attributes["gen_ai.conversation.id"]
