// Chat with an agent: one conversation, task after task.

import { computed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Message } from "@a2a-js/sdk";
import { cancelTask, listTasks, NO_ANSWER, type Part, userMessage } from "../api/a2a";
import { hasExtension } from "../api/catalogue";
import { ask, at, EXTENSION, here } from "../api/root";
import type { Agent, Context } from "../api/types";
import { Composer } from "../parts/composer";
import { TaskView, useStickToEnd } from "../parts/task";
import { AgentOptions, Empty } from "../parts/ui";
import type { Card } from "./agents";
import { TERMINAL, textOf, WAITING } from "../state/fold";
import { go, href, query } from "../state/route";
import { agents, followTask, lastAgent, send, toast, words } from "../state/store";
import type { Followed } from "../state/stream";

export function Chat({ agent, contextId }: { agent: string; contextId: string }) {
  const known = agents.value ?? [];
  const chosen = agent || lastAgent.value || known[0]?.id || "";
  const turns = useSignal<Followed[]>([]);
  const draft = useSignal(query.value.get("say") ?? "");
  /** True if there are turns before the visible ones. */
  const hasEarlier = useSignal(false);
  /** True if the next message replaces the last turn. */
  const edits = useSignal(false);
  const version = useSignal(0);
  const { place } = useStickToEnd(version);

  useEffect(() => {
    if (agent) lastAgent.value = agent;
  }, [agent]);
  useEffect(() => {
    if (contextId && turns.value.some((turn) => turn.task.contextId === contextId)) return;
    turns.value = []; // turns of another chat
    hasEarlier.value = false;
    if (!contextId || !chosen) return;
    let isLeft = false;
    listTasks(chosen, { contextId, pageSize: 20 }).then(
      ({ tasks, nextPageToken }) => {
        if (isLeft) return;
        const loaded = tasks.reverse().map((task) => followTask(chosen, task.id));
        turns.value = [...loaded.filter((each) => !turns.value.includes(each)), ...turns.value];
        hasEarlier.value = Boolean(nextPageToken);
      },
      (error: unknown) => isLeft || toast(words(error), "error"),
    );
    return () => void (isLeft = true);
  }, [contextId, chosen]);

  const last = turns.value.at(-1);
  const edited = (edits.value && last?.task.messages.find((message) => message.role === "user")?.parts) || [];
  // Keep the end in view after each change of a turn.
  const seen = computed(() => turns.value.reduce((sum, turn) => sum + turn.version.value, turns.value.length));
  useEffect(() => seen.subscribe((value) => (version.value = value)), [turns.value]);
  void last?.version.value;
  const isAsked = Boolean(last && WAITING.has(last.task.state));
  const isBusy = Boolean(last && last.connection.value !== "ended" && !TERMINAL.has(last.task.state) && !isAsked);

  function say(parts: Part[]): void {
    if (edits.value && turns.value.length) return void resend(parts);
    // A question that arrives while this is being sent has not been read.
    const next = send(chosen, parts, isBusy ? { task: last!, metadata: NO_ANSWER } : { contextId: last?.task.contextId || contextId });
    turns.value = isBusy ? [...turns.value.slice(0, -1), next] : [...turns.value, next];
    draft.value = "";
    settle(next, contextId);
  }

  /** Continues from before the last turn: a fork of the task before it, or a new chat. */
  async function resend(parts: Part[]): Promise<void> {
    edits.value = false;
    draft.value = "";
    const before = turns.value.at(-2);
    if (!before) {
      turns.value = [];
      go(href(["chat", chosen]));
      const next = send(chosen, parts, { contextId: "" });
      turns.value = [next];
      return settle(next, "");
    }
    try {
      const message = Message.toJSON(userMessage(parts));
      const { task } = await ask<{ task: { id: string } }>("POST", at`/tasks/${before.task.id}/fork`, { message });
      turns.value = [...turns.value.slice(0, -1), followTask(chosen, task.id)];
    } catch (error) {
      toast(words(error), "error");
    }
  }

  /** Puts the context into the address, as soon as the server has named it. */
  function settle(next: Followed, known: string): void {
    const stop = next.version.subscribe(() => {
      if (!next.task.contextId) return;
      queueMicrotask(() => stop());
      if (!known) go(href(["chat", chosen, next.task.contextId]), { replace: true });
    });
  }

  async function cancel(): Promise<void> {
    if (!last?.task.id) return;
    try {
      await cancelTask(chosen, last.task.id);
    } catch (error) {
      toast(words(error), "error");
    }
  }

  function again(): void {
    const said = last?.task.messages.find((message) => message.role === "user");
    if (said) say(said.parts);
  }

  return (
    <div class="chat">
      <header class="page-head">
        <h1 class="visually-hidden">Chat</h1>
        <label class="agent-choice">
          <span class="visually-hidden">Agent</span>
          <select value={chosen} onChange={(event) => go(href(["chat", event.currentTarget.value]))}>
            <AgentOptions />
          </select>
        </label>
        <span class="spacer" />
        {last?.task.id && <a href={href(["tasks", chosen, last.task.id])}>Details</a>}
        <a class="button" href={href(["chat", chosen])} onClick={() => (turns.value = [])}>
          New chat
        </a>
      </header>
      <div class="turns" ref={place} tabIndex={-1}>
        {turns.value.length === 0 && (
          <Start agent={known.find((each) => each.id === chosen)} onChoose={(text) => (draft.value = text)} />
        )}
        {hasEarlier.value && (
          <p class="task">
            <a href={hasExtension.value ? href(["contexts", contextId]) : href(["tasks"], { agent: chosen })}>Earlier messages</a>
          </p>
        )}
        {turns.value.map((turn, n) => (
          <TaskView
            key={turn.task.messages[0]?.id ?? turn.task.id ?? n}
            followed={turn}
            onFollow={(next) => (turns.value = turns.value.map((each) => (each === turn ? next : each)))}
          />
        ))}
      </div>
      <div class="composer-place">
        <Composer
          key={`${edits.value} ${draft.value}`}
          placeholder={isAsked ? "It asks something: answer above" : isBusy ? "Add to what it works on" : edits.value ? "Rewrite the last message" : "Write a message"}
          initial={draft.value}
          initialFiles={edited.filter((part) => part.content?.$case !== "text" || part.filename)}
          waits={!chosen}
          closed={isAsked}
          onSend={say}
        >
          {isBusy ? (
            <button type="button" onClick={cancel}>
              Stop
            </button>
          ) : (
            last &&
            TERMINAL.has(last.task.state) && (
              <>
                {(hasExtension.value || turns.value.length === 1) && (
                  <button
                    type="button"
                    class="plain"
                    aria-pressed={edits.value}
                    title="Rewrite the last message, and continue from before it"
                    onClick={() => {
                      edits.value = !edits.value;
                      draft.value = edits.value ? textOf((last.task.messages.find((message) => message.role === "user")?.parts ?? []).filter((part) => !part.filename)) : "";
                    }}
                  >
                    {edits.value ? "Do not edit" : "Edit"}
                  </button>
                )}
                <button type="button" class="plain" onClick={again}>
                  Retry
                </button>
              </>
            )
          )}
        </Composer>
      </div>
    </div>
  );
}

