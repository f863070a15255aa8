// State that pages share: agents, followed tasks, open questions, and preferences.

import { effect, signal } from "@preact/signals";
import { login, loginWanted } from "../api/auth";
import { type Message, type Part, userMessage } from "../api/a2a";
import { readAgents } from "../api/catalogue";
import { ApiError } from "../api/root";
import type { Agent } from "../api/types";
import { emptyTask, say, type TaskModel } from "./fold";
import { follow, type Followed } from "./stream";

/** Milliseconds until a failed request for the list of agents is repeated. */
const RETRY = 5_000;

export const agents = signal<Agent[] | null>(null);
export const problem = signal("");

let timer = 0;

export async function loadAgents(): Promise<void> {
  clearTimeout(timer);
  try {
    agents.value = await readAgents();
    problem.value = "";
  } catch (error) {
    problem.value = (error as Error).message;
    if (!loginWanted.value) timer = window.setTimeout(() => void loadAgents(), RETRY);
  }
}

/** The default agent of new messages. */
export const lastAgent = signal(recall("agent"));
effect(() => remember("agent", lastAgent.value));

export function agentName(id: string): string {
  return agents.value?.find((agent) => agent.id === id)?.name || id;
}

// Tasks that are shown, or were shown lately.

/** Limit of the stored tasks: more than a chat shows at once. */
const MOST = 40;
/** Limit of open streams. Browsers have six connections to a host of HTTP/1.1, for all tabs together. */
const MOST_OPEN = 2;
const followed = new Map<string, Followed>();

/** Follows a task. Pages that show it share the result. An ended task is loaded again, since it may have been reset. */
export function followTask(agent: string, id: string): Followed {
  const known = followed.get(id);
  if (known?.connection.peek() === "ended") return keep(follow(agent, known.task));
  if (known) {
    followed.delete(id);
    followed.set(id, known);
    return known;
  }
  return keep(follow(agent, emptyTask(id)));
}

/** Sends a message, as a new task or to one that is followed. */
export function send(agent: string, parts: Part[], where: { contextId?: string; task?: Followed; metadata?: Message["metadata"] }): Followed {
  const task: TaskModel = where.task?.task ?? emptyTask();
  const message = userMessage(parts, { contextId: where.contextId ?? task.contextId, taskId: task.id, metadata: where.metadata });
  say(task, message.messageId, parts);
  where.task?.close();
  if (task.id) followed.delete(task.id);
  return keep(follow(agent, task, message));
}

function keep(one: Followed): Followed {
  effect(() => {
    void one.version.value;
    const isEnded = one.connection.value === "ended";
    const { id } = one.task;
    if (!id) return;
    if (followed.get(id) !== one && isEnded) return; // another task has taken its place
    followed.set(id, one);
    const open = [...followed.values()].filter((each) => each.connection.peek() === "open");
    const old = [...open.slice(0, -MOST_OPEN), ...[...followed.values()].slice(0, -MOST)];
    for (const each of old) {
      followed.delete(each.task.id);
      each.close();
    }
  });
  return one;
}

// The login.

effect(() => {
  void login.value;
  if (!loginWanted.value) void loadAgents();
});

/** Returns the text of a failed call for people. */
export function words(error: unknown): string {
  if (error instanceof ApiError && error.status === 403) return `You may not do that: ${error.message}`;
  return (error as Error).message || String(error);
}

// Preferences.

export type Theme = "" | "light" | "dark";
export const theme = signal<Theme>(recall("theme") as Theme);
effect(() => {
  remember("theme", theme.value);
  if (theme.value) document.documentElement.dataset["theme"] = theme.value;
  else delete document.documentElement.dataset["theme"];
});

// Short messages that disappear.

export type Toast = { id: number; text: string; tone: "info" | "error" };
export const toasts = signal<Toast[]>([]);
let count = 0;

/** Shows a message for some seconds. The returned function removes it at once. */
export function toast(text: string, tone: Toast["tone"] = "info", seconds = tone === "error" ? 8 : 4): () => void {
  const one = { id: ++count, text, tone };
  toasts.value = [...toasts.value, one];
  const end = (): void => void (toasts.value = toasts.value.filter((each) => each !== one));
  setTimeout(end, seconds * 1000);
  return end;
}

/** Copies a text, and returns true if the browser allows it: on pages of plain HTTP only for localhost. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    toast("The browser does not let this page copy. That takes HTTPS: select the text instead.", "error");
    return false;
  }
}

export function recall(name: string): string {
  try {
    return localStorage.getItem(`everloop.${name}`) ?? "";
  } catch {
    return "";
  }
}

export function remember(name: string, value: string): void {
  try {
    localStorage.setItem(`everloop.${name}`, value);
  } catch {
    // storage is blocked: it is kept as long as the page
  }
}
