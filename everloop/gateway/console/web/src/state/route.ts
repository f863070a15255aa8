// The location: the path below /console, and its query. Filters are in the query, so that a link shows the same.

import { computed, signal } from "@preact/signals";
import { ROOT } from "../api/root";

const BASE = `${ROOT}console`;

const here = signal(location.pathname + location.search);

export const path = computed(() => {
  const { pathname } = new URL(here.value, location.origin);
  const below = pathname.startsWith(BASE) ? pathname.slice(BASE.length) : "";
  return below.split("/").filter(Boolean).map(decoded);
});

/** Decodes a part of an address. Invalid encodings are returned unchanged. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The subject of the page, such as the beginning of a task, for the title of the tab. */
export const subject = signal("");

export const query = computed(() => new URL(here.value, location.origin).searchParams);

/** Returns the address of a page. Parts may contain any characters. */
export function href(parts: string[], params: Record<string, string> = {}): string {
  const words = parts.map(encodeURIComponent).join("/");
  const chosen = Object.entries(params).filter(([, value]) => value);
  const search = new URLSearchParams(chosen).toString();
  return `${BASE}${words ? `/${words}` : ""}${search ? `?${search}` : ""}`;
}

export function go(to: string, { replace = false } = {}): void {
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  here.value = to;
  if (!replace) document.querySelector("main")?.focus({ preventScroll: true });
}

/** Changes the query of the page, without an entry in the browser's history. */
export function filter(params: Record<string, string>): void {
  const known = Object.fromEntries(query.value);
  go(href(path.value, { ...known, ...params }), { replace: true });
}

addEventListener("popstate", () => (here.value = location.pathname + location.search));

document.addEventListener("click", (event) => {
  const link = (event.target as Element | null)?.closest?.("a");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || link.target) return;
  if (link.origin !== location.origin || !link.pathname.startsWith(BASE) || link.hasAttribute("download")) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
