// A task as one file: its A2A data, events, transcript, and usage.

import { Task } from "@a2a-js/sdk";
import { agentClient } from "../api/a2a";
import { ask, at } from "../api/root";
import { TaskEvents } from "../state/events";
import { toast, words } from "../state/store";
import { saveJson } from "./content/file";

export async function exportTask(agent: string, id: string): Promise<void> {
  try {
    const client = await agentClient(agent);
    const task = await client.getTask({ tenant: "", id, historyLength: undefined });
    const events = new TaskEvents(id);
    await events.load();
    const [transcript, usage] = await Promise.all([optional(at`/tasks/${id}/transcript`), optional(at`/tasks/${id}/usage`)]);
    const whole = { task: Task.toJSON(task), events: events.events.value, transcript, usage };
    saveJson(whole, `task-${id.replace(/\W+/g, "-")}.json`);
  } catch (error) {
    toast(words(error), "error");
  }
}

/** Returns null for data that the gateway does not have, or not now. */
async function optional(url: string): Promise<unknown> {
  try {
    return await ask<unknown>("GET", url);
  } catch {
    return null;
  }
}
