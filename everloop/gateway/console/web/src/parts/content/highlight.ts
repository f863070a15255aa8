// Syntax highlighting, loaded when there is code.

import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

// Not Markdown: 6 KB of `[a](` take seconds.
const LANGUAGES = { bash, css, diff, javascript, json, python, sql, typescript, xml, yaml };
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

/** Limits of the characters of highlighted code, and of a word in it: patterns are tried at each position. */
const LONGEST = 20_000;
const LONG_WORD = /\S{200}/;

/** Highlights an element's text by nodes, without any HTML. */
export function highlight(element: HTMLElement, language = ""): void {
  const text = element.textContent ?? "";
  if (element.dataset["coloured"] || text.length > LONGEST || LONG_WORD.test(text)) return;
  element.dataset["coloured"] = "yes";
  const named = language && hljs.getLanguage(language) ? language : "";
  const result = named ? hljs.highlight(text, { language: named }) : hljs.highlightAuto(text);
  if (!named && result.relevance < 5) return;
  element.replaceChildren(nodes(result));
}

type Scope = { scope?: string; children: (Scope | string)[] };

function nodes(result: unknown): DocumentFragment {
  const tree = (result as { _emitter: { rootNode: Scope } })._emitter.rootNode;
  const fragment = document.createDocumentFragment();
  const walk = (scope: Scope, into: Node): void => {
    for (const child of scope.children) {
      if (typeof child === "string") into.appendChild(document.createTextNode(child));
      else {
        const span = document.createElement("span");
        if (child.scope) span.className = `hl-${child.scope.split(".")[0]}`;
        into.appendChild(span);
        walk(child, span);
      }
    }
  };
  walk(tree, fragment);
  return fragment;
}
