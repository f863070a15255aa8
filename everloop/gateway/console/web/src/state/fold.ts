// The model of a task on a page: a pure fold of A2A's updates, in their order.
//
// A repeated update changes nothing, so a stream may be opened again at any position.

import { EVENTS, type Part, Role, type StreamResponse, type Task, TaskState } from "../api/a2a";
import type { Json, Question, Usage } from "../api/types";

export type Call = {
  id: string;
  name: string;
  arguments: string;
  state: "asked" | "running" | "ok" | "failed";
  outcome: string;
  result: string;
  size: number;
  cut: boolean;
  cached: boolean;
  url: string;
  raisedAt: string;
  progress: string[];
  attempt: number;
  startedAt: string;
  endedAt: string;
  /** The run of a sub-agent that this call has started. */
  inner?: Run | undefined;
};

/** One step of the agent, in the order of their start. */
export type Step =
  | { kind: "thought"; key: string; iteration: number; text: string; done: boolean }
  | { kind: "text"; key: string; text: string }
  | { kind: "call"; key: string; call: Call }
  | { kind: "note"; key: string; tone: "info" | "warning"; text: string; at: string }
  | { kind: "said"; key: string; message: Said };

/** The steps of an agent in a task: its own, or those of a sub-agent. */
export type Run = {
  agent: string;
  /** The task of a sub-agent. Empty: the task itself. */
  task: string;
  steps: Step[];
  iteration: number;
  model: string;
  state: string;
};

export type Artifact = { id: string; name: string; description: string; parts: Part[]; complete: boolean; failed: boolean };

export type Said = { id: string; role: "user" | "agent"; parts: Part[] };

export type TaskModel = {
  id: string;
  contextId: string;
  state: TaskState;
  statusText: string;
  updatedAt: string;
  messages: Said[];
  run: Run;
  answer: Artifact | null;
  artifacts: Artifact[];
  questions: Question[];
  usage: Usage | null;
  reason: string;
  narration: string;
  leftOut: string;
  /** The task from which this one was forked. */
  origin: { taskId: string; iteration: number } | null;
};

const RESPONSE = "response";

export const TERMINAL: ReadonlySet<TaskState> = new Set([
  TaskState.TASK_STATE_COMPLETED,
  TaskState.TASK_STATE_FAILED,
  TaskState.TASK_STATE_CANCELED,
  TaskState.TASK_STATE_REJECTED,
]);

export const WAITING: ReadonlySet<TaskState> = new Set([TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED]);

export function emptyTask(id = ""): TaskModel {
  return {
    id,
    contextId: "",
    state: TaskState.TASK_STATE_UNSPECIFIED,
    statusText: "",
    updatedAt: "",
    messages: [],
    run: newRun(""),
    answer: null,
    artifacts: [],
    questions: [],
    usage: null,
    reason: "",
    narration: "",
    leftOut: "",
    origin: null,
  };
}

/** Applies an update. The model is changed in place; the store notifies its views. */
export function fold(task: TaskModel, update: StreamResponse): void {
  const payload = update.payload;
  switch (payload?.$case) {
    case "task":
      return snapshot(task, payload.value);
    case "message":
      task.contextId = payload.value.contextId || task.contextId;
      task.state = TaskState.TASK_STATE_COMPLETED;
      task.answer = { id: RESPONSE, name: "", description: "", parts: payload.value.parts, complete: true, failed: false };
      return;
    case "statusUpdate": {
      const { taskId, contextId, status, metadata } = payload.value;
      task.id = taskId || task.id;
      task.contextId = contextId || task.contextId;
      const told = metadata?.[EVENTS] as Told | undefined;
      if (told) {
        tell(task, task.run, told);
        if (told.kind !== "resumed") return; // it repeats the status
      }
      if (!told && status?.message?.metadata?.["narration"]) {
        task.narration = textOf(status.message.parts);
        return;
      }
      setUsage(task, metadata);
      if (!told) sayInterim(task.run, status);
      return setStatus(task, status);
    }
    case "artifactUpdate": {
      const { artifact, append, lastChunk } = payload.value;
      if (artifact) artifactUpdate(task, artifact, append, lastChunk);
    }
  }
}

