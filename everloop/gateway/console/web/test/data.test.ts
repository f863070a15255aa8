// Rows, events and deletions on pages, and browsers with restrictions.

import { afterEach, describe, expect, it, vi } from "vitest";
import { userMessage } from "../src/api/a2a";
import { kindOf } from "../src/parts/content/file";
import { RowReader } from "../src/parts/content/rows";
import { counted } from "../src/state/deletion";
import { bars, TaskEvents, type TaskEvent } from "../src/state/events";
import { callsOf } from "../src/state/fold";
import { runOf } from "../src/state/past";
import { copy, toasts } from "../src/state/store";

describe("rows", () => {
  const text = Array.from({ length: 500 }, (_, n) => JSON.stringify({ number: n, word: "ä".repeat(n % 5) })).join("\n") + "\n";
  const bytes = new TextEncoder().encode(text);

  it("are read on as they are looked at, wherever the blocks are cut", async () => {
    const asked: number[] = [];
    const reader = new RowReader(async (from) => {
      asked.push(from);
      return { bytes: bytes.slice(from, from + 1001), isLast: from + 1001 >= bytes.length };
    });
    await reader.until(50);
    expect(asked.length).toBeLessThan(4);
    await reader.until(10_000);
    expect(reader.rows.map((row) => row["number"])).toEqual([...Array(500).keys()]);
    expect(reader.rows[499]!["word"]).toBe("ääää");
    expect(reader.isAtEnd).toBe(true);
  });

  it("of a server that sends all at once are there at once", async () => {
    const reader = new RowReader(async () => ({ bytes, isLast: true }));
    await reader.until(1);
    expect(reader.rows).toHaveLength(500);
  });
});

describe("the timeline", () => {
  const event = (type: string, seconds: number, data: TaskEvent["data"], iteration = 1): TaskEvent => ({
    id: `${type}${seconds}`,
    at: `2026-01-01T00:00:${String(seconds).padStart(2, "0")}.000Z`,
    type,
    iteration,
    data,
  });

  it("has a bar for each call, with what it cost, and for each time that people were waited for", () => {
    const found = bars(
      [
        event("modelCall", 1, { model: "m" }),
        event("modelReply", 3, { model: "m", attempts: 2, usage: { inputTokens: 10, outputTokens: 2, cost: 0.5 } }),
        event("toolCall", 3, { callId: "c", name: "pay" }),
        event("status", 4, { state: "input-required" }),
        event("status", 9, { state: "working" }),
        event("toolResult", 10, { callId: "c", name: "pay", isError: true, error: "no money" }),
      ],
      0,
    );
    expect(found.map(({ kind, name, from, to, attempts, failed, cost, tokens }) => [kind, name, (to - from) / 1000, attempts, failed, cost, tokens])).toEqual([
      ["model", "m", 2, 2, false, 0.5, 12],
      ["tool", "pay", 7, 1, true, null, 0],
      ["wait", "waits for people", 5, 1, false, null, 0],
    ]);
  });

  it("says of what failed that it did, and why; a model that did not answer has the name by which it was asked", () => {
    const [model, tool] = bars(
      [
        event("modelCall", 1, { model: "m" }),
        event("modelReply", 3, { error: "the key is wrong", reason: "ModelRefused" }),
        event("toolCall", 3, { callId: "c", name: "pay" }),
        event("toolResult", 10, { callId: "c", name: "pay", isError: true, result: "no money\nat all" }),
      ],
      0,
    );
    expect([model!.name, model!.failed, model!.why]).toEqual(["m", true, "the key is wrong"]);
    expect([tool!.name, tool!.failed, tool!.why]).toEqual(["pay", true, "no money at all"]);
  });

  it("shows what runs until now", () => {
    const now = Date.parse("2026-01-01T00:00:09.000Z");
    const [bar] = bars([event("toolCall", 1, { callId: "c", name: "wait" })], now);
    expect([bar!.name, bar!.to]).toEqual(["wait", now]);
  });
});