/** The empty chat: the purpose of the agent, examples of messages, and recent conversations. */
function Start({ agent, onChoose }: { agent: Agent | undefined; onChoose: (text: string) => void }) {
  const examples = useSignal<string[]>([]);
  const recent = useSignal<Context[]>([]);
  useEffect(() => {
    examples.value = [];
    recent.value = [];
    if (!agent) return;
    ask<Card>("GET", here(agent.card)).then(
      (card) => (examples.value = (card.skills ?? []).flatMap((skill) => skill.examples ?? []).slice(0, 6)),
      () => undefined,
    );
    if (hasExtension.value === false) return;
    ask<{ contexts: Context[] }>("GET", `${EXTENSION}/contexts?pageSize=20`).then(
      ({ contexts }) => (recent.value = contexts.filter((each) => each.agents.includes(agent.id)).slice(0, 6)),
      () => undefined, // an older gateway
    );
  }, [agent?.id]);
  if (!agent) return <Empty title={agents.value ? "No agents" : "Reading…"} />;
  return (
    <Empty title={agent.name}>
      <p>{agent.description}</p>
      {examples.value.length > 0 && (
        <div class="choices examples">
          {examples.value.map((example) => (
            <button type="button" key={example} onClick={() => onChoose(example)}>
              {example}
            </button>
          ))}
        </div>
      )}
      {recent.value.length > 0 && (
        <nav class="recent" aria-label="Recent chats">
          <h3>Go on with</h3>
          {recent.value.map((each) => (
            <a key={each.id} class="one-line" href={href(["chat", agent.id, each.id])}>
              {each.title || each.id}
            </a>
          ))}
        </nav>
      )}
    </Empty>
  );
}
