// One conversation in full: its messages with authors and times, its tasks, its artifacts, and its retention.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { ask, at } from "../api/root";
import type { Context, Spoken, WirePart } from "../api/types";
import { saveJson } from "../parts/content/file";
import { Markdown } from "../parts/content/markdown";
import { Json } from "../parts/content/text";
import { ArtifactList } from "../parts/artifacts";
import { CallCard } from "../parts/run";
import { TaskRows } from "../parts/tasks";
import { Ago, ConfirmDelete, Empty, FormDialog, ListingProblem, More, Problem, Tabs, UsageText } from "../parts/ui";
import { remove } from "../state/deletion";
import { type Call, endCall, newCall } from "../state/fold";
import { readPages, useListing } from "../state/list";
import { go, href, query, subject } from "../state/route";
import { agentName, toast, words } from "../state/store";

const TABS = ["conversation", "tasks", "artifacts"];

export function ContextPage({ id }: { id: string }) {
  const context = useSignal<Context | null>(null);
  const error = useSignal("");
  const dialog = useSignal<"" | "change" | "delete">("");
  const tab = query.value.get("tab") ?? "conversation";
  async function load(): Promise<void> {
    try {
      context.value = (await ask<{ context: Context }>("GET", at`/contexts/${id}`)).context;
      error.value = "";
    } catch (failure) {
      error.value = words(failure);
    }
  }
  useEffect(() => void load(), [id]);
  const known = context.value;
  useEffect(() => {
    subject.value = known?.title ?? "";
    return () => (subject.value = "");
  }, [known?.title]);
  return (
    <div class="page">
      <header class="page-head">
        <a href={href(["contexts"])} aria-label="Back to contexts">
          ←
        </a>
        <h1 class="one-line">{known?.title || id}</h1>
        <span class="spacer" />
        {known?.agents[0] && <a href={href(["chat", known.agents[0], id])}>Chat</a>}
        <button type="button" disabled={!known} onClick={() => (dialog.value = "change")}>
          Change
        </button>
        <button type="button" onClick={() => void exported(id)}>
          Export
        </button>
        <button type="button" onClick={() => (dialog.value = "delete")}>
          Delete
        </button>
      </header>
      <Problem text={error.value} retry={() => void load()} />
      {known && (
        <div class="facts">
          <span>{known.agents.map(agentName).join(", ")}</span>
          <span>
            {known.tasks} {known.tasks === 1 ? "task" : "tasks"}
          </span>
          <UsageText usage={known.usage} />
          <Ago at={known.updatedAt} />
          <span>{known.retention ? `kept for ${known.retention}` : "kept as long as the server keeps it"}</span>
        </div>
      )}
      <Tabs label="Parts of the context" names={TABS} />
      {tab === "conversation" && <Conversation id={id} />}
      {tab === "tasks" && <TaskRows contextId={id} />}
      {tab === "artifacts" && <ArtifactList contextId={id} />}
      {dialog.value === "change" && known && (
        <Change
          context={known}
          onClose={(changed) => {
            dialog.value = "";
            if (changed) context.value = changed;
          }}
        />
      )}
      {dialog.value === "delete" && (
        <ConfirmDelete
          title="Delete this context?"
          text="Its tasks, artifacts and files are deleted, too. Running tasks are stopped. It cannot be undone."
          onYes={() => void remove(at`/contexts/${id}`, "The context").then((done) => done && go(href(["contexts"])))}
          onClose={() => (dialog.value = "")}
        />
      )}
    </div>
  );
}

function Conversation({ id }: { id: string }) {
  const listing = useListing<Spoken>(`${at`/contexts/${id}/messages`}?`, "messages");
  const calls = useMemo(() => new Map<string, Call>(), [id]);
  const items = joined(listing.items.value, calls);
  return (
    <div class="turns" tabIndex={-1}>
      <ListingProblem listing={listing} what="conversations" />
      {items?.length === 0 && <Empty title="Nothing was said" />}
      <div class="task">
        {items?.map((each, n) => (
          <SpokenView key={`${each.taskId} ${n}`} spoken={each} calls={calls} isNew={each.taskId !== items[n - 1]?.taskId} />
        ))}
      </div>
      <More listing={listing} />
    </div>
  );
}

