// The limits of followed tasks.

import { signal } from "@preact/signals";
import { expect, it, vi } from "vitest";
import { followTask } from "../src/state/store";
import type { Connection, Followed } from "../src/state/stream";

vi.mock("../src/state/stream", () => ({
  follow: (agent: string, task: Followed["task"]): Followed => {
    const connection = signal<Connection>("connecting");
    return { agent, task, version: signal(0), connection, error: signal(""), close: () => (connection.value = "ended") };
  },
}));

it("of the streams of tasks the newest stay open: browsers have six connections to a host", () => {
  const all = Array.from({ length: 9 }, (_, n) => followTask("a", `stream ${n}`));
  for (const each of all) each.connection.value = "open";
  expect(all.map((each) => each.connection.value)).toEqual([...Array(7).fill("ended"), "open", "open"]);
  followTask("a", "stream 7");
  followTask("a", "stream 9").connection.value = "open";
  expect([all[7], all[8]].map((each) => each!.connection.value)).toEqual(["open", "ended"]);
});

it("a chat of twenty turns is read whole", () => {
  const turns = Array.from({ length: 20 }, (_, n) => followTask("a", `turn ${n}`));
  expect(new Set(turns.map((each) => each.connection.value))).toEqual(new Set(["connecting"]));
});

it("what was closed does not come back in place of what follows the same task since", () => {
  const old = followTask("a", "one");
  old.close();
  const next = followTask("a", "one");
  old.version.value++;
  expect(next).not.toBe(old);
  expect(followTask("a", "one")).toBe(next);
});
