// Text of any length, and JSON as a tree. The browser lays out only visible parts.

import { useMemo, useState } from "preact/hooks";
import type { Json as JsonValue } from "../../api/types";
import { printable } from "../../state/printable";

const PIECE = 16_000;
const LINE = 19;
const COLUMNS = 100;

/** Cuts a text at ends of lines, so that the pieces look like the whole. */
export function pieces(text: string, size = PIECE): string[] {
  const found: string[] = [];
  for (let at = 0; at < text.length; ) {
    let end = Math.min(at + size, text.length);
    if (end < text.length) {
      const line = text.lastIndexOf("\n", end);
      if (line > at) end = line + 1;
      else if (/[\ud800-\udbff]/.test(text[end - 1]!)) end++; // keep surrogate pairs together
    }
    found.push(text.slice(at, end));
    at = end;
  }
  return found;
}

/** Shows a text as it is. */
export function LongText({ text, label }: { text: string; label?: string }) {
  const known = useMemo(() => pieces(text), [text]);
  return (
    <div class="json long" tabIndex={0} role="group" aria-label={label ?? "text"}>
      {known.map((piece, n) => (
        <pre key={n} class="piece" style={{ containIntrinsicSize: `auto ${heightOf(piece)}px` }}>
          {/* the line break before the next piece is the element's own */}
          {n < known.length - 1 && piece.endsWith("\n") ? piece.slice(0, -1) : piece}
        </pre>
      ))}
    </div>
  );
}

/** Estimates the height of a text, in pixels. */
export function heightOf(text: string): number {
  let lines = 0;
  for (let at = -1, next = 0; next !== -1; at = next) {
    next = text.indexOf("\n", at + 1);
    lines += Math.max(1, Math.ceil(((next === -1 ? text.length : next) - at) / COLUMNS));
  }
  return lines * LINE;
}

const BLANK_LINES = /\n[ \t]*(\n[ \t]*)+/g;

/**
 * Shows the basis of a decision: all of it, including invisible characters, with each text of JSON isolated from
 * the text beside it, which words from right to left would reorder.
 */
export function Exact({ text, class: name = "exact" }: { text: string; class?: string }) {
  const pieces = printable(text.replace(BLANK_LINES, "\n\n"), true).split(/("(?:[^"\\\n]|\\.)*")/);
  return (
    <div class={name} dir="auto">
      {pieces.map((piece, n) => (n % 2 ? <bdi key={n}>{piece}</bdi> : piece))}
    </div>
  );
}

const SMALL = 3_000;
/** Members of an object or array that are shown at once. */
const MOST = 100;

/** Shows the output of a program: small JSON as text (unless `isTree`), large JSON as a tree, other text unchanged. */
export function Json({ text, isTree = false }: { text: string; isTree?: boolean }) {
  const value = useMemo(() => parsed(text), [text]);
  if (value === undefined) return <LongText text={text} />;
  const pretty = isTree || text.length > SMALL ? "" : printable(JSON.stringify(value, null, 2), true);
  if (typeof value !== "object" || value === null || (pretty && pretty.length < SMALL)) return <LongText text={pretty || printable(text, true)} />;
  return <JsonTree value={value} />;
}

function parsed(text: string): JsonValue | undefined {
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    return undefined; // not JSON: shown as text
  }
}

export function JsonTree({ value }: { value: JsonValue }) {
  return (
    <div class="json tree" tabIndex={0} role="group" aria-label="JSON">
      <Node name="" value={value} depth={0} />
    </div>
  );
}

function Node({ name, value, depth }: { name: string; value: JsonValue; depth: number }) {
  const [open, setOpen] = useState(depth < 2);
  const [most, setMost] = useState(MOST);
  const label = name && <span class="tree-name">{name}: </span>;
  if (typeof value !== "object" || value === null)
    return (
      <div class="tree-leaf">
        {label}
        <Leaf value={value} />
      </div>
    );
  const isList = Array.isArray(value);
  const members: [string, JsonValue][] = isList ? value.map((each, n) => [String(n), each]) : Object.entries(value);
  const [before, after] = isList ? "[]" : "{}";
  if (!members.length)
    return (
      <div class="tree-leaf">
        {label}
        {before}
        {after}
      </div>
    );
  return (
    <div class="tree-node">
      <button type="button" class="tree-head" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span class="tree-sign">{open ? "▾" : "▸"}</span> {label}
        {before}
        {!open && (
          <>
            <span class="quiet"> {members.length} </span>
            {after}
          </>
        )}
      </button>
      {open && (
        <div class="tree-inner">
          {members.slice(0, most).map(([key, each]) => (
            <Node key={key} name={isList ? key : printable(JSON.stringify(key))} value={each} depth={depth + 1} />
          ))}
          {members.length > most && (
            <button type="button" class="plain" onClick={() => setMost(most + 10 * MOST)}>
              {members.length - most} more
            </button>
          )}
          {after}
        </div>
      )}
    </div>
  );
}

const LONG = 300;

function Leaf({ value }: { value: null | boolean | number | string }) {
  const [whole, setWhole] = useState(false);
  const text = printable(JSON.stringify(value));
  if (text.length <= LONG || whole) return <span class={`tree-${value === null ? "null" : typeof value}`}>{text}</span>;
  return (
    <>
      <span class="tree-string">{text.slice(0, LONG)}…</span>{" "}
      <button type="button" class="plain" onClick={() => setWhole(true)}>
        all {text.length} characters
      </button>
    </>
  );
}
