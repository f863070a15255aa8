// A task that is followed by a message: calls that ended before its stream are read.

import { expect, it, vi } from "vitest";
import { EVENTS, type StreamResponse, TaskState, userMessage } from "../src/api/a2a";
import { callsOf, emptyTask } from "../src/state/fold";
import { follow } from "../src/state/stream";

const client = vi.hoisted(() => ({ sendMessageStream: vi.fn(), getTask: vi.fn(), resubscribeTask: vi.fn() }));
vi.mock("../src/api/a2a", async (original) => ({ ...(await original<object>()), agentClient: async () => client, noteIds: (_: AbortSignal, note: (id: string) => void) => note("1-0") }));

const data = (value: unknown) => ({ content: { $case: "data", value }, metadata: undefined, filename: "", mediaType: "" });

function status(state: TaskState, metadata: object = {}, parts: object[] = []): StreamResponse {
  const message = parts.length ? { messageId: "m", role: 2, parts } : undefined;
  return { payload: { $case: "statusUpdate", value: { taskId: "t", contextId: "c", status: { state, message }, metadata } } } as unknown as StreamResponse;
}

const asked = (id: string) => status(TaskState.TASK_STATE_WORKING, { [EVENTS]: { kind: "tool-call", call_id: id, name: "book", arguments: "{}" } });
const question = data({ questions: [{ id: "q2", kind: "clarification", text: "Who?" }] });

async function* stream(...updates: StreamResponse[]): AsyncGenerator<StreamResponse> {
  yield* updates;
}

it.each([
  ["has ended", status(TaskState.TASK_STATE_COMPLETED)],
  ["asks something else", status(TaskState.TASK_STATE_INPUT_REQUIRED, {}, [question])],
])("when the task %s", async (_, last) => {
  const calls = [{ call_id: "c1", name: "book", arguments: "{}", outcome: "ok", result: "booked" }];
  const { state, message } = (last.payload as { value: { status: object } }).value.status as { state: TaskState; message?: object };
  client.sendMessageStream.mockReturnValue(stream(asked("c1"), asked("c2"), last));
  client.getTask.mockResolvedValue({ id: "t", contextId: "c", history: [], artifacts: [], status: { state, message }, metadata: { [EVENTS]: { steps: [{ calls }] } } });
  client.resubscribeTask.mockReturnValue(new Promise(() => undefined));

  const { task, close } = follow("a", emptyTask(), userMessage([]));

  await vi.waitFor(() => expect(callsOf(task.run).map((call) => call.state)).toContain("ok"), 3000);
  close();
});
