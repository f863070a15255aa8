// Small things that all pages are made of.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { TaskState } from "../api/a2a";
import type { Usage } from "../api/types";

const STATES: Record<number, [name: string, tone: string]> = {
  [TaskState.TASK_STATE_SUBMITTED]: ["queued", "quiet"],
  [TaskState.TASK_STATE_WORKING]: ["working", "busy"],
  [TaskState.TASK_STATE_COMPLETED]: ["completed", "good"],
  [TaskState.TASK_STATE_FAILED]: ["failed", "bad"],
  [TaskState.TASK_STATE_CANCELED]: ["canceled", "quiet"],
  [TaskState.TASK_STATE_REJECTED]: ["rejected", "bad"],
  [TaskState.TASK_STATE_INPUT_REQUIRED]: ["waits for you", "asks"],
  [TaskState.TASK_STATE_AUTH_REQUIRED]: ["wants a secret", "asks"],
};

export function stateName(state: TaskState): string {
  return STATES[state]?.[0] ?? "unknown";
}

export function StateBadge({ state }: { state: TaskState }) {
  const [name, tone] = STATES[state] ?? ["…", "quiet"];
  return <span class={`badge ${tone}`}>{name}</span>;
}

/** How long ago, kept up to date; the exact time on hover. */
export function Ago({ at }: { at: string | undefined }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 15_000);
    return () => clearInterval(timer);
  }, []);
  if (!at) return null;
  const date = new Date(at);
  return (
    <time dateTime={at} title={date.toLocaleString()}>
      {duration((now - date.getTime()) / 1000, true)}
    </time>
  );
}

/** Says how long something lasts, in at most two words. */
export function duration(seconds: number, ago = false): string {
  if (ago && seconds < 5) return "now";
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 60) return `${seconds < 10 && !ago ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

export function UsageText({ usage }: { usage: Usage | null | undefined }) {
  if (!usage || !(usage.inputTokens || usage.outputTokens)) return null;
  const cost = usage.cost == null ? "" : ` · ${money(usage.cost)}`;
  return (
    <span class="usage" title={`${usage.inputTokens} tokens in, ${usage.outputTokens} out`}>
      {short(usage.inputTokens)} in, {short(usage.outputTokens)} out{cost}
    </span>
  );
}

export function money(cost: number): string {
  return `$${cost >= 0.1 ? cost.toFixed(2) : cost >= 0.001 ? cost.toFixed(4) : cost.toFixed(6)}`;
}

export function short(number: number): string {
  if (number < 1000) return String(number);
  return number < 1e6 ? `${(number / 1000).toFixed(number < 10_000 ? 1 : 0)} k` : `${(number / 1e6).toFixed(1)} M`;
}

export function bytes(size: number): string {
  if (size < 1000) return `${size} B`;
  return size < 1e6 ? `${(size / 1000).toFixed(1)} KB` : `${(size / 1e6).toFixed(1)} MB`;
}

/** What stands where there is nothing yet: what this is for, and what to do. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Problem({ text, retry }: { text: string; retry?: () => void }) {
  if (!text) return null;
  return (
    <div class="problem" role="alert">
      <span>{text}</span>
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Json({ text }: { text: string }) {
  let shown = text;
  try {
    shown = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // no JSON: shown as it is
  }
  return <pre class="json">{shown}</pre>;
}