/** Adds the user's message before the server has it. A later message is placed at the time of sending. */
export function say(task: TaskModel, id: string, parts: Part[]): void {
  if (task.messages.some((each) => each.id === id)) return;
  const message: Said = { id, role: "user", parts };
  task.messages.push(message);
  if (task.messages.length > 1) task.run.steps.push({ kind: "said", key: id, message });
}

/** Returns the questions in the parts of a message. */
export function questionsOf(parts: readonly Part[]): Question[] {
  return parts.flatMap((part) => {
    const described = part.content?.$case === "data" ? (part.content.value as { questions?: Question[] } | null) : null;
    return Array.isArray(described?.questions) ? described.questions : [];
  });
}

/** True if the owner of the task may answer one of these, or there are none of them. */
export function asksOwner(questions: readonly Question[]): boolean {
  return !questions.length || questions.some((question) => (question.approvers ?? "owner") === "owner");
}

export function textOf(parts: readonly Part[]): string {
  return parts.map((part) => (part.content?.$case === "text" ? part.content.value : "")).join("");
}

// Whole tasks.

function snapshot(task: TaskModel, whole: Task): void {
  task.id = whole.id;
  task.contextId = whole.contextId;
  for (const message of whole.history) {
    const role = message.role === Role.ROLE_USER ? "user" : "agent";
    const known = task.messages.find((each) => each.id === message.messageId);
    if (known) known.parts = message.parts;
    else task.messages.push({ id: message.messageId, role, parts: message.parts });
  }
  const steps = (whole.metadata?.[EVENTS] as { steps?: WireStep[] } | undefined)?.steps;
  if (steps) readSteps(task.run, steps);
  else sayInterim(task.run, whole.status); // other servers send no steps
  for (const artifact of whole.artifacts)
    artifactUpdate(task, artifact, false, TERMINAL.has(whole.status?.state ?? TaskState.TASK_STATE_UNSPECIFIED));
  task.leftOut = (whole.metadata?.["leftOut"] as { hint?: string } | undefined)?.hint ?? "";
  task.origin = (whole.metadata?.["fork"] as TaskModel["origin"] | undefined) ?? null;
  setUsage(task, whole.metadata);
  setStatus(task, whole.status);
  if (task.state === TaskState.TASK_STATE_WORKING) noteRunning(task.run);
}

type WireCall = Record<string, unknown> & { call_id: string; name: string; arguments: string };
type WireStep = { model?: string; thought?: string; text?: string; calls?: WireCall[] };

function readSteps(run: Run, steps: WireStep[]): void {
  const told: Step[] = [];
  const calls = new Map(run.steps.flatMap((step) => (step.kind === "call" ? [[step.key, step.call]] : [])));
  steps.forEach((step, n) => {
    run.model = step.model || run.model;
    if (step.thought) told.push({ kind: "thought", key: `t${n + 1}:`, iteration: n + 1, text: step.thought, done: true });
    if (step.text && step.calls?.length) told.push({ kind: "text", key: `x${n + 1}`, text: step.text });
    for (const wire of step.calls ?? []) {
      const call = calls.get(wire.call_id) ?? newCall(wire.call_id, wire.name, wire.arguments);
      if (wire["outcome"]) endCall(call, wire);
      told.push({ kind: "call", key: wire.call_id, call });
    }
  });
  const keys = new Set(told.map((step) => step.key));
  run.steps = [...told, ...run.steps.filter((step) => !keys.has(step.key) && step.kind !== "thought")];
  run.iteration = Math.max(run.iteration, steps.length);
}

// Statuses.

function setStatus(task: TaskModel, status: Task["status"]): void {
  if (!status) return;
  task.state = status.state;
  task.updatedAt = status.timestamp ?? task.updatedAt;
  task.statusText = status.message ? textOf(status.message.parts) : "";
  task.reason = (status.message?.metadata?.["reason"] as string | undefined) ?? "";
  task.questions = [];
  if (task.state !== TaskState.TASK_STATE_WORKING) task.narration = "";
  // Not all servers mark the last piece of an artifact.
  if (TERMINAL.has(task.state)) for (const each of task.artifacts) each.complete = !each.failed;
  if (!WAITING.has(task.state)) return;
  task.questions.push(...questionsOf(status.message?.parts ?? []));
  if (!task.questions.length)
    task.questions.push({
      id: "",
      kind: task.state === TaskState.TASK_STATE_AUTH_REQUIRED ? "auth" : "clarification",
      text: task.statusText,
    });
}

