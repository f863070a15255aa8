// The composer sends the right content, at the right time, once.

import { render } from "preact";
import { act } from "preact/test-utils";
import { beforeEach, expect, it, vi } from "vitest";
import type { Part } from "../src/api/a2a";
import { Composer } from "../src/parts/composer";

let sent: Part[][];
beforeEach(() => {
  sent = [];
  render(null, document.body);
});

const show = (waits = false, closed = false) =>
  act(() => render(<Composer placeholder="Write" waits={waits} closed={closed} onSend={(parts) => sent.push(parts)} />, document.body));
const area = () => document.querySelector("textarea")!;
const enter = () => act(() => void area().dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true })));

function write(text: string): Promise<void> {
  area().value = text;
  return act(() => void area().dispatchEvent(new Event("input", { bubbles: true })));
}

async function attach(file: File): Promise<void> {
  const chooser = document.querySelector<HTMLInputElement>("input[type=file]")!;
  Object.defineProperty(chooser, "files", { value: [file] });
  await act(() => void chooser.dispatchEvent(new Event("change", { bubbles: true })));
}

it("keeps what is sent before the agents are known, says so, and sends it then", async () => {
  await show(true);
  await write("hello");
  await enter();
  expect(document.querySelector("[role=status]")!.textContent).toContain("as soon as");
  expect(sent).toEqual([]);
  await show(false);
  await vi.waitFor(() => expect(sent).toHaveLength(1));
  expect(area().value).toBe("");
});

it("does not send what is written on after that", async () => {
  await show(true);
  await write("hello");
  await enter();
  await write("hello, and");
  await show(false);
  expect(sent).toEqual([]);
  expect(area().value).toBe("hello, and");
});

it("sends once, however often Enter is pressed while a file is read", async () => {
  await show();
  await attach(new File(["content"], "a.txt"));
  await enter();
  await enter();
  await vi.waitFor(() => expect(sent).toHaveLength(1));
  expect(sent[0]).toHaveLength(1);
});

it("loses nothing where a file cannot be read", async () => {
  const gone = new File(["content"], "gone.txt");
  gone.arrayBuffer = () => Promise.reject(new Error("it is gone"));
  await show();
  await write("look");
  await attach(gone);
  await enter();
  await vi.waitFor(() => expect(area().value).toBe("look"));
  expect(document.querySelector(".files")!.textContent).toContain("gone.txt");
  expect(sent).toEqual([]);
});

it("sends nothing that was being written when a question came, and keeps it", async () => {
  await show();
  await write("yes");
  await show(false, true);
  await enter();
  expect(sent).toEqual([]);
  expect(area().value).toBe("yes");
});
