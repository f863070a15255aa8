// One task in full: conversation, timeline, events, usage, artifacts, and actions.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { cancelTask, TaskState } from "../api/a2a";
import { Events } from "../parts/events";
import { ForkDialog } from "../parts/fork";
import { ArtifactView, TaskView, useStickToEnd } from "../parts/task";
import { Timeline } from "../parts/timeline";
import { exportTask } from "../parts/export";
import { StuckView } from "../parts/help";
import { Ago, ConfirmDelete, Empty, limitsOf, NeedsExtension, Problem, StateBadge, Tabs, UsageText } from "../parts/ui";
import { UsageView } from "../parts/usage";
import { hasExtension } from "../api/catalogue";
import { at } from "../api/root";
import { remove } from "../state/deletion";
import { type Beginning, beginningOf, TaskEvents } from "../state/events";
import { stuck, temporalLink } from "../state/operator";
import { asksOwner, TERMINAL, textOf } from "../state/fold";
import { go, href, query, subject } from "../state/route";
import { agentName, copy, followTask, toast, words } from "../state/store";
import type { Followed } from "../state/stream";

const TABS = ["conversation", "timeline", "events", "artifacts", "usage"];
/** States that A2A does not have. */
const OF_EXTENSION = ["timeline", "events", "usage"];
const REFRESH = 1500;

export function TaskPage({ agent, id }: { agent: string; id: string }) {
  const first = useMemo(() => followTask(agent, id), []);
  const followed = useSignal<Followed>(first);
  const dialog = useSignal<"" | "fork" | "delete">("");
  /** The last iteration of a fork. Null: the last one of the task. */
  const keeps = useSignal<number | null>(null);
  const beginning = useSignal<Beginning | null>(null);
  useEffect(() => {
    if (followed.value.task.id !== id) followed.value = followTask(agent, id);
    beginning.value = null;
    beginningOf(id).then((found) => (beginning.value = found), () => undefined);
  }, [agent, id]);
  const one = followed.value;
  const version = one.version.value;
  const { task } = one;
  const isPlain = hasExtension.value === false;
  const asked = query.value.get("tab") ?? "conversation";
  const tab = isPlain && OF_EXTENSION.includes(asked) ? "" : asked;
  const { place } = useStickToEnd(one.version, tab === "conversation");
  const events = useMemo(() => new TaskEvents(id), [id]);
  const isOpen = !TERMINAL.has(task.state);
  const title = textOf(task.messages.find((message) => message.role === "user")?.parts ?? []).split("\n", 1)[0] || id;
  useEffect(() => {
    subject.value = title;
    return () => (subject.value = "");
  }, [title]);
  const needsHelp = stuck.value.find((each) => each.id === id);
  const wantsEvents = tab === "timeline" || tab === "events";

  useEffect(() => {
    if (!wantsEvents) return;
    void events.load();
    if (!isOpen) return;
    const timer = setInterval(() => void events.load(), REFRESH);
    return () => clearInterval(timer);
  }, [wantsEvents, events, isOpen]);

  async function cancel(): Promise<void> {
    try {
      await cancelTask(agent, id);
    } catch (error) {
      toast(words(error), "error");
    }
  }

  return (
    <div class="page">
      <header class="page-head">
        <a href={href(["tasks"])} aria-label="Back to tasks">
          ←
        </a>
        <h1 class="one-line">{title}</h1>
        <span class="spacer" />
        {task.contextId && <a href={href(["chat", agent, task.contextId])}>Chat</a>}
        {!isPlain && (
          <button
            type="button"
            onClick={() => {
              keeps.value = null;
              dialog.value = "fork";
            }}
          >
            Fork
          </button>
        )}
        <button type="button" onClick={() => void exportTask(agent, id)}>
          Export
        </button>
        {!isPlain && (
          <button type="button" onClick={() => (dialog.value = "delete")}>
            Delete
          </button>
        )}
        {isOpen && task.state !== TaskState.TASK_STATE_UNSPECIFIED && (
          <button type="button" onClick={cancel}>
            Cancel
          </button>
        )}
      </header>
      <div class="facts">
        <StateBadge state={task.state} isMine={asksOwner(task.questions)} />
        <span>{agentName(agent)}</span>
        {task.run.model && <span>{task.run.model}</span>}
        {task.run.iteration > 0 && <span>iteration {task.run.iteration}</span>}
        <UsageText usage={task.usage} />
        <Ago at={task.updatedAt} />
        {beginning.value?.agentVersion && <span title="The version of the agent that the task began with">version {beginning.value.agentVersion.slice(0, 12)}</span>}
        {limitsOf(beginning.value?.limits) && <span title="Limits of the agent">at most {limitsOf(beginning.value?.limits)}</span>}
        {task.origin && <a href={href(["tasks", agent, task.origin.taskId])}>fork</a>}
        {temporalLink(id) && (
          <a href={temporalLink(id)} target="_blank" rel="noopener noreferrer">
            Temporal
          </a>
        )}
        <button
          type="button"
          class="plain id"
          title="Copy the id"
          onClick={() => void copy(id).then((done) => done && toast("The id is copied."))}
        >
          {id}
        </button>
      </div>
      {needsHelp && (
        <div class="page-part">
          <StuckView task={needsHelp} onHelped={() => (followed.value = followTask(agent, id))} />
        </div>
      )}
      <Tabs label="Parts of the task" names={isPlain ? TABS.filter((name) => !OF_EXTENSION.includes(name)) : TABS} counts={{ artifacts: task.artifacts.length }} />
      <div class={`turns tab-${tab}`} ref={place} tabIndex={-1}>
        {!tab && <NeedsExtension what={asked} />}
        {wantsEvents && <Problem text={events.error.value} retry={() => void events.load()} />}
        {tab === "timeline" && (
          <Timeline
            events={events.events.value}
            isOpen={isOpen}
            onFork={(iteration) => {
              keeps.value = iteration;
              dialog.value = "fork";
            }}
          />
        )}
        {tab === "events" && <Events events={events.events.value} isCut={events.isCut.value} />}
        {tab === "usage" && <UsageView taskId={id} version={version} />}
        {tab === "artifacts" &&
          (task.artifacts.length ? (
            <div class="artifacts">
              {task.artifacts.map((artifact) => (
                <ArtifactView key={artifact.id} artifact={{ ...artifact }} open />
              ))}
            </div>
          ) : (
            <Empty title="No artifacts">
              <p>Files, documents and tables that the agent makes show here.</p>
            </Empty>
          ))}
        {tab === "conversation" && <TaskView followed={one} onFollow={(next) => (followed.value = next)} />}
      </div>
      {dialog.value === "fork" && <ForkDialog agent={agent} id={id} last={keeps.value ?? task.run.iteration} onClose={() => (dialog.value = "")} />}
      {dialog.value === "delete" && (
        <ConfirmDelete
          title="Delete this task?"
          text="Its data and artifacts are deleted. If it runs it is stopped. It cannot be undone."
          onYes={() => void remove(at`/tasks/${id}`, "The task").then((done) => done && go(href(["tasks"])))}
          onClose={() => (dialog.value = "")}
        />
      )}
    </div>
  );
}