/** Adds a text of the agent while it works. It arrives with the calls beside it, but was written before them. */
function sayInterim(run: Run, status: Task["status"]): void {
  if (status?.state !== TaskState.TASK_STATE_WORKING || !status.message) return;
  const text = textOf(status.message.parts);
  const key = run.iteration ? `x${run.iteration}` : status.message.messageId;
  if (!text.trim() || run.steps.some((step) => step.key === key)) return;
  let place = run.steps.length;
  for (let before = run.steps[place - 1]; before?.kind === "call" && !before.call.outcome; before = run.steps[place - 1]) place--;
  run.steps.splice(place, 0, { kind: "text", key, text });
}

function setUsage(task: TaskModel, metadata: Record<string, unknown> | undefined): void {
  const usage = metadata?.["usage"] as Usage | undefined;
  if (usage) task.usage = usage;
}

// The events extension.

type Told = { kind: string; at?: string } & Record<string, unknown>;

function tell(task: TaskModel, run: Run, told: Told): void {
  const id = String(told["call_id"] ?? "");
  switch (told.kind) {
    case "iteration":
      run.iteration = Number(told["iteration"]);
      run.model = String(told["model"]);
      return;
    case "thought":
      return think(run, told);
    case "tool-call":
      if (!findCall(run, id)) addCall(run, newCall(id, String(told["name"]), String(told["arguments"])));
      return;
    case "tool-start": {
      const call = findCall(run, id) ?? addCall(run, newCall(id, String(told["name"]), ""));
      if (call.outcome) return;
      call.state = "running";
      call.attempt = Number(told["attempt"]);
      call.startedAt ||= told.at ?? "";
      return;
    }
    case "tool-progress": {
      const call = findCall(run, id);
      const message = String(told["message"]);
      if (call && call.progress.at(-1) !== message) call.progress.push(message);
      return;
    }
    case "tool-complete": {
      const call = findCall(run, id) ?? addCall(run, newCall(id, String(told["name"]), ""));
      if (!call.outcome) endCall(call, told);
      return;
    }
    case "provider-tool":
      return providerTool(run, told);
    case "retry":
      return note(run, "warning", `attempt ${told["attempt"]} failed: ${told["reason"]}`, told.at);
    case "warning":
      return note(run, "warning", String(told["text"]), told.at);
    case "narration":
      task.narration = String(told["text"]);
      return note(run, "info", task.narration, told.at);
    case "agent-invoked": {
      const call = findCall(run, id);
      if (call) {
        call.inner ??= newRun("");
        call.inner.agent = String(told["agent_id"]);
        call.inner.task = String(told["task_id"] ?? "");
      }
      return;
    }
    case "sub-agent":
      return subAgent(task, run, told);
  }
}

/** Passes an event to the run of the sub-agent in its path. */
function subAgent(task: TaskModel, run: Run, told: Told): void {
  const path = (told["path"] as string[] | undefined) ?? [];
  const event = told["event"] as Told | undefined;
  if (!event) return;
  let inner = run;
  for (const name of path) {
    const call = invokerOf(inner, name) ?? addCall(inner, newCall(name, "sub-agent", ""));
    call.inner ??= newRun("", name);
    inner = call.inner;
  }
  if (event.kind === "status") inner.state = String(event["state"]);
  else if (event.kind === "artifact-chunk") innerText(inner, event);
  else tell(task, inner, { at: told.at ?? "", ...event });
}

/** Returns the call whose sub-agent has a task of this name, which is the last part of its id. */
function invokerOf(run: Run, name: string): Call | undefined {
  return callsOf(run).findLast((call) => call.inner?.task.split("/").at(-1) === name);
}

function innerText(run: Run, event: Told): void {
  if (event["artifact_id"] !== RESPONSE) return;
  const part = event["part"] as { text?: string } | undefined;
  const key = `x:${event["position"]}`; // another attempt writes it again
  const known = run.steps.findLast((step) => step.key === key);
  if (known?.kind === "text") known.text = event["index"] === 0 ? (part?.text ?? "") : known.text + (part?.text ?? "");
  else if (part?.text) run.steps.push({ kind: "text", key, text: part.text });
}

