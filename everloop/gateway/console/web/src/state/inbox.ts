// The questions that wait for the user, over all agents: refreshed regularly, and after each answer.

import { effect, signal } from "@preact/signals";
import { loginWanted } from "../api/auth";
import { agentClient, dataPart, userMessage } from "../api/a2a";
import { ApiError, ask, at, EXTENSION } from "../api/root";
import type { Question } from "../api/types";
import type { Given } from "../parts/question";
import { printable } from "./printable";
import { recall, remember } from "./store";

export type Waiting = {
  taskId: string;
  contextId: string;
  questionId: string;
  agent: string;
  tool: string;
  arguments: string;
  text: string;
  kind: string;
  purpose: string;
  options: string[];
  answerBy: "message" | "approval";
  answerSchema: Question["json_schema"];
  scope: string;
  askedAt: string;
};

const PAUSE = 5_000;

export const inbox = signal<Waiting[] | null>(null);
export const inboxProblem = signal("");
/** True if the browser shows notifications of new questions. */
export const notifies = signal(recall("notifies") === "yes");
effect(() => remember("notifies", notifies.value ? "yes" : ""));

let timer = 0;

export async function loadInbox(): Promise<void> {
  clearTimeout(timer);
  if (!loginWanted.value) {
    try {
      const { questions } = await ask<{ questions: Waiting[] }>("GET", `${EXTENSION}/questions?pageSize=100`);
      tell(questions);
      inbox.value = questions;
      inboxProblem.value = "";
    } catch (error) {
      inboxProblem.value = (error as Error).message;
      if (error instanceof ApiError && error.status === 404) return; // a server without the extension
    }
  }
  timer = window.setTimeout(() => void loadInbox(), document.hidden ? PAUSE * 3 : PAUSE);
}

/** Shows a notification for each new question. */
function tell(questions: Waiting[]): void {
  if (!notifies.value || !inbox.value || typeof Notification === "undefined" || Notification.permission !== "granted") return;
  const known = new Set(inbox.value.map(keyOf));
  for (const each of questions)
    if (!known.has(keyOf(each))) new Notification("Everloop waits for you", { body: printable(each.text.slice(0, 200), true), tag: keyOf(each) });
}

export function keyOf(waiting: Waiting): string {
  return `${waiting.taskId} ${waiting.questionId}`;
}

/** Answers a question at its address, or by a message to its task. */
export async function answerWaiting(waiting: Waiting, given: Given): Promise<void> {
  if (waiting.answerBy === "approval") await ask("POST", at`/approvals/${waiting.taskId}/${waiting.questionId}`, given);
  else {
    const client = await agentClient(waiting.agent);
    const value = "secret" in given ? { question: waiting.questionId, answer: given.secret } : "answer" in given ? given.answer : given;
    await client.sendMessage({
      tenant: "",
      message: userMessage([dataPart(value)], { contextId: waiting.contextId, taskId: waiting.taskId, metadata: { question: waiting.questionId } }),
      configuration: { acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately: true },
      metadata: undefined,
    });
  }
  inbox.value = (inbox.value ?? []).filter((each) => keyOf(each) !== keyOf(waiting));
  void loadInbox();
}
