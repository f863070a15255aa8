// What operators ask for. Whether the user is one, the gateway says: by answering.

import { effect, signal } from "@preact/signals";
import { login, loginWanted } from "../api/auth";
import { ApiError, ask, at, EXTENSION } from "../api/root";
import type { OperatorAction, OperatorTask, System } from "../api/types";

const PAUSE = 10_000;

export const system = signal<System | null>(null);
export const systemProblem = signal("");
/** Null: not known yet. */
export const isOperator = signal<boolean | null>(null);
/** Tasks of all owners that do not get on by themselves. */
export const stuck = signal<OperatorTask[]>([]);

let timer = 0;

export async function loadSystem(): Promise<void> {
  clearTimeout(timer);
  try {
    system.value = await ask<System>("GET", `${EXTENSION}/operator/system`);
    const found = await ask<{ tasks: OperatorTask[] }>("GET", `${EXTENSION}/operator/tasks?stuck=true&pageSize=100`);
    stuck.value = found.tasks;
    isOperator.value = true;
    systemProblem.value = "";
  } catch (error) {
    systemProblem.value = (error as Error).message;
    if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) {
      isOperator.value = false; // no operator, or a gateway without this address
      return;
    }
  }
  timer = window.setTimeout(() => void loadSystem(), document.hidden ? PAUSE * 5 : PAUSE);
}

effect(() => {
  void login.value;
  if (!loginWanted.value) void loadSystem();
});

/** Does what helps a task, and returns what was done in words. */
export async function help(task: string, action: OperatorAction, body: object): Promise<string> {
  const { done } = await ask<{ done: string }>("POST", `${at`/operator/tasks/${task}`}/${action}`, body);
  void loadSystem();
  return done.replaceAll("`", ""); // names of signals and tools stand in them, as in Markdown
}

/** Returns where Temporal's UI shows the run of a task; empty: nobody knows. */
export function temporalLink(task: string): string {
  const ui = system.value?.temporalUi;
  if (!ui || !/^https?:/i.test(ui)) return "";
  const place = ui.replace(/\/+$/, "");
  const named = place.includes("/namespaces/") ? place : `${place}/namespaces/default`;
  return `${named}/workflows/${encodeURIComponent(task)}`;
}
