// Tasks in a table, over all agents, refreshed regularly.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { listTasks, type Task, TaskState } from "../api/a2a";
import type { Usage } from "../api/types";
import { asksOwner, questionsOf, TERMINAL, textOf, WAITING } from "../state/fold";
import { useRowKeys } from "../state/keys";
import { go, href } from "../state/route";
import { agentName, agents, words } from "../state/store";
import { Ago, Empty, Problem, StateBadge, UsageText } from "./ui";

type Row = { agent: string; task: Task };

const REFRESH = 3000;
const PAGE = 50;
/** The page size of an A2A server. */
const MOST = 100;

type Props = { state?: TaskState; agent?: string; search?: string; contextId?: string };

export function TaskRows({ state = TaskState.TASK_STATE_UNSPECIFIED, agent = "", search = "", contextId = "" }: Props) {
  const rows = useSignal<Row[] | null>(null);
  /** True if there are older tasks. */
  const hasMore = useSignal(false);
  const error = useSignal("");
  const size = useSignal(PAGE);
  const isFiltered = Boolean(state || agent || search);

  useEffect(() => {
    if (!agents.value) return; // not loaded yet, which is not an empty list
    let timer = 0;
    let gone = false;
    const load = async (): Promise<void> => {
      try {
        const wanted = (agents.value ?? []).filter((each) => !agent || each.id === agent);
        const pages = await Promise.all(wanted.map((each) => tasksOf(each.id, state, contextId, size.value)));
        if (gone) return;
        hasMore.value = pages.some((page) => page.hasMore);
        rows.value = pages.flatMap((page) => page.rows).sort((a, b) => (b.task.status?.timestamp ?? "").localeCompare(a.task.status?.timestamp ?? ""));
        error.value = "";
      } catch (failure) {
        if (!gone) error.value = words(failure);
      }
      const pause = REFRESH * Math.ceil(size.value / MOST); // a list of many requests is refreshed less often
      if (!gone) timer = window.setTimeout(load, document.hidden ? pause * 5 : pause);
    };
    void load();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [state, agent, contextId, size.value, agents.value]);

  const found = rows.value?.filter((row) => !search || titleOf(row.task).toLowerCase().includes(search.toLowerCase()) || row.task.id.includes(search));
  const shown = found?.slice(0, size.value) ?? [];
  const isCut = hasMore.value || (found?.length ?? 0) > size.value;
  const more = isCut && (
    <button type="button" class="plain more" onClick={() => (size.value += search ? 5 * PAGE : PAGE)}>
      {search ? "Search older ones" : "Show more"}
    </button>
  );
  const chosen = useRowKeys(shown.length, (n) => open(shown[n]!));

  if (rows.value && !shown.length)
    return (
      <>
        <Problem text={error.value} />
        <Empty title={isFiltered ? "No such tasks" : "No tasks yet"}>
          <p>
            {isFiltered ? (
              <a href={href(["tasks"])}>Show all</a>
            ) : (
              <>
                <a href={href(["chat"])}>Write to an agent</a>, and its work shows here.
              </>
            )}
          </p>
          {more}
        </Empty>
      </>
    );
  return (
    <div class="table-place" tabIndex={-1}>
      <Problem text={error.value} />
      {rows.value && (
        <table class="list tasks">
          <thead>
            <tr>
              <th>State</th>
              <th>Task</th>
              <th class="wide">Agent</th>
              <th class="wide">Tokens and cost</th>
              <th class="right">Changed</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((row, n) => (
              <tr key={row.task.id} data-row={n} class={n === chosen ? "chosen" : ""} onClick={() => open(row)}>
                <td>
                  <StateBadge state={stateOf(row.task)} isMine={asksOwner(questionsOf(row.task.status?.message?.parts ?? []))} />
                </td>
                <td class="title">
                  <a href={href(["tasks", row.agent, row.task.id])}>{titleOf(row.task) || row.task.id}</a>
                  <div class="quiet one-line">{doing(row.task)}</div>
                </td>
                <td class="wide">{agentName(row.agent)}</td>
                <td class="wide">
                  <UsageText usage={row.task.metadata?.["usage"] as Usage | undefined} />
                </td>
                <td class="right">
                  <Ago at={row.task.status?.timestamp} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {more}
    </div>
  );
}

function open(row: Row): void {
  go(href(["tasks", row.agent, row.task.id]));
}

function stateOf(task: Task): TaskState {
  return task.status?.state ?? TaskState.TASK_STATE_UNSPECIFIED;
}

async function tasksOf(agent: string, status: TaskState, contextId: string, size: number): Promise<{ rows: Row[]; hasMore: boolean }> {
  const found: Row[] = [];
  let pageToken = "";
  do {
    const page = await listTasks(agent, { contextId, status, pageSize: Math.min(size, MOST), pageToken, historyLength: 20 });
    found.push(...page.tasks.map((task) => ({ agent, task })));
    pageToken = page.nextPageToken;
  } while (pageToken && found.length < size);
  return { rows: found, hasMore: Boolean(pageToken) };
}

/** The beginning of the user's request. */
function titleOf(task: Task): string {
  const first = task.history.find((message) => message.role === 1);
  return first ? textOf(first.parts).trim().split("\n", 1)[0]!.slice(0, 160) : "";
}

/** The activity or question of an open task, and the reason of a failure. */
function doing(task: Task): string {
  const state = stateOf(task);
  if (TERMINAL.has(state) && state !== TaskState.TASK_STATE_FAILED && state !== TaskState.TASK_STATE_REJECTED) return "";
  const said = task.status?.message ? textOf(task.status.message.parts).split("\n", 1)[0]! : "";
  return WAITING.has(state) && said ? `asks: ${said}` : said;
}
