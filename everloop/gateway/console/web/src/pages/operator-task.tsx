// A task of another owner, for operators: events, timeline, usage, and remedies.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { ask, at } from "../api/root";
import type { OperatorTask } from "../api/types";
import { Events } from "../parts/events";
import { StuckView } from "../parts/help";
import { Timeline } from "../parts/timeline";
import { Ago, Problem, Tabs, WireState } from "../parts/ui";
import { UsageView } from "../parts/usage";
import { TaskEvents } from "../state/events";
import { stuck, temporalLink } from "../state/operator";
import { href, query } from "../state/route";
import { agentName } from "../state/store";

const TABS = ["events", "timeline", "usage"];
const REFRESH = 3000;

export function OperatorTaskPage({ id }: { id: string }) {
  const owner = query.value.get("owner") ?? "";
  const agent = query.value.get("agent") ?? "";
  const tab = query.value.get("tab") ?? "events";
  const events = useMemo(() => new TaskEvents(id, owner), [id, owner]);
  useEffect(() => {
    void events.load();
    const timer = setInterval(() => void events.load(), REFRESH);
    return () => clearInterval(timer);
  }, [events]);
  const known = useSignal<OperatorTask | null>(null);
  const load = (): void => {
    ask<{ task: OperatorTask }>("GET", at`/operator/tasks/${id}`).then(
      ({ task }) => (known.value = task),
      () => (known.value = stuck.peek().find((each) => each.id === id) ?? null),
    );
  };
  useEffect(load, [id, stuck.value]);
  const task = known.value;
  const link = temporalLink(id);
  return (
    <div class="page">
      <header class="page-head">
        <a href={href(["operator"])} aria-label="Back to the operator’s tasks">
          ←
        </a>
        <h1 class="one-line">{task?.title || id}</h1>
        <span class="spacer" />
        {link && (
          <a href={link} target="_blank" rel="noopener noreferrer">
            Temporal
          </a>
        )}
        {agent && <a href={href(["tasks", agent, id])}>As its owner</a>}
      </header>
      <div class="facts">
        {task && <WireState state={task.state} isMine={false} />}
        <span>of {owner || "nobody by name"}</span>
        <span>{agentName(agent)}</span>
        {task?.waitsFor && <span>waits for {task.waitsFor}</span>}
        {task?.iteration && <span>iteration {task.iteration}</span>}
        <Ago at={task?.updatedAt} />
        <code>{id}</code>
      </div>
      {task?.stuck && (
        <div class="page-part">
          <StuckView task={task} onHelped={load} />
        </div>
      )}
      <Tabs label="Parts of the task" names={TABS} />
      <div class="turns tab-wide" tabIndex={-1}>
        <Problem text={events.error.value} retry={() => void events.load()} />
        {tab === "events" && <Events events={events.events.value} isCut={events.isCut.value} />}
        {tab === "timeline" && <Timeline events={events.events.value} isOpen={false} />}
        {tab === "usage" && <UsageView taskId={id} version={0} owner={owner} />}
      </div>
    </div>
  );
}
