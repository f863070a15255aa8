// A2A with the official SDK: one client for each agent, over JSON-RPC.

import { Role, type Message, type Part, type StreamResponse, type Task, TaskState } from "@a2a-js/sdk";
import { type Client, ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory } from "@a2a-js/sdk/client";
import { cardOf } from "./catalogue";
import { ApiError, authorized, here } from "./root";

export const EVENTS = "https://everloop.dev/extensions/events/v1";

export { Role, TaskState };
export type { Message, Part, StreamResponse, Task };

const clients = new Map<string, Promise<Client>>();

/** Returns the client of an agent; its card is fetched once. */
export function agentClient(agent: string): Promise<Client> {
  let client = clients.get(agent);
  if (!client) {
    client = connect(agent);
    clients.set(agent, client);
    client.catch(() => clients.delete(agent));
  }
  return client;
}

async function connect(agent: string): Promise<Client> {
  const legacyCompat = { enabled: true }; // servers of A2A 0.3
  const resolver = new DefaultAgentCardResolver({ fetchImpl: authorized as typeof fetch, legacyCompat });
  const card = await resolver.resolve(location.origin, here(await cardOf(agent)));
  // Stay on the host name of this page, even if it is not the public one.
  for (const one of card.supportedInterfaces) if (one.protocolBinding === "JSONRPC") one.url = here(one.url);
  const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory({ fetchImpl: recorded, legacyCompat })],
    preferredTransports: ["JSONRPC"],
  });
  return new ClientFactory(options).createFromAgentCard(card);
}

// Requests, with fields that the SDK requires but the console does not use.

export function textPart(value: string): Part {
  return { content: { $case: "text", value }, metadata: undefined, filename: "", mediaType: "" };
}

export function dataPart(value: unknown): Part {
  return { content: { $case: "data", value }, metadata: undefined, filename: "", mediaType: "" };
}

/** Returns an id for a message. `crypto.randomUUID` is not available on pages of plain HTTP. */
export function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function userMessage(parts: Part[], where: { contextId?: string; taskId?: string; metadata?: Message["metadata"] } = {}): Message {
  return {
    messageId: newId(),
    contextId: where.contextId ?? "",
    taskId: where.taskId ?? "",
    role: Role.ROLE_USER,
    parts,
    metadata: where.metadata,
    extensions: [],
    referenceTaskIds: [],
  };
}

/** Metadata of a message that is not an answer, even if the task has a question when it arrives. */
export const NO_ANSWER = { question: null };

type Wanted = { contextId?: string; status?: TaskState; pageSize: number; pageToken?: string; historyLength?: number };

/** Returns a page of the tasks of an agent, the most recently changed first. */
export async function listTasks(agent: string, wanted: Wanted): Promise<{ tasks: Task[]; nextPageToken: string }> {
  const none = { contextId: "", status: TaskState.TASK_STATE_UNSPECIFIED, pageToken: "", historyLength: 0 };
  try {
    return await (await agentClient(agent)).listTasks({ tenant: "", ...none, ...wanted, statusTimestampAfter: undefined });
  } catch (error) {
    if (!/method not found/i.test((error as Error).message)) throw error;
    throw new ApiError(501, "This server cannot list tasks, which A2A 0.3 has no word for. Those that you began here go on.");
  }
}

export async function cancelTask(agent: string, id: string): Promise<void> {
  await (await agentClient(agent)).cancelTask({ tenant: "", id, metadata: undefined });
}

// Ids of events, which the SDK does not expose.

const ids = new WeakMap<AbortSignal, (id: string) => void>();

/** Calls `note` with the id of each event of a stream that is opened with this signal. */
export function noteIds(signal: AbortSignal, note: (id: string) => void): void {
  ids.set(signal, note);
}

/** Fetches, and reads the ids of events if they are requested. */
const recorded = (async (input: RequestInfo | URL, init?: RequestInit) => {
  const response = await authorized(input, init);
  const note = init?.signal && ids.get(init.signal);
  const isStream = response.headers.get("Content-Type")?.startsWith("text/event-stream");
  if (!note || !isStream || !response.body) return response;
  let rest = "";
  const decoder = new TextDecoder();
  const reader = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      rest += decoder.decode(chunk, { stream: true });
      const lines = rest.split(/\r\n|\n|\r/);
      rest = lines.pop() ?? "";
      // An id may precede or follow the data of its event. It is valid once the event is complete.
      for (const line of lines) if (line.startsWith("id:")) note(line.slice(3).trim());
      if (rest.length > 4096 && !rest.startsWith("id:")) rest = rest.slice(0, 16); // a long line of data
      controller.enqueue(chunk);
    },
  });
  return new Response(response.body.pipeThrough(reader), { status: response.status, headers: response.headers });
}) as typeof fetch;
