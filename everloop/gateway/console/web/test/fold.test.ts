// The fold of a gateway's updates to the model of a task.

import { beforeEach, describe, expect, it } from "vitest";
import { EVENTS, type StreamResponse, TaskState } from "../src/api/a2a";
import type { Question } from "../src/api/types";
import { asksOwner, emptyTask, fold, type Run, type TaskModel, textOf } from "../src/state/fold";

let task: TaskModel;
beforeEach(() => {
  task = emptyTask();
});

const text = (value: string) => ({ content: { $case: "text" as const, value }, metadata: undefined, filename: "", mediaType: "" });

function status(state: TaskState, parts: object[] = [], metadata: object = {}): StreamResponse {
  const message = { messageId: "m", contextId: "c", taskId: "t", role: 2, parts, metadata: {}, extensions: [], referenceTaskIds: [] };
  const known = { state, message: parts.length ? message : undefined, timestamp: "2026-01-01T00:00:00Z" };
  return { payload: { $case: "statusUpdate", value: { taskId: "t", contextId: "c", status: known, metadata } } } as StreamResponse;
}

function told(event: object): StreamResponse {
  return status(TaskState.TASK_STATE_WORKING, [], { [EVENTS]: { at: "2026-01-01T00:00:01Z", ...event } });
}

function chunk(id: string, value: string, append: boolean, lastChunk = false): StreamResponse {
  const artifact = { artifactId: id, name: id, description: "", parts: [text(value)], metadata: undefined, extensions: [] };
  const update = { taskId: "t", contextId: "c", artifact, append, lastChunk, metadata: undefined };
  return { payload: { $case: "artifactUpdate", value: update } } as StreamResponse;
}

const calls = (run: Run) => run.steps.flatMap((step) => (step.kind === "call" ? [step.call] : []));

describe("an answer", () => {
  it("grows piece by piece, and its last update is all of it", () => {
    const updates = [chunk("response", "Hel", false), chunk("response", "lo", true), chunk("response", "Hello!", false, true)];
    for (const update of updates) fold(task, update);
    expect(textOf(task.answer!.parts)).toBe("Hello!");
    expect(task.answer!.complete).toBe(true);
  });

  it("is taken back where the model writes another one", () => {
    fold(task, chunk("response", "draft", false));
    fold(task, chunk("response", "", false));
    expect(task.answer).toBeNull();
  });
});

describe("what an agent says while it works", () => {
  const call = told({ kind: "tool-call", call_id: "r1c1", name: "search", arguments: "{}", iteration: 1 });

  it("is known from a whole task, too, of a server that tells no steps: a connection may be lost before it is told", () => {
    const said = status(TaskState.TASK_STATE_WORKING, [text("Half done.")]);
    const { value } = said.payload as { value: { status: object } };
    const whole = { id: "t", contextId: "c", history: [], artifacts: [], status: value.status, metadata: undefined };
    for (const update of [{ payload: { $case: "task", value: whole } } as unknown as StreamResponse, said]) {
      fold(task, update);
      expect(task.run.steps).toEqual([{ kind: "text", key: "m", text: "Half done." }]);
    }
  });

  it("stays where it was said, before the calls that came with it, and comes once", () => {
    const said = status(TaskState.TASK_STATE_WORKING, [text("Let me look.")]);
    for (const update of [told({ kind: "iteration", iteration: 1, model: "m" }), chunk("response", "Let me look.", false), chunk("response", "", false), call, said, said])
      fold(task, update);
    expect(task.run.steps.map((step) => [step.kind, step.key])).toEqual([
      ["text", "x1"],
      ["call", "r1c1"],
    ]);
  });

  it("stays also where nothing else is known of its work", () => {
    fold(task, status(TaskState.TASK_STATE_WORKING, [text("half done")]));
    fold(task, status(TaskState.TASK_STATE_COMPLETED));
    expect(task.run.steps.map((step) => step.kind === "text" && step.text)).toEqual(["half done"]);
  });
});

