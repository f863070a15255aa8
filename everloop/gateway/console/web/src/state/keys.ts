// Keyboard selection of rows.

import { useEffect, useRef, useState } from "preact/hooks";

/** Handles j, k and the arrows to select one of so many rows, and Enter to open it. Returns the selected one. */
export function useRowKeys(count: number, open: (row: number) => void): number {
  const [chosen, setChosen] = useState(0);
  // A key applies to the rows on the screen when it is pressed.
  const seen = useRef({ chosen, count, open });
  seen.current = { chosen, count, open };
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const target = event.target as Element;
      if (target.matches("input, textarea, select, [role=group]") || document.querySelector("dialog[open]")) return;
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const now = seen.current;
      const next = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key] ?? 0;
      const row = Math.max(0, Math.min(now.chosen + next, now.count - 1));
      if (next) setChosen(row);
      else if (event.key === "Enter" && now.count && !target.matches("a, button, summary")) now.open(row);
      else return;
      event.preventDefault();
      requestAnimationFrame(() => document.querySelector(`[data-row="${row}"]`)?.scrollIntoView({ block: "nearest" }));
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return chosen;
}
