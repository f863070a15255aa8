// What a sub-agent did, of the events of its task: what a page that came later has not seen happen.

import type { Json } from "../api/types";
import { type TaskEvent, TaskEvents } from "./events";
import { addCall, endCall, findCall, newCall, newRun, type Run } from "./fold";

/** Returns what the sub-agent did that a call of a task has asked; null: the call asked none. */
export async function runOfCall(task: string, call: string): Promise<Run | null> {
  const begun = (await eventsOf(task)).find((event) => event.type === "subAgent" && event.data["callId"] === call);
  if (!begun) return null;
  const child = String(begun.data["taskId"]);
  return runOf(String(begun.data["agentId"] ?? ""), child, await eventsOf(child));
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
  return run;
}

function said(value: Json | undefined): string {
  return typeof value === "string" ? value : value == null ? "" : JSON.stringify(value);
}
