// A long text in pieces gives the same result as in one piece.

import { describe, expect, it, vi } from "vitest";
import { Blocks, DEEPEST, htmlOf, LONGEST_PARSE } from "../src/parts/content/markdown";
import { highlight } from "../src/parts/content/highlight";
import { pieces } from "../src/parts/content/text";

const TEXT = [
  "# Head\n\nSome *words*, and\nmore of them.\n\n",
  "- one\n- two\n\n  within two\n\n- three\n\n",
  "```python\ndef f():\n\n    return 1\n```\n\n",
  "| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n> on\n\n---\n\n1. first\n2. second\n\nThe end",
].join("");

const typesOf = (blocks: Blocks) => [...blocks.chunks, ...blocks.tail].flatMap((block) => block.tokens.map((token) => token.type));
const rawOf = (blocks: Blocks) => [...blocks.chunks, ...blocks.tail].map((block) => block.raw).join("");

/** Some 6 KB each, which took minutes, or exhausted the stack. */
const NESTED = [
  ["quotes", ">".repeat(6_000)],
  ["quotes before lines", `${"> ".repeat(1_500)}a${"> > [x]: y\n".repeat(300)}`],
  ["lists", "- ".repeat(3_000)],
  ["numbered lists before lines", `${"1. ".repeat(1_000)}a${"!\n".repeat(1_500)}`],
  ["quotes in lists", `${"- > ".repeat(1_500)}a`],
  ["emphasis", "*a **b ".repeat(450) + "c** d*".repeat(450)],
  ["links", `${"[".repeat(3_000)}a${"](b)".repeat(750)}`],
] as const;

function depthOf(html: string): number {
  let depth = 0;
  return Math.max(0, ...[...html.matchAll(/<(\/?)(?!br|hr|input)\w/g)].map(([, end]) => (depth += end ? -1 : 1)));
}

function whole(text: string): Blocks {
  const blocks = new Blocks();
  while (blocks.update(text));
  return blocks;
}

describe("Markdown", () => {

  it("has the same blocks, however it is cut while it streams", () => {
    for (const size of [1, 7, 50]) {
      const blocks = new Blocks();
      for (let at = size; at < TEXT.length + size; at += size) while (blocks.update(TEXT.slice(0, at)));
      expect(rawOf(blocks)).toBe(TEXT);
      expect(typesOf(blocks)).toEqual(typesOf(whole(TEXT)));
    }
  });

  it("of any length is read to its end, a slice at a time, and no block is lost or cut", () => {
    const text = TEXT.replaceAll("The end", "More.\n\n").repeat(3000);
    const blocks = new Blocks();
    let slices = 1;
    while (blocks.update(text)) slices++;
    expect(slices).toBeGreaterThan(1);
    expect(rawOf(blocks)).toBe(text);
    expect(blocks.chunks.every((chunk) => chunk.raw.length >= 8_000)).toBe(true);
    expect(typesOf(blocks).filter((type) => type === "code")).toHaveLength(3000);
  });

  it("with one block that is longer than a slice is read whole", () => {
    const text = `\`\`\`\n${"x = 1\n".repeat(100_000)}\`\`\`\n\nAfter it`;
    expect(typesOf(whole(text)).filter((type) => type !== "space")).toEqual(["code", "paragraph"]);
  });

  it("keeps how columns are aligned, where a list begins, and what is done", () => {
    const html = String(htmlOf(whole("| a | b |\n|---|--:|\n| 1 | 2 |\n\n3. third\n\n<!-- -->\n\n- [x] done\n- [ ] to do").tail.flatMap((block) => block.tokens)));
    for (const piece of ['<td align="right">2</td>', '<ol start="3">', "☑ done", "☐ to do"]) expect(html).toContain(piece);
    expect(html).not.toContain("<input");
  });

  it.each(NESTED)("that is nested without end is read in time, and none of it is lost: %s", (_, text) => {

    const blocks = whole(text);
    const html = String(htmlOf([...blocks.chunks, ...blocks.tail].flatMap((block) => block.tokens)));
    
    expect(rawOf(blocks)).toBe(text);
    expect(depthOf(html)).toBeLessThan(5 * DEEPEST);
  });

  it("that takes too long to parse is text from there on, and as it grows", () => {
    const clock = vi.spyOn(performance, "now");
    const blocks = whole("# Head\n\nWords.\n\n");
    let time = performance.now();
    clock.mockImplementation(() => (time += LONGEST_PARSE));
    blocks.update("# Head\n\nWords.\n\nMore, and");
    clock.mockRestore();
    blocks.update("# Head\n\nWords.\n\nMore, and *more*.");
    expect(typesOf(blocks)).toEqual(["heading", "space", "plain"]);
    expect(rawOf(blocks)).toBe("# Head\n\nWords.\n\nMore, and *more*.");
    expect(blocks.update("Anew.")).toBe(false);
    expect(typesOf(blocks)).toEqual(["paragraph"]);
  });

  it("that is written anew forgets what it was", () => {
    const blocks = whole("One thing.\n\nAnother.");
    blocks.update("All else.");
    expect(rawOf(blocks)).toBe("All else.");
  });
});

it.each([
  ["return 1", "python", 2],
  ["[a](".repeat(2_000), "markdown", 0],
  ["a".repeat(6_000), "typescript", 0],
])("code is coloured, unless it would take seconds: %.20s", (text, language, coloured) => {
  const code = document.createElement("code");
  code.textContent = text;
  highlight(code, language);
  expect(code.querySelectorAll("span")).toHaveLength(coloured);
  expect(code.textContent).toBe(text);
});

it("a long text is cut at ends of lines, and no character in two", () => {
  const text = `${"short\n".repeat(20)}${"😀".repeat(50)}`;
  const cut = pieces(text, 31);
  expect(cut.join("")).toBe(text);
  expect(cut.slice(0, 3).every((piece) => piece.endsWith("\n"))).toBe(true);
  expect(cut.some((piece) => /[\ud800-\udbff]$/.test(piece))).toBe(false);
});
