// The frame of all pages.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { login, loginWanted, logOut } from "./api/auth";
import { hasExtension } from "./api/catalogue";
import { Agents } from "./pages/agents";
import { Artifacts } from "./pages/artifacts";
import { Chat } from "./pages/chat";
import { ContextPage } from "./pages/context";
import { Contexts } from "./pages/contexts";
import { Inbox } from "./pages/inbox";
import { Login } from "./pages/login";
import { Operator } from "./pages/operator";
import { OperatorTaskPage } from "./pages/operator-task";
import { Schedules } from "./pages/schedules";
import { SystemPage } from "./pages/system";
import { TaskPage } from "./pages/task";
import { Tasks } from "./pages/tasks";
import { Dialog, Empty, NeedsExtension, Problem } from "./parts/ui";
import { inbox, loadInbox } from "./state/inbox";
import { isOperator, stuck } from "./state/operator";
import { go, href, path, subject } from "./state/route";
import { loadAgents, problem, theme, toasts } from "./state/store";

const PAGES: [name: string, label: string, key: string][] = [
  ["chat", "Chat", "c"],
  ["tasks", "Tasks", "t"],
  ["inbox", "Inbox", "i"],
  ["contexts", "Contexts", "x"],
  ["artifacts", "Artifacts", "f"],
  ["schedules", "Schedules", "s"],
  ["agents", "Agents", "a"],
  ["operator", "Operator", "o"],
  ["system", "System", "y"],
];
/** Pages that need only A2A. */
const OF_A2A = new Set(["chat", "tasks", "agents"]);
/** Pages for operators. */
const OF_OPERATORS = new Set(["operator", "system"]);

const KEYS: [keys: string, what: string][] = [
  ["g, then a letter", PAGES.map(([, label, key]) => `${key} ${label.toLowerCase()}`).join(", ")],
  ["/", "search"],
  ["j, k, Enter", "next, previous, open (in lists)"],
  ["Enter, Shift+Enter", "send, new line"],
  ["?", "this list"],
  ["Esc", "close"],
];

export function App() {
  const help = useSignal(false);
  useKeys(() => (help.value = !help.value));
  useEffect(() => void loadInbox(), [loginWanted.value]);
  // On a phone the bar does not have room for all pages.
  useEffect(() => document.querySelector(".side [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [path.value[0], isOperator.value]);
  if (loginWanted.value) return <Login />;
  const [page = "chat", ...rest] = path.value;
  const label = labelOf(page);
  const count = inbox.value?.length ?? 0;
  document.title = `${count ? `(${count}) ` : ""}${[subject.value, label, "Everloop"].filter(Boolean).join(" · ")}`;
  return (
    <div class="frame">
      <a class="skip" href="#main">
        Skip to content
      </a>
      <nav class="side" aria-label="Console">
        <a class="brand" href={href(["chat"])}>
          Everloop
        </a>
        {PAGES.filter(([name]) => hasPage(name) && (isOperator.value || !OF_OPERATORS.has(name))).map(([name, label]) => (
          <a key={name} href={href([name])} aria-current={page === name ? "page" : undefined}>
            {label}
            {name === "inbox" && Boolean(inbox.value?.length) && <span class="count badge asks">{inbox.value!.length}</span>}
            {name === "operator" && stuck.value.length > 0 && <span class="count badge bad">{stuck.value.length}</span>}
          </a>
        ))}
        <span class="spacer" />
        <label class="theme">
          <span class="visually-hidden">Theme</span>
          <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as typeof theme.value)}>
            <option value="">System theme</option>
            <option value="light">Light theme</option>
            <option value="dark">Dark theme</option>
          </select>
        </label>
        <button type="button" class="plain" onClick={() => (help.value = true)}>
          Shortcuts
        </button>
        {login.value && (
          <button type="button" class="plain" onClick={logOut}>
            Log out
          </button>
        )}
      </nav>
      <main id="main" tabIndex={-1}>
        <Problem text={problem.value} retry={() => void loadAgents()} />
        <Page page={page} rest={rest} />
      </main>
      {help.value && (
        <Dialog label="Shortcuts" onClose={() => (help.value = false)}>
          <h2>Shortcuts</h2>
          <dl class="keys">
            {KEYS.map(([keys, what]) => (
              <div key={keys}>
                <dt>
                  <kbd>{keys}</kbd>
                </dt>
                <dd>{what}</dd>
              </div>
            ))}
          </dl>
          <button type="button" onClick={() => (help.value = false)}>
            Close
          </button>
        </Dialog>
      )}
      <div class="toasts" role="status" aria-live="polite">
        {toasts.value.map((one) => (
          <div key={one.id} class={`toast ${one.tone}`}>
            {one.text}
          </div>
        ))}
      </div>
    </div>
  );
}

function labelOf(page: string): string | undefined {
  return PAGES.find(([name]) => name === page)?.[1];
}

/** True if the server has the data of a page, or until that is known. */
function hasPage(page: string): boolean {
  return hasExtension.value !== false || OF_A2A.has(page);
}

function Page({ page, rest }: { page: string; rest: string[] }) {
  const [first = "", second = ""] = rest;
  const label = labelOf(page);
  if (label && !hasPage(page)) return <NeedsExtension what={label.toLowerCase()} />;
  switch (page) {
    case "chat":
      return <Chat agent={first} contextId={second} />;
    case "tasks":
      return second ? <TaskPage agent={first} id={second} /> : <Tasks />;
    case "inbox":
      return <Inbox />;
    case "schedules":
      return <Schedules />;
    case "contexts":
      return first ? <ContextPage id={first} /> : <Contexts />;
    case "artifacts":
      return <Artifacts />;
    case "agents":
      return <Agents />;
    case "operator":
      return first ? <OperatorTaskPage id={first} /> : <Operator />;
    case "system":
      return <SystemPage />;
  }
  return (
    <Empty title="There is no such page">
      <p>
        <a href={href(["chat"])}>To the chat</a>
      </p>
    </Empty>
  );
}

function useKeys(toggleHelp: () => void): void {
  useEffect(() => {
    let isGoing = false;
    const onKey = (event: KeyboardEvent): void => {
      if ((event.target as Element).matches?.("input, textarea, select") || document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey) return;
      const to = isGoing && PAGES.find(([, , key]) => key === event.key);
      isGoing = event.key === "g";
      if (to) go(href([to[0]]));
      else if (event.key === "?") toggleHelp();
      else if (event.key === "/") document.querySelector<HTMLElement>("#search, .composer textarea")?.focus();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}
