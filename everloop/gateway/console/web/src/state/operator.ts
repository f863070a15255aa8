// Data of operators. The gateway's answer shows whether the user is one.

import { effect, signal } from "@preact/signals";
import { login, loginWanted } from "../api/auth";
import { ApiError, ask, at, EXTENSION } from "../api/root";
import type { OperatorAction, OperatorTask, System } from "../api/types";

const PAUSE = 10_000;

export const system = signal<System | null>(null);
export const systemProblem = signal("");
/** Null until it is known. */
export const isOperator = signal<boolean | null>(null);
/** Stuck tasks of all owners. */
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
      isOperator.value = false; // not an operator, or a gateway without this address
      return;
    }
  }
  timer = window.setTimeout(() => void loadSystem(), document.hidden ? PAUSE * 5 : PAUSE);
}

effect(() => {
  void login.value;
  if (!loginWanted.value) void loadSystem();
});

/** Applies a remedy to a task, and returns the result in words. */
export async function help(task: string, action: OperatorAction, body: object): Promise<string> {
  const { done } = await ask<{ done: string }>("POST", `${at`/operator/tasks/${task}`}/${action}`, body);
  void loadSystem();
  return done.replaceAll("`", ""); // names of signals and tools are quoted in it, as in Markdown
}

/** Returns the address of a task's run in Temporal's UI, empty if unknown. */
export function temporalLink(task: string): string {
  const ui = system.value?.temporalUi;
  if (!ui || !/^https?:/i.test(ui)) return "";
  const place = ui.replace(/\/+$/, "");
  const named = place.includes("/namespaces/") ? place : `${place}/namespaces/default`;
  return `${named}/workflows/${encodeURIComponent(task)}`;
}