function think(run: Run, told: Told): void {
  const iteration = Number(told["iteration"]);
  const key = `t${iteration}:${told["thought_id"] ?? ""}`;
  let known = run.steps.findLast((step) => step.key === key);
  if (!known) run.steps.push((known = { kind: "thought", key, iteration, text: "", done: false }));
  if (known.kind !== "thought") return;
  known.text += String(told["text"] ?? "");
  known.done = Boolean(told["last"]);
}

function providerTool(run: Run, told: Told): void {
  const id = `p:${told["id"]}`;
  const call = findCall(run, id) ?? addCall(run, newCall(id, String(told["name"]), ""));
  call.state = told["status"] === "started" ? "running" : told["status"] === "failed" ? "failed" : "ok";
  if (call.state === "running") call.startedAt = told.at ?? "";
  else {
    call.outcome = call.state === "ok" ? "ok" : "error";
    call.endedAt = told.at ?? "";
    call.result = told["detail"] == null ? "" : JSON.stringify(told["detail"] as Json, null, 2);
  }
}

function note(run: Run, tone: "info" | "warning", text: string, at = ""): void {
  const last = run.steps.at(-1);
  if (last?.kind === "note" && last.text === text) return;
  run.steps.push({ kind: "note", key: `n:${at}:${run.steps.length}`, tone, text, at });
}

// Calls.

export function newRun(agent: string, task = ""): Run {
  return { agent, task, steps: [], iteration: 0, model: "", state: "" };
}

export function newCall(id: string, name: string, args: string): Call {
  return {
    id,
    name,
    arguments: args,
    state: "asked",
    outcome: "",
    result: "",
    size: 0,
    cut: false,
    cached: false,
    url: "",
    raisedAt: "",
    progress: [],
    attempt: 0,
    startedAt: "",
    endedAt: "",
  };
}

export function callsOf(run: Run): Call[] {
  return run.steps.flatMap((step) => (step.kind === "call" ? [step.call] : []));
}

/** Marks calls without an end as running, if only that is known. */
export function noteRunning(run: Run): void {
  for (const call of callsOf(run)) if (!call.outcome) call.state = "running";
}

export function findCall(run: Run, id: string): Call | undefined {
  for (let n = run.steps.length - 1; n >= 0; n--) {
    const step = run.steps[n]!;
    if (step.kind === "call" && step.key === id) return step.call;
  }
  return undefined;
}

export function addCall(run: Run, call: Call): Call {
  run.steps.push({ kind: "call", key: call.id, call });
  return call;
}

export function endCall(call: Call, told: Record<string, unknown>): void {
  call.outcome = String(told["outcome"]);
  call.state = call.outcome === "ok" ? "ok" : "failed";
  call.result = String(told["result"] ?? "");
  call.size = Number(told["size"] ?? call.result.length);
  call.cut = Boolean(told["cut"]);
  call.cached = Boolean(told["cached"]);
  call.url = String(told["url"] ?? "");
  call.raisedAt = String(told["raised_at"] ?? "");
  call.endedAt = String(told["at"] ?? call.endedAt);
}

// Artifacts. The answer is one of them.

function artifactUpdate(task: TaskModel, came: Task["artifacts"][number], append: boolean, last: boolean): void {
  const failed = came.metadata?.["status"] === "failed";
  const known = came.artifactId === RESPONSE ? task.answer : task.artifacts.find((each) => each.id === came.artifactId);
  if (append && known) {
    known.parts = joined(known.parts, came.parts);
    known.complete = (known.complete || last) && !failed;
    known.failed ||= failed;
    return;
  }
  const artifact: Artifact = {
    id: came.artifactId,
    name: came.name,
    description: came.description,
    parts: came.parts,
    complete: last && !failed,
    failed,
  };
  if (came.artifactId === RESPONSE) task.answer = textOf(came.parts) || came.parts.length > 1 || last ? artifact : null;
  else if (known) Object.assign(known, artifact);
  else task.artifacts.push(artifact);
}

/** Joins pieces of text into one part, as A2A appends them. */
function joined(parts: Part[], more: Part[]): Part[] {
  const all = [...parts];
  for (const part of more) {
    const last = all.at(-1);
    if (last?.content?.$case === "text" && part.content?.$case === "text" && !part.filename && !last.filename)
      all[all.length - 1] = { ...last, content: { $case: "text", value: last.content.value + part.content.value } };
    else all.push(part);
  }
  return all;
}