/** Joins results with their calls, and returns them with all other messages. */
function joined(items: Spoken[] | null, calls: Map<string, Call>): Spoken[] | null {
  return (
    items?.filter((each) => {
      for (const { id, name, arguments: given } of each.toolCalls ?? []) {
        const key = callKey(each, id);
        if (!calls.has(key)) calls.set(key, newCall(id, name, given));
      }
      const call = each.role === "tool" && calls.get(callKey(each, each.callId));
      if (call && !call.outcome) endCall(call, { outcome: each.outcome ?? (each.isError ? "error" : "ok"), result: each.result });
      return !call;
    }) ?? null
  );
}

function callKey({ taskId }: Spoken, call = ""): string {
  return `${taskId} ${call}`;
}

function SpokenView({ spoken, calls, isNew }: { spoken: Spoken; calls: Map<string, Call>; isNew: boolean }) {
  return (
    <>
      {isNew && spoken.taskId && (
        <p class="spoken-head quiet">
          <a href={href(["tasks", spoken.agent, spoken.taskId])}>{agentName(spoken.agent)}</a> <Ago at={spoken.at ?? undefined} />
        </p>
      )}
      {spoken.role === "approver" || spoken.role === "operator" ? (
        <p class="note">
          {spoken.by || spoken.role} {spoken.approved === undefined ? (spoken.signal ?? "") : spoken.approved ? "approved" : "rejected"}
          {spoken.note && `: ${spoken.note}`}
        </p>
      ) : spoken.role === "user" ? (
        <div class="message user">
          <div class="said">{wordsOf(spoken)}</div>
        </div>
      ) : spoken.role === "tool" ? (
        <details class="call spoken-call">
          <summary class="call-head">
            <code class="call-name">{spoken.name || spoken.callId}</code>
            <span class="call-arguments">{(spoken.result ?? "").slice(0, 200)}</span>
          </summary>
          <div class="call-body">
            <Json text={spoken.result ?? ""} />
          </div>
        </details>
      ) : (
        <div class="message agent">
          {spoken.thought && (
            <details class="thought">
              <summary>Thought</summary>
              <div class="thought-text">{spoken.thought}</div>
            </details>
          )}
          {wordsOf(spoken) && <Markdown text={wordsOf(spoken)} />}
          {spoken.toolCalls?.map(({ id }) => (
            <CallCard key={id} call={calls.get(callKey(spoken, id))!} live={false} version={0} task={spoken.taskId} />
          ))}
        </div>
      )}
    </>
  );
}

function wordsOf(spoken: Spoken): string {
  const parts = (spoken.message?.parts ?? []).map((part: WirePart) => part.text ?? part.filename ?? (part.data === undefined ? "" : JSON.stringify(part.data)));
  return spoken.text || spoken.summary || parts.filter(Boolean).join("\n");
}

function Change({ context, onClose }: { context: Context; onClose: (changed: Context | null) => void }) {
  const [title, setTitle] = useState(context.title);
  const [retention, setRetention] = useState(context.retention ?? "");
  async function change(): Promise<void> {
    const body = { title, retention: retention.trim() || null };
    onClose((await ask<{ context: Context }>("PATCH", at`/contexts/${context.id}`, body)).context);
    toast("It is changed.");
  }
  return (
    <FormDialog title="Change the context" onSubmit={change} onClose={() => onClose(null)}>
      <label>
        <span>Title</span>
        <input value={title} onInput={(event) => setTitle(event.currentTarget.value)} />
      </label>
      <label>
        <span>Kept after the last change</span>
        <input value={retention} placeholder="as long as the server keeps it" onInput={(event) => setRetention(event.currentTarget.value)} />
        <small>such as 12h or 30d</small>
      </label>
    </FormDialog>
  );
}

/** Downloads the whole conversation as JSON. */
async function exported(id: string): Promise<void> {
  try {
    const { items: messages } = await readPages<Spoken>(`${at`/contexts/${id}/messages`}?`, "messages");
    const { context } = await ask<{ context: Context }>("GET", at`/contexts/${id}`);
    saveJson({ context, messages }, `context-${id}.json`);
  } catch (failure) {
    toast(words(failure), "error");
  }
}
