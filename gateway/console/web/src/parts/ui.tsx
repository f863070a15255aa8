// Small things that all pages are made of.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
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

/** The state of a task as A2A writes it in JSON, or as the extension does. */
export function WireState({ state }: { state: string }) {
  const name = state.startsWith("TASK_STATE_") ? state : `TASK_STATE_${state.toUpperCase().replace(/-/g, "_")}`;
  return <StateBadge state={(TaskState as unknown as Record<string, TaskState>)[name] ?? TaskState.TASK_STATE_UNSPECIFIED} />;
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

/** Says what an agent may use for a task. */
export function limitsOf(limits: { iterations?: number; tokens?: number; cost?: number; seconds?: number } | undefined): string {
  const { iterations, tokens, cost, seconds } = limits ?? {};
  return [iterations && `${iterations} iterations`, tokens && `${short(tokens)} tokens`, cost && money(cost), seconds && duration(seconds)]
    .filter(Boolean)
    .join(", ");
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

/** Stands for what this gateway does not have. */
export function Missing({ what }: { what: string }) {
  return (
    <Empty title={`This gateway has no ${what}`}>
      <p>It is older than this console, or it leaves that out.</p>
    </Empty>
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

/** Asks before something happens that cannot be taken back; it has the focus until it is answered. */
export function Dialog({ label, onClose, children }: { label: string; onClose: () => void; children: ComponentChildren }) {
  const place = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = place.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return (
    <dialog
      ref={place}
      class="dialog"
      aria-label={label}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      {children}
    </dialog>
  );
}

export function Confirm({ title, text, yes, onYes, onClose }: { title: string; text: string; yes: string; onYes: () => void; onClose: () => void }) {
  return (
    <Dialog label={title} onClose={onClose}>
      <h2>{title}</h2>
      <p>{text}</p>
      <div class="choices">
        <button
          type="button"
          class="danger"
          onClick={() => {
            onClose();
            onYes();
          }}
        >
          {yes}
        </button>
        <button type="button" onClick={onClose} autofocus>
          Close
        </button>
      </div>
    </Dialog>
  );
}
