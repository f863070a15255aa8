// The steps of a sub-agent from the events of its task, for a page that was opened later.

import { TaskState } from "../api/a2a";
import { ask, at } from "../api/root";
import type { Json } from "../api/types";
import { type TaskEvent, TaskEvents } from "./events";
import { addCall, callsOf, endCall, findCall, newCall, newRun, noteRunning, type Run, type TaskModel, TERMINAL } from "./fold";

/** Returns the run of the sub-agent that a call of a task has started, or null if there is none. */
export async function runOfCall(task: string, call: string): Promise<Run | null> {
  const begun = (await eventsOf(task)).find((event) => event.type === "subAgent" && event.data["callId"] === call);
  if (!begun) return null;
  const child = String(begun.data["taskId"]);
  return runOf(String(begun.data["agentId"] ?? ""), child, await eventsOf(child));
}

type Child = { task: { id: string; status: { state: keyof typeof TaskState } } };

/** Loads the earlier steps of running sub-agents, and the calls that have started them. */
export async function findSubAgents(task: TaskModel): Promise<void> {
  const open = callsOf(task.run).filter((call) => !call.outcome && !call.inner?.agent);
  if (!open.length) return;
  const { children } = await ask<{ children: Child[] }>("GET", at`/tasks/${task.id}/children`);
  if (children.every((child) => TERMINAL.has(TaskState[child.task.status.state]))) return;
  const begun = (await eventsOf(task.id)).filter((event) => event.type === "subAgent");
  for (const call of open) {
    const data = begun.find((event) => event.data["callId"] === call.id)?.data;
    if (!data) continue;
    const child = said(data["taskId"]);
    const inner = runOf(said(data["agentId"]), child, await eventsOf(child));
    // Steps that have arrived meanwhile are in a card of their own.
    const name = child.split("/").at(-1);
    task.run.steps = task.run.steps.filter((step) => step.key !== name);
    call.inner = inner;
    call.state = "running";
  }
}

async function eventsOf(task: string): Promise<TaskEvent[]> {
  const events = new TaskEvents(task);
  await events.load();
  if (events.error.value) throw new Error(events.error.value);
  return events.events.value;
}

/** Converts events to the updates of a stream. */
export function runOf(agent: string, task: string, events: readonly TaskEvent[]): Run {
  const run = newRun(agent, task);
  for (const { id, at, type, iteration, data } of events) {
    run.iteration = Math.max(run.iteration, iteration);
    if (type === "modelReply") {
      if (data["thought"]) run.steps.push({ kind: "thought", key: `t${id}`, iteration, text: said(data["thought"]), done: true });
      if (data["text"]) run.steps.push({ kind: "text", key: `x${id}`, text: said(data["text"]) });
    }
    if (type === "toolCall" && !findCall(run, said(data["callId"]))) {
      addCall(run, newCall(said(data["callId"]), said(data["name"]), said(data["arguments"]))).startedAt = at;
    }
    if (type === "toolResult") {
      const call = findCall(run, said(data["callId"])) ?? addCall(run, newCall(said(data["callId"]), said(data["name"]), ""));
      call.startedAt = said(data["startedAt"] ?? call.startedAt);
      endCall(call, {
        outcome: data["outcome"] ?? (data["isError"] ? "error" : "ok"),
        result: data["result"] ?? data["error"],
        size: data["size"],
        cut: data["isCut"],
        url: data["url"],
        at: data["endedAt"] ?? at,
      });
    }
    if (type === "status" && data["state"]) run.state = said(data["state"]);
  }
  if (run.state === "working") noteRunning(run);
  return run;
}

function said(value: Json | undefined): string {
  return typeof value === "string" ? value : value == null ? "" : JSON.stringify(value);
}
