// Answers of the extension (docs/protocol/extension.md), and the catalogue of agents.

export type Agent = { id: string; name: string; description: string; url: string; card: string };
export type Usage = { inputTokens: number; outputTokens: number; cost: number | null };
export type Page<Name extends string, Item> = Record<Name, Item[]> & { nextPageToken: string };
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
/** A question of a task, as the data of its status describes it. */
export type Question = {
  id: string;
  kind: "confirmation" | "selection" | "data" | "clarification" | "auth" | string;
  text: string;
  purpose?: string;
  options?: string[];
  json_schema?: { [key: string]: Json } | null;
  tool?: string;
  arguments?: string | Json;
  approvers?: string;
  timeout?: number | null;
};

export type Context = {
  id: string;
  title: string;
  createdAt: string;
  updatedAt: string;
  tasks: number;
  openTasks?: number;
  agents: string[];
  usage: Usage | null;
  retention: string | null;
};

/** A message of a conversation, as in a transcript, with its `agent` and `taskId`. */
export type Spoken = {
  at: string | null;
  taskId: string;
  agent: string;
  role: "user" | "assistant" | "tool" | "summary" | string;
  message?: { messageId?: string; parts?: WirePart[] };
  text?: string;
  thought?: string;
  toolCalls?: { id: string; name: string; arguments: string }[];
  callId?: string;
  name?: string;
  result?: string;
  outcome?: string;
  isError?: boolean;
  summary?: string;
  /** Set for actions of an approver or operator. */
  by?: string;
  approved?: boolean;
  note?: string;
  signal?: string;
};
/** A part in the JSON format of A2A. */
export type WirePart = { text?: string; data?: Json; raw?: string; url?: string; filename?: string; mediaType?: string };

export type StoredPart = { url: string; mediaType: string; filename: string; size: number; kind?: string; rows?: number };
export type StoredArtifact = {
  contextId: string;
  artifactId: string;
  taskId: string;
  name: string;
  description: string;
  status: string;
  createdAt: string;
  updatedAt: string;
  parts: StoredPart[];
};

export type Deletion = {
  id: string;
  of: { kind: string; id: string };
  state: "running" | "done" | "failed";
  startedAt: string;
  finishedAt: string | null;
  removed: { [kind: string]: number };
};

export type OperatorAction = "resume" | "skip" | "reset" | "cancel";
export type OperatorTask = {
  id: string;
  owner: string;
  agent: string;
  contextId: string;
  state: string;
  title: string;
  startedAt: string;
  updatedAt: string;
  waitsFor: string | null;
  iteration: number | null;
  stuck: { why: string; since: string; actions: OperatorAction[]; callId?: string | null } | null;
};

export type System = {
  versions: { [part: string]: string | null };
  queues: { name: string; kind: string; agents: string[]; workers: number; backlog: number; oldest: number | string | null }[];
  workers: { identity: string; queues: string[]; lastSeen: string; version: string | null }[];
  health: { name: string; ok: boolean; detail: string }[];
  tasks: { [state: string]: number };
  temporalUi: string | null;
};
