// Schedules: the next run, the result of the last one, and actions.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { TaskState } from "../api/a2a";
import { ask, at, EXTENSION } from "../api/root";
import { Ago, AgentOptions, ConfirmDelete, Empty, FormDialog, Problem, StateBadge } from "../parts/ui";
import { href } from "../state/route";
import { agentName, agents, toast, words } from "../state/store";

type Run = { taskId: string; at: string; state: keyof typeof TaskState };
type Schedule = {
  id: string;
  agent: string;
  message: { parts: { text?: string }[] };
  cron?: string;
  every?: string;
  at?: string;
  timeZone?: string;
  note: string;
  paused: boolean;
  nextRuns: string[];
  lastRuns: Run[];
};

const REFRESH = 5_000;

export function Schedules() {
  const known = useSignal<Schedule[] | null>(null);
  const error = useSignal("");
  const adding = useSignal(false);
  const leaving = useSignal<Schedule | null>(null);

  async function load(): Promise<void> {
    try {
      known.value = (await ask<{ schedules: Schedule[] }>("GET", `${EXTENSION}/schedules?pageSize=100`)).schedules;
      error.value = "";
    } catch (failure) {
      error.value = words(failure);
    }
  }
  useEffect(() => {
    void load();
    const timer = setInterval(() => void load(), REFRESH);
    return () => clearInterval(timer);
  }, []);

  async function act(schedule: Schedule, what: "pause" | "resume" | "run" | "delete"): Promise<void> {
    try {
      const url = at`/schedules/${schedule.id}`;
      const done = await ask<{ taskId?: string } | undefined>(what === "delete" ? "DELETE" : "POST", what === "delete" ? url : `${url}:${what}`);
      if (what === "run") toast(done?.taskId ? "It runs." : "It runs when the task before it has ended.");
      await load();
    } catch (failure) {
      toast(words(failure), "error");
    }
  }

  const one = leaving.value;
  return (
    <div class="page">
      <header class="page-head">
        <h1>Schedules</h1>
        <span class="spacer" />
        <button type="button" class="primary" onClick={() => (adding.value = true)}>
          New schedule
        </button>
      </header>
      <Problem text={error.value} retry={() => void load()} />
      {known.value?.length === 0 ? (
        <Empty title="No schedules">
          <p>A schedule sends a message to an agent every morning, every hour, or once.</p>
        </Empty>
      ) : (
        <div class="table-place">
          <table>
            <thead>
              <tr>
                <th>Schedule</th>
                <th class="wide">When</th>
                <th>Next</th>
                <th class="wide">Last</th>
                <th />
              </tr>
            </thead>
            <tbody>
              {(known.value ?? []).map((each) => (
                <tr key={each.id}>
                  <td>
                    <b>{each.id}</b> <span class="quiet">{agentName(each.agent)}</span>
                    <div class="quiet one-line">{each.note || each.message.parts.map((part) => part.text ?? "").join(" ")}</div>
                  </td>
                  <td class="wide">
                    {each.cron ?? each.at ?? `every ${each.every ?? ""}`} <span class="quiet">{each.cron && each.timeZone}</span>
                  </td>
                  <td>{each.paused ? <span class="badge">paused</span> : each.nextRuns[0] ? new Date(each.nextRuns[0]).toLocaleString() : "–"}</td>
                  <td class="wide">
                    {each.lastRuns[0] ? (
                      <a href={href(["tasks", each.agent, each.lastRuns[0].taskId])}>
                        <StateBadge state={TaskState[each.lastRuns[0].state]} /> <Ago at={each.lastRuns[0].at} />
                      </a>
                    ) : (
                      "–"
                    )}
                  </td>
                  <td class="right">
                    <div class="actions">
                      <button type="button" class="plain" onClick={() => void act(each, "run")}>
                        Run now
                      </button>
                      <button type="button" class="plain" onClick={() => void act(each, each.paused ? "resume" : "pause")}>
                        {each.paused ? "Resume" : "Pause"}
                      </button>
                      <button type="button" class="plain" onClick={() => (leaving.value = each)}>
                        Delete
                      </button>
                    </div>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {one && (
        <ConfirmDelete
          title={`Delete the schedule ${one.id}?`}
          text="It starts no more tasks. Tasks that it has started go on."
          onYes={() => void act(one, "delete")}
          onClose={() => (leaving.value = null)}
        />
      )}
      {adding.value && (
        <NewSchedule
          onClose={() => {
            adding.value = false;
            void load();
          }}
        />
      )}
    </div>
  );
}

const WHEN = {
  cron: ["Cron expression", "0 9 * * 1-5"],
  every: ["Interval", "1h30m"],
  at: ["Time", "2027-01-01T09:00"],
} as const;

function NewSchedule({ onClose }: { onClose: () => void }) {
  const kind = useSignal<keyof typeof WHEN>("cron");
  const form = useSignal({ id: "", agent: agents.value?.[0]?.id ?? "", text: "", when: "", timeZone: zone() });
  const set = (name: string) => (event: { currentTarget: { value: string } }) => {
    form.value = { ...form.value, [name]: event.currentTarget.value };
  };

  async function save(): Promise<void> {
    const { id, agent, text, when, timeZone } = form.value;
    const time = kind.value === "every" ? { every: when } : { [kind.value]: when, timeZone };
    await ask("POST", `${EXTENSION}/schedules`, { ...(id ? { id } : {}), agent, message: { parts: [{ text }] }, ...time });
    onClose();
  }

  return (
    <FormDialog title="New schedule" onSubmit={save} onClose={onClose}>
      <label>
        <span>Agent</span>
        <select value={form.value.agent} onChange={set("agent")}>
          <AgentOptions />
        </select>
      </label>
      <label>
        <span>Message</span>
        <textarea rows={3} required value={form.value.text} onInput={set("text")} />
      </label>
      <label>
        <span>When</span>
        <select value={kind.value} onChange={(event) => (kind.value = event.currentTarget.value as keyof typeof WHEN)}>
          {Object.entries(WHEN).map(([name, [label]]) => (
            <option key={name} value={name}>
              {label}
            </option>
          ))}
        </select>
      </label>
      <label>
        <span>{WHEN[kind.value][0]}</span>
        <input required placeholder={WHEN[kind.value][1]} value={form.value.when} onInput={set("when")} />
      </label>
      {kind.value !== "every" && (
        <label>
          <span>Time zone</span>
          <input value={form.value.timeZone} onInput={set("timeZone")} />
        </label>
      )}
      <label>
        <span>Name</span>
        <input placeholder="made of what it does" value={form.value.id} onInput={set("id")} />
      </label>
    </FormDialog>
  );
}

function zone(): string {
  return Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
}
