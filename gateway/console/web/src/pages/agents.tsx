// The agents of this gateway, as their cards describe them.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask } from "../api/root";
import type { Agent } from "../api/types";
import { Empty } from "../parts/ui";
import { href } from "../state/route";
import { agents, words } from "../state/store";

type Skill = { id: string; name: string; description: string; tags?: string[]; examples?: string[] };
type Card = { version?: string; skills?: Skill[]; defaultInputModes?: string[]; defaultOutputModes?: string[] };

export function Agents() {
  if (agents.value?.length === 0) return <Empty title="No agents" />;
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
  useEffect(() => {
    const { pathname } = new URL(agent.card, location.href);
    ask<Card>("GET", pathname).then(
      (found) => (card.value = found),
      (failure: unknown) => (error.value = words(failure)),
    );
  }, [agent.card]);
  return (
    <section class="card">
      <h2>{agent.name}</h2>
      <p>{agent.description}</p>
      {card.value?.version && <p class="quiet">version {card.value.version}</p>}
      {(card.value?.skills ?? [])
        .filter((skill) => skill.name !== agent.name || skill.examples?.length)
        .map((skill) => (
          <div key={skill.id} class="skill">
            <h3>{skill.name}</h3>
            <p>{skill.description}</p>
            {skill.examples?.map((example) => (
              <p class="quiet" key={example}>
                “{example}”
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
        <a href={new URL(agent.card, location.href).pathname} target="_blank" rel="noopener">
          Card
        </a>
      </p>
    </section>
  );
}
