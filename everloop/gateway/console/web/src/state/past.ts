// What a sub-agent did, of the events of its task: what a page that came later has not seen happen.

import { TaskState } from "../api/a2a";
import { ask, at } from "../api/root";
import type { Json } from "../api/types";
import { type TaskEvent, TaskEvents } from "./events";
import { addCall, callsOf, endCall, findCall, newCall, newRun, noteRunning, type Run, type TaskModel, TERMINAL } from "./fold";

/** Returns what the sub-agent did that a call of a task has asked; null: the call asked none. */
export async function runOfCall(task: string, call: string): Promise<Run | null> {
  const begun = (await eventsOf(task)).find((event) => event.type === "subAgent" && event.data["callId"] === call);
  if (!begun) return null;
  const child = String(begun.data["taskId"]);
  return runOf(String(begun.data["agentId"] ?? ""), child, await eventsOf(child));
}

type Child = { task: { id: string; status: { state: keyof typeof TaskState } } };

/** Finds out what sub-agents that work now have done before this page came, and which calls have asked them. */
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
    // What has come meanwhile stands in a card of its own.
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

/** Makes of events what a stream would have told. */
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
