// All tasks of the user, over all agents; what is shown stands in the address.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { agentClient, type Task, TaskState } from "../api/a2a";
import { Ago, Empty, Problem, StateBadge, stateName, UsageText } from "../parts/ui";
import { TERMINAL, textOf } from "../state/fold";
import { filter, go, href, query } from "../state/route";
import { agentName, agents, words } from "../state/store";
import type { Usage } from "../api/types";

type Row = { agent: string; task: Task };

const REFRESH = 3000;
const PAGE = 50;
const FILTERS: [string, TaskState][] = [
  ["working", TaskState.TASK_STATE_WORKING],
  ["waiting", TaskState.TASK_STATE_INPUT_REQUIRED],
  ["completed", TaskState.TASK_STATE_COMPLETED],
  ["failed", TaskState.TASK_STATE_FAILED],
  ["canceled", TaskState.TASK_STATE_CANCELED],
];

export function Tasks() {
  const rows = useSignal<Row[] | null>(null);
  const error = useSignal("");
  const chosen = useSignal(0);
  const state = query.value.get("state") ?? "";
  const agent = query.value.get("agent") ?? "";
  const search = (query.value.get("q") ?? "").toLowerCase();
  const size = Number(query.value.get("show") ?? PAGE);

  useEffect(() => {
    let timer = 0;
    let gone = false;
    const load = async (): Promise<void> => {
      try {
        const wanted = (agents.value ?? []).filter((each) => !agent || each.id === agent);
        const status = FILTERS.find(([name]) => name === state)?.[1] ?? TaskState.TASK_STATE_UNSPECIFIED;
        const pages = await Promise.all(wanted.map((each) => pageOf(each.id, status, Math.min(size, 100))));
        if (gone) return;
        rows.value = pages
          .flat()
          .sort((a, b) => (b.task.status?.timestamp ?? "").localeCompare(a.task.status?.timestamp ?? ""));
        error.value = "";
      } catch (failure) {
        if (!gone) error.value = words(failure);
      }
      if (!gone) timer = window.setTimeout(load, document.hidden ? REFRESH * 5 : REFRESH);
    };
    void load();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [state, agent, size, agents.value]);

  const shown = (rows.value ?? []).filter((row) => !search || titleOf(row.task).toLowerCase().includes(search) || row.task.id.includes(search)).slice(0, size);

  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if ((event.target as Element).matches("input, textarea, select")) return;
      if (event.key === "j" || event.key === "ArrowDown") chosen.value = Math.min(chosen.value + 1, shown.length - 1);
      else if (event.key === "k" || event.key === "ArrowUp") chosen.value = Math.max(chosen.value - 1, 0);
      else if (event.key === "Enter" && shown[chosen.value]) open(shown[chosen.value]!);
      else return;
      event.preventDefault();
      document.querySelector(`[data-row="${chosen.value}"]`)?.scrollIntoView({ block: "nearest" });
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });

  return (
    <div class="page">
      <header class="page-head">
        <h1>Tasks</h1>
        <span class="spacer" />
        <input
          type="search"
          id="search"
          placeholder="Search"
          aria-label="Search tasks"
          value={query.value.get("q") ?? ""}
          onInput={(event) => filter({ q: event.currentTarget.value })}
        />
        <select aria-label="State" value={state} onChange={(event) => filter({ state: event.currentTarget.value })}>
          <option value="">any state</option>
          {FILTERS.map(([name, value]) => (
            <option key={name} value={name}>
              {stateName(value)}
            </option>
          ))}
        </select>
        <select aria-label="Agent" value={agent} onChange={(event) => filter({ agent: event.currentTarget.value })}>
          <option value="">any agent</option>
          {(agents.value ?? []).map((each) => (
            <option key={each.id} value={each.id}>
              {each.name}
            </option>
          ))}
        </select>
      </header>
      <Problem text={error.value} />
      {rows.value && shown.length === 0 ? (
        <Empty title={rows.value.length || state || agent ? "No such tasks" : "No tasks yet"}>
          {rows.value.length || state || agent ? (
            <p>
              <a href={href(["tasks"])}>Show all</a>
            </p>
          ) : (
            <p>
              <a href={href(["chat"])}>Write to an agent</a>, and its work shows here.
            </p>
          )}
        </Empty>
      ) : (
        <div class="table-place">
          <table class="tasks">
            <thead>
              <tr>
                <th>State</th>
                <th>Task</th>
                <th>Agent</th>
                <th>Tokens and cost</th>
                <th class="right">Changed</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((row, n) => (
                <tr
                  key={row.task.id}
                  data-row={n}
                  class={n === chosen.value ? "chosen" : ""}
                  onClick={() => open(row)}
                >
                  <td>
                    <StateBadge state={row.task.status?.state ?? TaskState.TASK_STATE_UNSPECIFIED} />
                  </td>
                  <td class="title">
                    <a href={href(["tasks", row.agent, row.task.id])}>{titleOf(row.task) || row.task.id}</a>
                    {!TERMINAL.has(row.task.status?.state ?? 0) && row.task.status?.message && (
                      <div class="quiet one-line">{textOf(row.task.status.message.parts)}</div>
                    )}
                  </td>
                  <td>{agentName(row.agent)}</td>
                  <td>
                    <UsageText usage={row.task.metadata?.["usage"] as Usage | undefined} />
                  </td>
                  <td class="right">
                    <Ago at={row.task.status?.timestamp} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {rows.value && rows.value.length > size && (
            <button type="button" class="plain more" onClick={() => filter({ show: String(size + PAGE) })}>
              Show more
            </button>
          )}
        </div>
      )}
    </div>
  );
}

function open(row: Row): void {
  go(href(["tasks", row.agent, row.task.id]));
}

async function pageOf(agent: string, status: TaskState, pageSize: number): Promise<Row[]> {
  const client = await agentClient(agent);
  const page = await client.listTasks({
    tenant: "",
    contextId: "",
    status,
    pageSize,
    pageToken: "",
    historyLength: 20,
    statusTimestampAfter: undefined,
  });
  return page.tasks.map((task) => ({ agent, task }));
}

/** The first words of what was asked. */
function titleOf(task: Task): string {
  const first = task.history.find((message) => message.role === 1);
  return first ? textOf(first.parts).trim().split("\n", 1)[0]!.slice(0, 160) : "";
}
