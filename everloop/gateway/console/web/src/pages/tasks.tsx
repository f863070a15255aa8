// All tasks of the user, over all agents. The filters are in the address.

import { TaskState } from "../api/a2a";
import { TaskRows } from "../parts/tasks";
import { AgentOptions, Search, stateName } from "../parts/ui";
import { filter, query } from "../state/route";

const FILTERS: [string, TaskState][] = [
  ["queued", TaskState.TASK_STATE_SUBMITTED],
  ["working", TaskState.TASK_STATE_WORKING],
  ["waiting", TaskState.TASK_STATE_INPUT_REQUIRED],
  ["secret", TaskState.TASK_STATE_AUTH_REQUIRED],
  ["completed", TaskState.TASK_STATE_COMPLETED],
  ["failed", TaskState.TASK_STATE_FAILED],
  ["canceled", TaskState.TASK_STATE_CANCELED],
  ["rejected", TaskState.TASK_STATE_REJECTED],
];

export function Tasks() {
  const state = query.value.get("state") ?? "";
  const agent = query.value.get("agent") ?? "";
  return (
    <div class="page">
      <header class="page-head">
        <h1>Tasks</h1>
        <span class="spacer" />
        <Search what="tasks" />
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
          <AgentOptions />
        </select>
      </header>
      <TaskRows state={FILTERS.find(([name]) => name === state)?.[1] ?? TaskState.TASK_STATE_UNSPECIFIED} agent={agent} search={query.value.get("q") ?? ""} />
    </div>
  );
}
