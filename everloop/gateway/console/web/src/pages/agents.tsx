// The agents of this gateway, as their cards describe them.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { listTasks } from "../api/a2a";
import { ask, here } from "../api/root";
import type { Agent } from "../api/types";
import { Empty, limitsOf } from "../parts/ui";
import { type Beginning, beginningOf } from "../state/events";
import { href } from "../state/route";
import { agents, words } from "../state/store";

/** The pinned settings of an agent's newest task: the card contains no tools and limits. */
async function newestOf(agent: string): Promise<Beginning | null> {
  const { tasks } = await listTasks(agent, { pageSize: 1 });
  return tasks[0] ? beginningOf(tasks[0].id) : null;
}

type Skill = { id: string; name: string; description: string; tags?: string[]; examples?: string[] };
export type Card = { version?: string; skills?: Skill[]; defaultInputModes?: string[]; defaultOutputModes?: string[] };

export function Agents() {
  if (agents.value?.length === 0)
    return (
      <Empty title="No agents">
        <p>
          Write one with <code>everloop new</code>, and name it in <code>EVERLOOP_AGENTS</code> of worker and gateway.
        </p>
      </Empty>
    );
  return (
    <div class="page">
      <header class="page-head">
        <h1>Agents</h1>
      </header>
      <div class="cards">
        {(agents.value ?? []).map((agent) => (
          <AgentCard key={agent.id} agent={agent} />
        ))}
      </div>
    </div>
  );
}

function AgentCard({ agent }: { agent: Agent }) {
  const card = useSignal<Card | null>(null);
  const error = useSignal("");
  const newest = useSignal<Beginning | null>(null);
  useEffect(() => void newestOf(agent.id).then((found) => (newest.value = found), () => undefined), [agent.id]);
  const tools = newest.value?.tools ?? [];
  const limits = limitsOf(newest.value?.limits);
  useEffect(() => {
    ask<Card>("GET", here(agent.card)).then(
      (found) => (card.value = found),
      (failure: unknown) => (error.value = words(failure)),
    );
  }, [agent.card]);
  return (
    <section class="card">
      <h2>{agent.name}</h2>
      <p>{agent.description}</p>
      {card.value?.version && <p class="quiet">version {card.value.version}</p>}
      {tools.length > 0 && (
        <p class="agent-tools" aria-label="Tools">
          {tools.map((tool) => (
            <code key={tool}>{tool}</code>
          ))}
        </p>
      )}
      {limits && <p class="quiet">at most {limits}</p>}
      {(card.value?.skills ?? [])
        .filter((skill) => skill.name !== agent.name || skill.examples?.length)
        .map((skill) => (
          <div key={skill.id} class="skill">
            <h3>{skill.name}</h3>
            <p>{skill.description}</p>
            {skill.examples?.map((example) => (
              <p class="quiet" key={example}>
                <a href={href(["chat", agent.id], { say: example })}>{example}</a>
              </p>
            ))}
          </div>
        ))}
      {error.value && <p class="call-error">{error.value}</p>}
      <p class="card-foot">
        <a class="button" href={href(["chat", agent.id])}>
          Chat
        </a>
        <a href={href(["tasks"], { agent: agent.id })}>Tasks</a>
        <a href={here(agent.card)} target="_blank" rel="noopener">
          Card
        </a>
      </p>
    </section>
  );
}
