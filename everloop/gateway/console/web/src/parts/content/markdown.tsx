// Markdown of models, as safe HTML. While text streams, complete blocks are neither parsed nor drawn again.
//
// Long texts are parsed a slice at a time, and converted to HTML when they come into view.

import DOMPurify from "dompurify";
import { marked, type Token, Tokenizer, type Tokens } from "marked";
import { useEffect, useRef, useState } from "preact/hooks";
import { copy as copyText } from "../../state/store";
import { heightOf, LongText } from "./text";

/** Elements whose direction follows their text. */
const WRITTEN = new Set(["P", "H1", "H2", "H3", "H4", "H5", "H6", "UL", "OL", "BLOCKQUOTE", "TABLE"]);

/** Characters that are parsed without a pause. */
const SLICE = 200_000;
/** Complete blocks are joined up to so many characters. */
const CHUNK = 8_000;
/** A longer block is shown as text. */
const LONGEST = 64_000;
/** Deeper nesting is shown as text: each level reads all of its content again. */
export const DEEPEST = 16;
/** Time limit of a slice in milliseconds. A slice that takes longer is shown as text. */
export const LONGEST_PARSE = 2_000;

const ALLOWED = {
  USE_PROFILES: { html: true },
  FORBID_TAGS: ["style", "form", "input", "button", "textarea", "select", "iframe", "object", "embed", "img", "video", "audio"],
  FORBID_ATTR: ["style", "class", "id", "name"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
  // All attribute values have to be such an address, except for these.
  ADD_URI_SAFE_ATTR: ["align", "start", "data-language"],
  RETURN_TRUSTED_TYPE: true,
};

marked.use({
  gfm: true,
  async: false,
  // HTML of a model is shown as text, and a to-do list has no input fields.
  renderer: { html: ({ text }) => escaped(text), checkbox: ({ checked }) => (checked ? "☑ " : "☐ ") },
});

/** Limits the nesting, which would take too much time and stack. */
class BoundedTokenizer extends Tokenizer {
  private depth = 0;
  private readonly until = performance.now() + LONGEST_PARSE;

  // These two are tried first at each position.
  override space(text: string) {
    return this.inTime() && super.space(text);
  }
  override escape(text: string) {
    return this.inTime() && super.escape(text);
  }
  override blockquote(text: string) {
    return this.within(() => super.blockquote(text));
  }
  override list(text: string) {
    return this.within(() => super.list(text));
  }
  override emStrong(text: string, masked: string, before?: string) {
    return this.within(() => super.emStrong(text, masked, before));
  }
  override del(text: string, masked: string, before?: string) {
    return this.within(() => super.del(text, masked, before));
  }
  override link(text: string) {
    return this.within(() => super.link(text));
  }
  override reflink(text: string, links: Record<string, Pick<Tokens.Link | Tokens.Image, "href" | "title">>) {
    return this.within(() => super.reflink(text, links));
  }

  private within<T>(read: () => T): T | undefined {
    if (this.depth >= DEEPEST) return undefined;
    this.depth++;
    try {
      return read();
    } finally {
      this.depth--;
    }
  }

  private inTime(): true {
    if (performance.now() > this.until) throw new Error("it takes too long to parse");
    return true;
  }
}

/** Parses a text. Null: it takes too long. */
function parsed(text: string): Token[] | null {
  try {
    return marked.lexer(text, { ...marked.defaults, tokenizer: new BoundedTokenizer() });
  } catch {
    return null;
  }
}

/** Returns safe HTML, which a browser accepts under Trusted Types. */
export function htmlOf(tokens: Token[]): string {
  return DOMPurify.sanitize(marked.parser(tokens), ALLOWED) as unknown as string;
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

// The language of code is the only class that is kept, for its highlighting.
DOMPurify.addHook("beforeSanitizeAttributes", (node) => {
  const language = node.tagName === "CODE" && /^language-([\w+#-]{1,30})$/.exec(node.getAttribute("class") ?? "")?.[1];
  if (language) node.setAttribute("data-language", language);
});
DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (WRITTEN.has(node.tagName) && !node.parentElement?.closest("blockquote, ul, ol")) node.setAttribute("dir", "auto");
  if (node.tagName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
});

/** A piece of a text: the tokens of one or more blocks, in the order of the text. */
export type Block = { raw: string; tokens: Token[] };

/** The parsed part of a text: chunks of complete blocks, and the blocks behind them, the last of which may grow. */
export class Blocks {
  chunks: Block[] = [];
  tail: Block[] = [];
  /** Characters in the chunks. */
  private length = 0;
  private text = "";
  /** True if there is unparsed text behind the tail. */
  private isCut = false;
  /** True if the text behind the blocks takes too long to parse. It is shown as one last block of text. */
  private isPlain = false;

  /** Updates the text, which usually only grows at its end. Returns true if there is more to parse. */
  update(text: string): boolean {
    if (!text.startsWith(this.text)) {
      this.chunks = [];
      this.tail = [];
      this.length = 0;
      this.isCut = this.isPlain = false;
    }
    const kept = this.isCut ? this.tail : this.tail.slice(0, this.lastBlock());
    const at = this.length + kept.reduce((sum, block) => sum + block.raw.length, 0);
    let size = SLICE;
    let end = Math.min(at + size, text.length);
    let tokens = this.parse(text.slice(at, end));
    // The last block of a slice may be incomplete. If the slice has only one block, a longer slice is needed.
    while (end < text.length && tokens.length < 2 && !this.isPlain) {
      size *= 2;
      end = Math.min(at + size, text.length);
      tokens = this.parse(text.slice(at, end));
    }
    if (this.isPlain) {
      end = text.length;
      tokens = [{ type: "plain", raw: text.slice(at) }];
    }
    this.isCut = end < text.length;
    if (this.isCut) tokens = tokens.slice(0, -1);
    this.tail = [...kept, ...tokens.map((token) => ({ raw: token.raw, tokens: [token] }))];
    const parsed = at + tokens.reduce((sum, token) => sum + token.raw.length, 0);
    this.text = text.slice(0, parsed);
    this.gather();
    return this.isCut;
  }

  private parse(text: string): Token[] {
    const tokens = this.isPlain ? null : parsed(text);
    this.isPlain = !tokens;
    return tokens ?? [];
  }

  /** Returns the start of the block that may grow: blank lines behind it may turn out to belong to it. */
  private lastBlock(): number {
    let n = this.tail.length - 1;
    while (n > 0 && this.tail[n]!.tokens[0]?.type === "space") n--;
    return Math.max(0, n);
  }

  /** Joins complete blocks, except for the last ones. */
  private gather(): void {
    let size = 0;
    let first = 0;
    const whole = this.isCut ? this.tail.length : this.lastBlock();
    for (let n = 0; n < whole; n++) {
      size += this.tail[n]!.raw.length;
      if (size < CHUNK) continue;
      const blocks = this.tail.slice(first, n + 1);
      this.chunks.push({ raw: blocks.map((block) => block.raw).join(""), tokens: blocks.flatMap((block) => block.tokens) });
      this.length += size;
      first = n + 1;
      size = 0;
    }
    this.tail = this.tail.slice(first);
  }
}

/** Shows Markdown. Images are not fetched: a request would reveal the reader to the author of the address. */
export function Markdown({ text, done = true }: { text: string; done?: boolean }) {
  const known = useRef(new Blocks());
  const shown = useRef("");
  const more = useRef(false);
  const cost = useRef(0);
  const last = useRef(0);
  const [, redraw] = useState(0);
  // A text that takes long to parse is parsed less often while it grows.
  const isDue = done || more.current || performance.now() - last.current > cost.current * 8;
  if ((text !== shown.current || more.current) && isDue) {
    last.current = performance.now();
    more.current = known.current.update(unified(text));
    shown.current = text;
    cost.current = performance.now() - last.current;
  }
  const isBehind = more.current || text !== shown.current;
  useEffect(() => {
    if (!isBehind) return;
    const timer = setTimeout(() => redraw((n) => n + 1), more.current ? 0 : cost.current * 8);
    return () => clearTimeout(timer);
  });
  const { chunks, tail } = known.current;
  return (
    <div class="markdown">
      {chunks.map((block, n) => (
        <HtmlBlock key={n} block={block} closed lazy={chunks.length > 4} />
      ))}
      {tail.map((block, n) => (
        <HtmlBlock key={chunks.length * 1_000_000 + n} block={block} closed={done || n < tail.length - 1} lazy={false} />
      ))}
    </div>
  );
}

/** Normalizes line breaks as the lexer does. */
function unified(text: string): string {
  return text.includes("\r") ? text.replace(/\r\n|\r/g, "\n") : text;
}

function HtmlBlock({ block, closed, lazy }: { block: Block; closed: boolean; lazy: boolean }) {
  const place = useRef<HTMLDivElement>(null);
  const [near, setNear] = useState(!lazy);
  const { raw, tokens } = block;
  const huge = tokens.length === 1 && (raw.length > LONGEST || tokens[0]!.type === "plain");
  useEffect(() => {
    if (near || !place.current) return;
    return whenNear(place.current, () => setNear(true));
  }, [near]);
  useEffect(() => {
    const element = place.current;
    if (!element || !near || huge) return;
    element.innerHTML = htmlOf(tokens);
    if (closed) void decorate(element);
  }, [raw, closed, near, huge]);
  if (tokens.every((token) => token.type === "space")) return null;
  if (huge) return <LongText text={(tokens[0] as { text?: string }).text ?? raw} />;
  const style = lazy ? { containIntrinsicSize: `auto ${heightOf(raw)}px`, minHeight: near ? "" : `${heightOf(raw)}px` } : {};
  return <div class="block" ref={place} style={style} />;
}

// One observer for all blocks.

const waiting = new WeakMap<Element, () => void>();
let observer: IntersectionObserver | null = null;

function whenNear(element: Element, then: () => void): () => void {
  observer ??= new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        observer?.unobserve(target);
        waiting.get(target)?.();
      }
    },
    { rootMargin: "1500px" },
  );
  waiting.set(element, then);
  observer.observe(element);
  return () => observer?.unobserve(element);
}

/** Highlights a complete code block, and adds a copy button. */
async function decorate(element: HTMLElement): Promise<void> {
  const codes = element.querySelectorAll<HTMLElement>("pre > code");
  if (!codes.length) return;
  const { highlight } = await import("./highlight");
  for (const code of codes) {
    highlight(code, code.dataset["language"]);
    const pre = code.parentElement!;
    pre.tabIndex = 0; // scrollable elements need keyboard focus
    if (pre.querySelector("button")) continue;
    const copy = document.createElement("button");
    copy.type = "button";
    copy.className = "copy";
    copy.textContent = "Copy";
    copy.onclick = async () => {
      if (!(await copyText(code.textContent ?? ""))) return;
      copy.textContent = "Copied";
      setTimeout(() => (copy.textContent = "Copy"), 1500);
    };
    pre.append(copy);
  }
}
