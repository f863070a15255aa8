"""A rig for people in the loop: an agent that asks, and the views of clients and operators."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from uuid import uuid4

from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest, Task
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value
from pydantic import JsonValue
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowHandle

from tests.support.rigs.deployment import Deployment, Gateway
from tests.support.seeded_secrets import seed_json
from tests.support.servers.scripted_openai import CallFragment, Reply, ScriptedOpenAI, tool_call

PEOPLE_AGENT = "tests.support.agents.people:agent"


@dataclass(frozen=True)
class Harness:
    """An agent that asks people, and its model."""

    model: ScriptedOpenAI
    everloop: Deployment
    gateway: Gateway

    def expect(self, *calls: CallFragment) -> None:
        """Script one reply with these calls, and then an answer."""
        self.model.script = [Reply(calls), Reply(["Done."])]
        self.model.requests.clear()

    @property
    def tool_results(self) -> list[str]:
        """Return the tool results that the model has read."""
        return self.model.requests[-1].tool_results

    async def workflow(self, task_id: str) -> WorkflowHandle[object, object]:
        """Return the workflow of a task."""
        client = await Client.connect(self.everloop.temporal_address)
        return client.get_workflow_handle(task_id)

    async def details(self, task_id: str) -> str:
        """Return the current details of a task in the Temporal UI."""
        workflow = await self.workflow(task_id)
        metadata = await workflow.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        return metadata.current_details


def call(name: str, arguments: Mapping[str, JsonValue], index: int = 0) -> CallFragment:
    """Return a call of the model."""
    return tool_call(name, json.dumps(arguments), index=index)


def say(task_id: str, content: JsonValue, *, question: str = "") -> SendMessageRequest:
    """Return an answer: a string as text, other JSON as data; metadata name the question, if any."""
    seed_json(content)
    if isinstance(content, str):
        part = Part(text=content)
    else:
        # ParseDict takes any JSON value where the message is a Value; its annotation allows objects only.
        part = Part(data=ParseDict(cast("dict[str, JsonValue]", content), Value()))
    message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, task_id=task_id, parts=[part])
    if question:
        message.metadata.update({"question": question})
    return SendMessageRequest(message=message)


def shown(task: Task) -> str:
    """Return the text of a task's status for people."""
    return task.status.message.parts[0].text


def questions(task: Task) -> dict[str, dict[str, JsonValue]]:
    """Return the questions in a task's status for programs, by their ids."""
    if len(task.status.message.parts) < 2:
        return {}
    data = MessageToDict(task.status.message.parts[1].data)
    return {question["id"]: question for question in data["questions"]}


def question(task: Task) -> dict[str, JsonValue]:
    """Return the only question in a task's status for programs."""
    (only,) = questions(task).values()
    return only


def effects(ledger: Path) -> list[JsonValue]:
    """Return the effects of the tools in order."""
    return [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []
