// The events of a task from its beginning, from the extension, updated while the task runs.

import { type Signal, signal } from "@preact/signals";
import { ApiError, ask, at } from "../api/root";
import type { Json, Usage } from "../api/types";

export type TaskEvent = { id: string; at: string; type: string; iteration: number; data: { [key: string]: Json } };

export type UsageReport = {
  total: Usage;
  models: (Usage & { model: string; calls: number })[];
  tools: { tool: string; calls: number; failures: number; seconds: number; cost: number | null }[];
};

/** Limit of the events that a page stores. */
const MOST = 50_000;

/** The events of one task; `load` fetches new ones. */
export class TaskEvents {
  readonly events: Signal<TaskEvent[]> = signal([]);
  readonly error: Signal<string> = signal("");
  readonly isCut: Signal<boolean> = signal(false);
  private loading: Promise<void> | null = null;

  /** `owner`: the owner of the task, for operators. Empty: the user. */
  constructor(
    readonly taskId: string,
    readonly owner = "",
  ) {}

  load(): Promise<void> {
    this.loading ??= this.fetch().finally(() => (this.loading = null));
    return this.loading;
  }

  private page(after: string): Promise<{ events: TaskEvent[]; nextPageToken: string }> {
    const place = after ? `&after=${encodeURIComponent(after)}` : "";
    return ask("GET", `${at`/tasks/${this.taskId}/events`}?pageSize=100${ofOwner(this.owner)}${place}`);
  }

  private async fetch(): Promise<void> {
    try {
      let after = this.events.value.at(-1)?.id ?? "";
      for (;;) {
        const page = await this.page(after).catch((error: unknown) => {
          if (!after || !(error instanceof ApiError) || error.status !== 400) throw error;
          return null; // an operator has reset the task: earlier events are no longer valid
        });
        if (!page) {
          this.events.value = [];
          after = "";
          continue;
        }
        if (page.events.length) this.events.value = [...this.events.value, ...page.events];
        after = page.nextPageToken || "";
        this.isCut.value = this.events.value.length >= MOST;
        if (!after || this.isCut.value) break;
      }
      this.error.value = "";
    } catch (error) {
      this.error.value = (error as Error).message;
    }
  }
}

export function usageOf(taskId: string, owner = ""): Promise<UsageReport> {
  return ask("GET", `${at`/tasks/${taskId}/usage`}?${ofOwner(owner)}`);
}

function ofOwner(owner: string): string {
  return owner ? `&owner=${encodeURIComponent(owner)}` : "";
}

/** The start of a task: the version of the agent, and its limits. */
export type Beginning = {
  agentVersion?: string;
  tools?: string[];
  limits?: { iterations?: number; tokens?: number; cost?: number; seconds?: number };
};

export async function beginningOf(taskId: string): Promise<Beginning | null> {
  const { events } = await ask<{ events: TaskEvent[] }>("GET", `${at`/tasks/${taskId}/events`}?pageSize=1`);
  return events[0]?.type === "taskCreated" ? (events[0].data as Beginning) : null;
}

// The timeline: a bar for each model call, each tool call, and each wait of the task.

export type Bar = {
  key: string;
  kind: "model" | "tool" | "wait";
  name: string;
  iteration: number;
  from: number;
  to: number;
  failed: boolean;
  attempts: number;
  /** The reason of a failure, in a line. */
  why: string;
  /** In US dollars, null if unknown. */
  cost: number | null;
  tokens: number;
};

/** Returns the beginning of a text as one line. */
export function oneLine(text: string): string {
  const line = text.slice(0, 300).replace(/\s+/g, " ").trim();
  return text.length > 300 ? `${line}…` : line;
}

/** Returns the bars of events, in the order of their start. Open ones end `now`. */
export function bars(events: readonly TaskEvent[], now: number): Bar[] {
  const found: Bar[] = [];
  const open = new Map<string, TaskEvent>();
  let waits: TaskEvent | null = null;
  for (const event of events) {
    const { type, data, iteration } = event;
    if (type === "modelCall") open.set(`m${iteration}`, event);
    if (type === "toolCall") open.set(String(data["callId"]), event);
    if (type === "modelReply" || type === "toolResult") {
      const key = type === "modelReply" ? `m${iteration}` : String(data["callId"]);
      const call = open.get(key);
      const from = moment(data["startedAt"]) ?? Date.parse(call?.at ?? event.at);
      const failed = Boolean(data["isError"] || data["error"]);
      open.delete(key);
      found.push({
        key: event.id,
        kind: type === "modelReply" ? "model" : "tool",
        // A failed call had no reply that could name its model.
        name: String(type === "modelReply" ? data["model"] || call?.data["model"] || "model" : data["name"]),
        iteration,
        from,
        to: moment(data["endedAt"]) ?? Date.parse(event.at),
        failed,
        attempts: Number(data["attempts"] ?? 1),
        why: failed ? oneLine(String(data["error"] || data["result"] || "")) : "",
        ...spent(data["usage"]),
      });
    }
    const isStatus = type === "status";
    const isWaiting = isStatus && /input|auth/i.test(String(data["state"]));
    if (waits && (isStatus || type === "message") && !isWaiting) {
      found.push(wait(waits, Date.parse(event.at)));
      waits = null;
    }
    if (isWaiting && !waits) waits = event;
  }
  if (waits) found.push(wait(waits, now));
  for (const [key, event] of open)
    found.push({
      key: event.id,
      kind: key.startsWith("m") && event.type === "modelCall" ? "model" : "tool",
      name: String(event.data["model"] || event.data["name"] || "model"),
      iteration: event.iteration,
      from: Date.parse(event.at),
      to: now,
      failed: false,
      attempts: 1,
      why: "",
      cost: null,
      tokens: 0,
    });
  return found.sort((a, b) => a.from - b.from || a.to - b.to);
}

function wait(event: TaskEvent, to: number): Bar {
  const from = Date.parse(event.at);
  return { key: event.id, kind: "wait", name: "waits for people", iteration: event.iteration, from, to, failed: false, attempts: 1, why: "", cost: null, tokens: 0 };
}

function spent(usage: Json | undefined): { cost: number | null; tokens: number } {
  const { inputTokens = 0, outputTokens = 0, cost = null } = (usage ?? {}) as Partial<Usage>;
  return { cost, tokens: inputTokens + outputTokens };
}

function moment(value: Json | undefined): number | null {
  return typeof value === "string" ? Date.parse(value) : null;
}
