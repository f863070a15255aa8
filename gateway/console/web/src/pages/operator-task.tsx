// A task of another owner, as operators see it: what happened, where the time went, what it used, and what helps.

import { useEffect, useMemo } from "preact/hooks";
import { Events } from "../parts/events";
import { StuckView } from "../parts/help";
import { Timeline } from "../parts/timeline";
import { Problem } from "../parts/ui";
import { UsageView } from "../parts/usage";
import { TaskEvents } from "../state/events";
import { loadSystem, stuck, temporalLink } from "../state/operator";
import { filter, href, query } from "../state/route";
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
  const needsHelp = stuck.value.find((each) => each.id === id);
  const link = temporalLink(id);
  return (
    <div class="page">
      <header class="page-head">
        <a href={href(["operator"])} aria-label="Back to the operator’s tasks">
          ←
        </a>
        <h1 class="one-line">{needsHelp?.title || id}</h1>
        <span class="spacer" />
        {link && (
          <a href={link} target="_blank" rel="noopener noreferrer">
            Temporal
          </a>
        )}
        {agent && <a href={href(["tasks", agent, id])}>As its owner</a>}
      </header>
      <div class="facts">
        <span>of {owner || "nobody by name"}</span>
        <span>{agentName(agent)}</span>
        <code>{id}</code>
      </div>
      {needsHelp && (
        <div class="page-part">
          <StuckView task={needsHelp} onHelped={() => void loadSystem()} />
        </div>
      )}
      <nav class="tabs" aria-label="Parts of the task">
        {TABS.map((name) => (
          <button type="button" key={name} aria-current={tab === name ? "page" : undefined} onClick={() => filter({ tab: name })}>
            {name}
          </button>
        ))}
      </nav>
      <div class="turns tab-wide" tabIndex={-1}>
        <Problem text={events.error.value} retry={() => void events.load()} />
        {tab === "events" && <Events events={events.events.value} isCut={events.isCut.value} />}
        {tab === "timeline" && <Timeline events={events.events.value} isOpen={false} />}
        {tab === "usage" && <UsageView taskId={id} version={0} owner={owner} />}
      </div>
    </div>
  );
}
