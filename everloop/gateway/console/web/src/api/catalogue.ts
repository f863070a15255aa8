// The agents of the server: those that a gateway of Everloop lists, or the one of another A2A server's card.

import { signal } from "@preact/signals";
import { ApiError, ask, ROOT } from "./root";
import type { Agent } from "./types";

const HTTP = "https://everloop.dev/extensions/http/v1";
const CARD = `${ROOT}.well-known/agent-card.json`;

/** True if the server has Everloop's HTTP extension, which some pages need. Null until that is known. */
export const hasExtension = signal<boolean | null>(null);

type Card = { name?: string; description?: string; capabilities?: { extensions?: { uri: string }[] } };

let known: Promise<Agent[]> | null = null;

/** Fetches the list of agents. */
export function readAgents(): Promise<Agent[]> {
  const reading = read();
  known = reading;
  reading.catch(() => known === reading && (known = null));
  return reading;
}

/** Returns the address of an agent's card. */
export async function cardOf(agent: string): Promise<string> {
  const found = (await (known ?? readAgents())).find((each) => each.id === agent);
  if (!found) throw new ApiError(404, `There is no agent “${agent}” here.`);
  return found.card;
}

async function read(): Promise<Agent[]> {
  const listed = await ask<unknown>("GET", `${ROOT}agents`).catch((error: unknown) => {
    if (!(error instanceof ApiError) || ![404, 405].includes(error.status)) throw error;
  });
  if (Array.isArray(listed)) {
    hasExtension.value = true;
    return listed as Agent[];
  }
  const { name, description, capabilities } = await ask<Card>("GET", CARD);
  hasExtension.value = capabilities?.extensions?.some((each) => each.uri === HTTP) ?? false;
  return [{ id: name || "agent", name: name || "Agent", description: description ?? "", url: ROOT, card: CARD }];
}
