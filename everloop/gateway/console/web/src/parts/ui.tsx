// Small components that all pages use.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { TaskState } from "../api/a2a";
import type { Usage } from "../api/types";
import type { Listing } from "../state/list";
import { filter, query } from "../state/route";
import { agents, words } from "../state/store";

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

type BadgeProps = {
  /** True if a waiting task waits for the user. */
  isMine?: boolean;
};

export function StateBadge({ state, isMine = true }: BadgeProps & { state: TaskState }) {
  const [name, tone] = STATES[state] ?? ["…", "quiet"];
  return <span class={`badge ${tone}`}>{isMine ? name : name.replace("for you", "for others")}</span>;
}

/** The state of a task as in A2A's JSON, or as in the extension. */
export function WireState({ state, isMine = true }: BadgeProps & { state: string }) {
  const name = state.startsWith("TASK_STATE_") ? state : `TASK_STATE_${state.toUpperCase().replace(/-/g, "_")}`;
  return <StateBadge state={(TaskState as unknown as Record<string, TaskState>)[name] ?? TaskState.TASK_STATE_UNSPECIFIED} isMine={isMine} />;
}

/** The time since an event, kept up to date, with the exact time on hover. */
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

/** Formats a duration in at most two words. */
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

/** Formats the limits of a task. */
export function limitsOf(limits: { iterations?: number; tokens?: number; cost?: number; seconds?: number } | undefined): string {
  const { iterations, tokens, cost, seconds } = limits ?? {};
  return [iterations && `${iterations} iterations`, tokens && `${short(tokens)} tokens`, cost && money(cost), seconds && duration(seconds)]
    .filter(Boolean)
    .join(", ");
}

export function money(cost: number): string {
  if (!cost) return "$0";
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

/** The placeholder of an empty list: its purpose, and the next step. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** The placeholder of a page that this gateway does not support. */
export function Missing({ what }: { what: string }) {
  return (
    <Empty title={`This gateway has no ${what}`}>
      <p>It is older than this console, or it leaves that out.</p>
    </Empty>
  );
}

/** The placeholder of a page that A2A servers other than Everloop do not support. */
export function NeedsExtension({ what }: { what: string }) {
  return (
    <Empty title={`No ${what} on this server`}>
      <p>This requires Everloop’s HTTP extension of A2A, which the server does not have. Chat, tasks and agents work without it.</p>
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

/** The state of a list as a whole: it failed to load, or this gateway does not have it. */
export function ListingProblem({ listing, what }: { listing: Listing<unknown>; what: string }) {
  return (
    <>
      <Problem text={listing.error.value} retry={() => void listing.load()} />
      {listing.isMissing.value && <Missing what={what} />}
    </>
  );
}

export function More({ listing }: { listing: Listing<unknown> }) {
  if (!listing.hasMore.value) return null;
  return (
    <button type="button" class="plain more" onClick={() => listing.more()}>
      Show more
    </button>
  );
}

/** The search field, whose text is in the address as `q`. */
export function Search({ what }: { what: string }) {
  return (
    <input
      type="search"
      id="search"
      placeholder="Search"
      aria-label={`Search ${what}`}
      value={query.value.get("q") ?? ""}
      onInput={(event) => filter({ q: event.currentTarget.value })}
    />
  );
}

/** The options of a field that chooses an agent. */
export function AgentOptions() {
  return (
    <>
      {(agents.value ?? []).map((each) => (
        <option key={each.id} value={each.id}>
          {each.name}
        </option>
      ))}
    </>
  );
}

/** Tabs of a page. The address names the selected one (default: the first). */
export function Tabs({ label, names, counts = {} }: { label: string; names: string[]; counts?: Record<string, number> }) {
  const shown = query.value.get("tab") ?? names[0];
  return (
    <nav class="tabs" aria-label={label}>
      {names.map((name) => (
        <button type="button" key={name} aria-current={shown === name ? "page" : undefined} onClick={() => filter({ tab: name })}>
          {name}
          {counts[name] ? <span class="count">{counts[name]}</span> : null}
        </button>
      ))}
    </nav>
  );
}

/** Milliseconds. */
const QUIET = 500;

/**
 * Returns a check whether an element in view has not moved for half a second. An earlier press was meant for the content
 * that was there before. Scrolling is not a move.
 */
export function useStill(place: { current: Element | null }): { isStill: boolean; check: () => boolean } {
  const [isStill, setStill] = useState(false);
  const last = useRef({ top: NaN, inner: NaN, since: 0 });
  const check = (): boolean => {
    if (!place.current) return false; // it was removed between two presses
    const { top } = place.current.getBoundingClientRect();
    const scroller = place.current.closest(".turns");
    const inner = top + (scroller?.scrollTop ?? scrollY);
    const { since, ...before } = last.current;
    const isMoved = document.hidden || (top !== before.top && inner !== before.inner);
    last.current = { top, inner, since: isMoved ? performance.now() : since };
    return performance.now() - last.current.since >= QUIET;
  };
  useLayoutEffect(() => setStill(check())); // drawing may have moved it
  useEffect(() => {
    const timer = setInterval(() => setStill(check()), QUIET / 5);
    return () => clearInterval(timer);
  }, []);
  return { isStill, check };
}

/** Has the focus until it is closed. */
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

type FormProps = {
  title: string;
  submit?: string;
  disabled?: boolean;
  /** Its error is shown, and the dialog stays open. */
  onSubmit: () => Promise<void>;
  onClose: () => void;
  children: ComponentChildren;
};

/** A dialog with fields and their errors. */
export function FormDialog({ title, submit = "Save", disabled = false, onSubmit, onClose, children }: FormProps) {
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const send = async (): Promise<void> => {
    setBusy(true);
    try {
      await onSubmit();
    } catch (failure) {
      setError(words(failure));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog label={title} onClose={onClose}>
      <form
        class="schema"
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        <h2>{title}</h2>
        {children}
        {error && (
          <p class="call-error" role="alert">
            {error}
          </p>
        )}
        <div class="choices">
          <button class="primary" disabled={busy || disabled}>
            {submit}
          </button>
          <button type="button" onClick={onClose}>
            Close
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** Asks for confirmation of a deletion. */
export function ConfirmDelete({ title, text, onYes, onClose }: { title: string; text: string; onYes: () => void; onClose: () => void }) {
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
          Delete
        </button>
        <button type="button" onClick={onClose} autofocus>
          Close
        </button>
      </div>
    </Dialog>
  );
}