describe("tool calls", () => {
  it("come once, however often a connection is made anew", () => {
    const asked = told({ kind: "tool-call", call_id: "r1c1", name: "search", arguments: '{"q": 1}', iteration: 1 });
    const started = told({ kind: "tool-start", call_id: "r1c1", name: "search", attempt: 1 });
    const done = told({ kind: "tool-complete", call_id: "r1c1", name: "search", outcome: "ok", result: "found", size: 5, cut: false });
    for (const update of [asked, started, done, asked, started, done]) fold(task, update);
    expect(calls(task.run)).toHaveLength(1);
    expect(calls(task.run)[0]).toMatchObject({ state: "ok", result: "found", arguments: '{"q": 1}', attempt: 1 });
  });

  it("of sub-agents stand within the call that invoked them, however deep", () => {
    const call = (call_id: string, name: string) => ({ kind: "tool-call", call_id, name, arguments: "{}", iteration: 1 });
    const invoked = (call_id: string, task_id: string) => ({ kind: "agent-invoked", call_id, agent_id: "writer", task_id });
    fold(task, told(call("r00001c01", "writer")));
    fold(task, told(invoked("r00001c01", "t/r00001-a1")));
    fold(task, told({ kind: "sub-agent", path: ["r00001-a1"], event: call("r00001c01", "look") }));
    fold(task, told({ kind: "sub-agent", path: ["r00001-a1"], event: invoked("r00001c01", "t/r00001-a1/r00001-b2") }));
    fold(task, told({ kind: "sub-agent", path: ["r00001-a1", "r00001-b2"], event: call("r00001c01", "deep") }));
    const [outer, ...others] = calls(task.run);
    const [middle] = calls(outer!.inner!);
    expect(others).toEqual([]);
    expect(outer!.inner!.agent).toBe("writer");
    expect(calls(middle!.inner!).map((one) => one.name)).toEqual(["deep"]);
  });
});

it("a sub-agent's words of an attempt that failed give way to those of the next", () => {
  const said = (attempt: number, words: string) =>
    told({ kind: "sub-agent", path: ["r1-a"], event: { kind: "artifact-chunk", artifact_id: "response", position: 2, attempt, index: 0, part: { text: words } } });
  fold(task, said(1, "It ha"));
  fold(task, said(2, "It has 120."));
  expect(calls(task.run)[0]!.inner!.steps).toMatchObject([{ kind: "text", text: "It has 120." }]);
});

describe("questions", () => {
  const described = { ...text(""), content: { $case: "data", value: { questions: [{ id: "q1", kind: "confirmation", text: "Sure?" }] } } };

  it("are those that the status describes, and go with it", () => {
    fold(task, status(TaskState.TASK_STATE_INPUT_REQUIRED, [text("Sure?"), described]));
    expect(task.questions.map((question) => question.id)).toEqual(["q1"]);
    fold(task, status(TaskState.TASK_STATE_WORKING));
    expect(task.questions).toEqual([]);
  });

  it("are the owner's, unless all are for others", () => {
    const [mine, theirs] = ["owner", "tasks:approve"].map((approvers) => ({ id: approvers, kind: "confirmation", text: "Sure?", approvers }));
    expect([[], [mine], [mine, theirs], [theirs]].map((asked) => asksOwner(asked as Question[]))).toEqual([true, true, true, false]);
  });

  it("of servers that describe none are their words", () => {
    fold(task, status(TaskState.TASK_STATE_INPUT_REQUIRED, [text("Which city?")]));
    expect(task.questions).toMatchObject([{ kind: "clarification", text: "Which city?" }]);
  });
});

it("events of the extension do not change the status that they repeat", () => {
  fold(task, status(TaskState.TASK_STATE_COMPLETED, [text("done")]));
  fold(task, told({ kind: "usage", iteration: 1, usage: {} }));
  expect(task.state).toBe(TaskState.TASK_STATE_COMPLETED);
  expect(task.statusText).toBe("done");
});

it("thoughts are joined by iteration", () => {
  for (const piece of ["I ", "think"]) fold(task, told({ kind: "thought", iteration: 2, thought_id: "", text: piece }));
  expect(task.run.steps).toMatchObject([{ kind: "thought", text: "I think" }]);
});
