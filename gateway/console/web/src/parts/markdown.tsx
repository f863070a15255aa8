// Markdown of models, as safe HTML. What is written already is neither parsed nor drawn again while more streams.

import DOMPurify from "dompurify";
import { marked, type Token } from "marked";
import { useEffect, useMemo, useRef } from "preact/hooks";

type Block = { raw: string; html: TrustedHTML | string };

const ALLOWED = {
  USE_PROFILES: { html: true },
  FORBID_TAGS: ["style", "form", "input", "button", "textarea", "select", "iframe", "object", "embed", "img", "video", "audio"],
  FORBID_ATTR: ["style", "class", "id", "name"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
  RETURN_TRUSTED_TYPE: true,
};

marked.use({
  gfm: true,
  async: false,
  // HTML of a model is text.
  renderer: { html: ({ text }) => escaped(text) },
});

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
});

/** Shows Markdown. Images are not fetched: whoever makes a model write one would learn who reads it. */
export function Markdown({ text, done = true }: { text: string; done?: boolean }) {
  const known = useRef<Block[]>([]);
  const blocks = useMemo(() => (known.current = parse(text, known.current)), [text]);
  return (
    <div class="markdown">
      {blocks.map((block, n) => (
        <HtmlBlock key={n} html={block.html} closed={done || n < blocks.length - 1} />
      ))}
    </div>
  );
}

/** Parses the blocks that are new, and the last one that was, which may have grown. */
function parse(text: string, known: Block[]): Block[] {
  const kept: Block[] = [];
  let at = 0;
  for (const block of known.slice(0, -1)) {
    if (!text.startsWith(block.raw, at)) break;
    kept.push(block);
    at += block.raw.length;
  }
  const tokens = marked.lexer(text.slice(at)) as Token[];
  for (const token of tokens) {
    const html = token.type === "space" ? "" : DOMPurify.sanitize(marked.parser([token]), ALLOWED);
    kept.push({ raw: token.raw, html: html as unknown as TrustedHTML });
  }
  return kept;
}

function HtmlBlock({ html, closed }: { html: TrustedHTML | string; closed: boolean }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    element.innerHTML = html as string;
    if (closed) void decorate(element);
  }, [html, closed]);
  return html === "" ? null : <div class="block" ref={place} />;
}

/** Colours code, and lets it be copied, once it is whole. */
async function decorate(element: HTMLElement): Promise<void> {
  const codes = element.querySelectorAll<HTMLElement>("pre > code");
  if (!codes.length) return;
  const { highlight } = await import("./highlight");
  for (const code of codes) {
    highlight(code);
    const pre = code.parentElement!;
    if (pre.querySelector("button")) continue;
    const copy = document.createElement("button");
    copy.type = "button";
    copy.className = "copy";
    copy.textContent = "Copy";
    copy.onclick = () => {
      void navigator.clipboard.writeText(code.textContent ?? "");
      copy.textContent = "Copied";
      setTimeout(() => (copy.textContent = "Copy"), 1500);
    };
    pre.append(copy);
  }
}