it("a call without an end runs, while its task works", () => {
  const event = (id: string, type: string, data: TaskEvent["data"]): TaskEvent => ({ id, at: "2026-01-01T00:00:00Z", type, iteration: 1, data });
  const events = [event("1", "status", { state: "working" }), event("2", "toolCall", { callId: "c", name: "look", arguments: "{}" })];
  expect(callsOf(runOf("writer", "t/1", events))[0]!.state).toBe("running");
  expect(callsOf(runOf("writer", "t/1", [...events, event("3", "status", { state: "canceled" })]))[0]!.state).toBe("asked");
});

it("what a sub-agent did is made of its events", () => {
  const event = (id: string, type: string, data: TaskEvent["data"]): TaskEvent => ({ id, at: "2026-01-01T00:00:00Z", type, iteration: 1, data });
  const run = runOf("writer", "t/1", [
    event("1", "modelReply", { thought: "hm", text: "I look.", toolCalls: [] }),
    event("2", "toolCall", { callId: "c", name: "look", arguments: "{}" }),
    event("3", "toolResult", { callId: "c", name: "look", result: "seen", outcome: "ok", startedAt: "2026-01-01T00:00:01Z", endedAt: "2026-01-01T00:00:03Z" }),
    event("4", "toolResult", { callId: "d", name: "lost", isError: true, error: "gone" }),
    event("5", "modelReply", { text: "It is there." }),
    event("6", "status", { state: "completed" }),
  ]);
  expect(run.steps.map((step) => (step.kind === "call" ? [step.call.name, step.call.state, step.call.result] : [step.kind]))).toEqual([
    ["thought"],
    ["text"],
    ["look", "ok", "seen"],
    ["lost", "failed", "gone"],
    ["text"],
  ]);
  expect([run.task, run.state]).toEqual(["t/1", "completed"]);
});

it("only files that cannot harm are shown", () => {
  expect(["image/svg+xml", "image/png", "text/csv", "application/ld+json", "text/html; charset=utf-8"].map(kindOf)).toEqual([
    "image",
    "image",
    "text",
    "json",
    "html",
  ]);
  expect(["application/octet-stream", "application/x-msdownload", "image/x-icon"].map(kindOf)).toEqual([null, null, null]);
});

it("a deletion says what went, without what is internal", () => {
  expect(counted({ tasks: 1, artifacts: 2, keys: 40, blobs: 3 })).toBe(", with 1 task and 2 artifacts");
  expect(counted({ keys: 4 })).toBe("");
});

describe("events of a task", () => {
  const event = (id: string): TaskEvent => ({ id, at: "2026-01-01T00:00:00Z", type: "status", iteration: 1, data: {} });
  const refusal = { error: { message: "the run of this event is no longer there" } };

  it("are read from the beginning once an operator has reset it", async () => {
    const events = new TaskEvents("t");
    const served = [event("before.1"), event("before.2")];
    vi.stubGlobal("fetch", async (url: string) => {
      const after = new URL(url, "http://gateway").searchParams.get("after");
      const place = served.findIndex((each) => each.id === after);
      if (after && place < 0) return Response.json(refusal, { status: 400 });
      return Response.json({ events: served.slice(place + 1), nextPageToken: "" });
    });
    await events.load();
    served.splice(0, 2, event("again.1"), event("again.2"), event("again.3"));
    await events.load();
    vi.unstubAllGlobals();

    expect(events.error.value).toBe("");
    expect(events.events.value.map((each) => each.id)).toEqual(["again.1", "again.2", "again.3"]);
  });
});

describe("a page of plain HTTP, but on localhost", () => {
  const { crypto } = globalThis;
  afterEach(() => void vi.unstubAllGlobals());

  it("sends messages, each with an id of its own", () => {
    vi.stubGlobal("crypto", { getRandomValues: (array: Uint8Array<ArrayBuffer>) => crypto.getRandomValues(array) });
    const ids = new Set(Array.from({ length: 100 }, () => userMessage([]).messageId));
    expect(ids.size).toBe(100);
  });

  it("says that it cannot copy", async () => {
    vi.stubGlobal("navigator", {});
    expect(await copy("words")).toBe(false);
    expect(toasts.value.at(-1)?.text).toContain("HTTPS");
  });
});
