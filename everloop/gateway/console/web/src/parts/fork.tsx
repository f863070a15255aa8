// Forks a task from an earlier point, with another message or another agent.

import { useSignal } from "@preact/signals";
import { newId } from "../api/a2a";
import { ask, at } from "../api/root";
import { go, href } from "../state/route";
import { AgentOptions, FormDialog } from "./ui";

type Forked = { task: { id: string } };

export function ForkDialog({ agent, id, last, onClose }: { agent: string; id: string; last: number; onClose: () => void }) {
  const text = useSignal("");
  const chosen = useSignal(agent);
  const model = useSignal("");
  const iteration = useSignal(String(last));
  // One id for all attempts: a repeated request finds the fork that it has started.
  const messageId = useSignal(newId());

  async function fork(): Promise<void> {
    const message = text.value.trim() && { role: "ROLE_USER", messageId: messageId.value, parts: [{ text: text.value }] };
    const body = {
      ...(iteration.value === "" ? {} : { iteration: Number(iteration.value) }),
      ...(chosen.value === agent ? {} : { agent: chosen.value }),
      ...(model.value.trim() ? { model: model.value.trim() } : {}),
      ...(message ? { message } : {}),
    };
    const { task } = await ask<Forked>("POST", at`/tasks/${id}/fork`, body);
    onClose();
    go(href(["tasks", chosen.value, task.id]));
  }

  return (
    <FormDialog title="Fork" submit="Fork" onSubmit={fork} onClose={onClose}>
      <p class="quiet">A new task continues from the transcript of this one. No call of it is repeated.</p>
      <label>
        <span>Keep up to iteration</span>
        <input type="number" min="0" max={last} value={iteration.value} onInput={(event) => (iteration.value = event.currentTarget.value)} />
      </label>
      <label>
        <span>Message</span>
        <textarea rows={3} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
      </label>
      <label>
        <span>Agent</span>
        <select value={chosen.value} onChange={(event) => (chosen.value = event.currentTarget.value)}>
          <AgentOptions />
        </select>
      </label>
      <label>
        <span>Model</span>
        <input value={model.value} placeholder="the agent’s own" onInput={(event) => (model.value = event.currentTarget.value)} />
      </label>
    </FormDialog>
  );
}
