// What the extension answers (docs/protocol/extension.md), and the catalogue of agents.

export type Agent = { id: string; name: string; description: string; url: string; card: string };
export type Usage = { inputTokens: number; outputTokens: number; cost: number | null };
export type Page<Name extends string, Item> = Record<Name, Item[]> & { nextPageToken: string };
export type Context = {
  id: string;
  title: string;
  createdAt: string;
  updatedAt: string;
  tasks: number;
  openTasks: number;
  usage: Usage;
  retentionDays: number | null;
};
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
/** What a task asks, as the data of its status describes it. */
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
