// Long lists: only rows in or near the view are in the document.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const MORE = 12;
/** Shorter lists are drawn completely. */
const SHORT = 100;

type Props<Item> = {
  items: readonly Item[];
  keyOf: (item: Item) => string;
  /** Height of a closed row, in pixels. */
  height: number;
  children: (item: Item, index: number) => ComponentChildren;
};

/** Shows the rows in the view of the scrolling parent. Rows may grow: open ones are measured. */
export function Virtual<Item>({ items, keyOf, height, children }: Props<Item>) {
  const place = useRef<HTMLDivElement>(null);
  const heights = useRef(new Map<string, number>());
  const [, redraw] = useState(0);
  const [range, setRange] = useState<[from: number, to: number]>([0, SHORT]);
  const tops = new Float64Array(items.length + 1);
  items.forEach((item, n) => (tops[n + 1] = tops[n]! + (heights.current.get(keyOf(item)) ?? height)));
  const latest = useRef(tops);
  latest.current = tops;

  useEffect(() => {
    const element = place.current;
    const scroller = element && scrollerOf(element);
    if (!element || !scroller) return;
    const look = (): void => {
      const above = scroller.getBoundingClientRect().top - element.getBoundingClientRect().top;
      setRange((known) => {
        const from = Math.max(0, indexAt(latest.current, above) - MORE);
        const to = indexAt(latest.current, above + scroller.clientHeight) + 1 + MORE;
        return known[0] === from && known[1] === to ? known : [from, to];
      });
    };
    look();
    scroller.addEventListener("scroll", look, { passive: true });
    const resized = new ResizeObserver(look);
    resized.observe(scroller);
    return () => {
      scroller.removeEventListener("scroll", look);
      resized.disconnect();
    };
  }, [items.length > SHORT]);

  useLayoutEffect(() => {
    let changed = false;
    for (const row of place.current?.children ?? []) {
      const key = (row as HTMLElement).dataset["key"];
      const now = (row as HTMLElement).offsetHeight;
      if (key === undefined || (heights.current.get(key) ?? height) === now) continue;
      heights.current.set(key, now);
      changed = true;
    }
    if (changed) redraw((n) => n + 1);
  });

  const [from, to] = items.length > SHORT ? range : [0, items.length];
  const shown = items.slice(from, to);
  return (
    <div
      class="virtual"
      role="list"
      ref={place}
      style={{ paddingTop: `${tops[Math.min(from, items.length)]}px`, paddingBottom: `${tops[items.length]! - tops[Math.min(to, items.length)]!}px` }}
      onClick={() => requestAnimationFrame(() => redraw((n) => n + 1))}
    >
      {shown.map((item, n) => (
        <div role="listitem" key={keyOf(item)} data-key={keyOf(item)} aria-setsize={items.length} aria-posinset={from + n + 1}>
          {children(item, from + n)}
        </div>
      ))}
    </div>
  );
}

/** Returns the row at a height in pixels. */
function indexAt(tops: Float64Array, pixels: number): number {
  let low = 0;
  let high = tops.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (tops[middle]! <= pixels) low = middle;
    else high = middle - 1;
  }
  return low;
}

function scrollerOf(element: HTMLElement): HTMLElement | null {
  for (let at: HTMLElement | null = element; at; at = at.parentElement)
    if (/auto|scroll/.test(getComputedStyle(at).overflowY)) return at;
  return document.scrollingElement as HTMLElement | null;
}
