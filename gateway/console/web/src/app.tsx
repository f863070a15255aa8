// The frame of all pages.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { login, loginWanted, logOut } from "./api/auth";
import { Agents } from "./pages/agents";
import { Chat } from "./pages/chat";
import { Inbox } from "./pages/inbox";
import { Login } from "./pages/login";
import { Schedules } from "./pages/schedules";
import { TaskPage } from "./pages/task";
import { Tasks } from "./pages/tasks";
import { Empty, Problem } from "./parts/ui";
import { inbox, loadInbox } from "./state/inbox";
import { go, href, path } from "./state/route";
import { loadAgents, problem, theme, toasts } from "./state/store";

const PAGES: [name: string, label: string, key: string][] = [
  ["chat", "Chat", "c"],
  ["tasks", "Tasks", "t"],
  ["inbox", "Inbox", "i"],
  ["schedules", "Schedules", "s"],
  ["agents", "Agents", "a"],
];

const KEYS: [keys: string, what: string][] = [
  ["g, then c, t, i, s, a", "go to chat, tasks, inbox, schedules, agents"],
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
  if (loginWanted.value) return <Login />;
  const [page = "chat", ...rest] = path.value;
  return (
    <div class="frame">
      <a class="skip" href="#main">
        Skip to content
      </a>
      <nav class="side" aria-label="Console">
        <a class="brand" href={href(["chat"])}>
          Everloop
        </a>
        {PAGES.map(([name, label]) => (
          <a key={name} href={href([name])} aria-current={page === name ? "page" : undefined}>
            {label}
            {name === "inbox" && Boolean(inbox.value?.length) && <span class="count badge asks">{inbox.value!.length}</span>}
          </a>
        ))}
        <span class="spacer" />
        <label class="theme">
          <span class="visually-hidden">Theme</span>
          <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as typeof theme.value)}>
            <option value="">system</option>
            <option value="light">light</option>
            <option value="dark">dark</option>
          </select>
        </label>
        <button type="button" class="plain" onClick={() => (help.value = true)}>
          Keys
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
        <dialog open class="help" aria-label="Keys">
          <h2>Keys</h2>
          <dl>
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
        </dialog>
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

function Page({ page, rest }: { page: string; rest: string[] }) {
  const [first = "", second = ""] = rest;
  switch (page) {
    case "chat":
      return <Chat agent={first} contextId={second} />;
    case "tasks":
      return second ? <TaskPage agent={first} id={second} /> : <Tasks />;
    case "inbox":
      return <Inbox />;
    case "schedules":
      return <Schedules />;
    case "agents":
      return <Agents />;
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
      if ((event.target as Element).matches?.("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
      const to = isGoing && PAGES.find(([, , key]) => key === event.key);
      isGoing = event.key === "g";
      if (to) go(href([to[0]]));
      else if (event.key === "?") toggleHelp();
      else if (event.key === "Escape") document.querySelector<HTMLDialogElement>("dialog.help button")?.click();
      else if (event.key === "/") document.querySelector<HTMLElement>("#search, .composer textarea")?.focus();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}
