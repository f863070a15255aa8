// Decisions show all of their basis, and ignore presses that were meant for something else.

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Question } from "../src/api/types";
import { type Given, QuestionForm } from "../src/parts/question";

const LONG = "x".repeat(5_000);
const CALL = { to: "alice\u202e\u200b", note: LONG, deep: { er: { and: { deeper: ["end"] } } } };
const APPROVAL: Question = {
  id: "q",
  kind: "confirmation",
  purpose: "approval",
  tool: "pay",
  arguments: JSON.stringify(CALL),
  text: `Approve the call pay?\nIt is dear.\n${JSON.stringify(CALL, null, 2)}`,
};

let given: Given[];
beforeEach(() => {
  given = [];
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "performance"] });
  render(null, document.body);
});
afterEach(() => void vi.useRealTimers());

const show = (question: Question) =>
  act(() => render(<QuestionForm question={question} onGiven={async (one) => void given.push(one)} />, document.body));
const later = (milliseconds: number) => act(() => void vi.advanceTimersByTime(milliseconds));
const button = (name: string) => [...document.querySelectorAll("button")].find((each) => each.textContent === name)!;
const press = (name: string) => act(async () => button(name).click());

describe("a question", () => {
  it("of an approval is shown whole: why, and all arguments, with what cannot be seen in them", async () => {
    await show(APPROVAL);
    const text = document.querySelector(".question")!.textContent!;
    expect(text).toContain("It is dear.");
    expect(text).toContain('"to": "alice\\u202e\\u200b"');
    for (const piece of [LONG, '"end"']) expect(text).toContain(piece);
    expect(document.querySelector(".question .tree, .question details")).toBe(null);
  });

  it("of a tool shows what it was called with; numbers as they are, not as JavaScript rounds them", async () => {
    await show({ ...APPROVAL, purpose: "input", text: "Sure?", arguments: '{"amount": 9007199254740993, "to": "\u200bBob"}' });
    const text = document.querySelector(".question")!.textContent!;
    expect(text).toContain('"amount": 9007199254740993');
    expect(text).toContain("\\u200bBob");
  });

  it("sets texts apart that run from right to left, so that they move nothing beside them", async () => {
    await show({ ...APPROVAL, text: 'Approve?\n{\n  "א": "ב"\n}' });
    expect([...document.querySelectorAll(".question bdi")].map((each) => each.textContent)).toEqual(['"א"', '"ב"']);
  });

  it("has choices in which nothing is hidden", async () => {
    await show({ id: "q", kind: "selection", text: "Which?", options: ["a\u200bb"] });
    await later(1000);
    await press("a\\u200bb");
    expect(given).toEqual([{ answer: "a\u200bb" }]);
  });
});

describe("a press", () => {
  it("within the first half second decides nothing", async () => {
    await show(APPROVAL);
    await later(400);
    await press("Approve");
    expect(given).toEqual([]);
    expect(document.querySelector("[role=alert]")!.textContent).toContain("press again");
    await later(400);
    await press("Reject");
    expect(given).toEqual([{ approved: false, note: "" }]);
  });

  it("right after the question has changed decides nothing, and what was written for the other one is gone", async () => {
    await show(APPROVAL);
    await later(1000);
    const note = document.querySelector("input")!;
    note.value = "for Alice";
    await act(() => void note.dispatchEvent(new Event("input", { bubbles: true })));
    await show({ ...APPROVAL, text: "Approve the call pay?\n{}" });
    await press("Approve");
    expect(given).toEqual([]);
    await later(1000);
    await press("Approve");
    expect(given).toEqual([{ approved: true, note: "" }]);
  });

  it("that comes twice decides once, and on what has gone nothing", async () => {
    await show(APPROVAL);
    await later(1000);
    const approve = button("Approve");
    await act(async () => {
      approve.click();
      approve.click();
      await act(() => render(null, document.body));
      approve.click();
    });
    expect(given).toEqual([{ approved: true, note: "" }]);
  });

  it("on a question that has moved under the pointer decides nothing", async () => {
    await show(APPROVAL);
    await later(1000);
    const where = vi.spyOn(Element.prototype, "getBoundingClientRect").mockReturnValue(new DOMRect(0, 90, 9, 9));
    await press("Approve");
    expect(given).toEqual([]);
    await later(1000);
    where.mockReturnValue(new DOMRect(0, 40, 9, 9));
    vi.stubGlobal("scrollY", 50);
    await press("Approve");
    expect(given, "scrolled").toHaveLength(1);
    where.mockRestore();
    vi.unstubAllGlobals();
  });
});
