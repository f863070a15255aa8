// One task: messages, steps, questions, answer.

import { useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { dataPart, TaskState, textPart } from "../api/a2a";
import { type Artifact, asksOwner, questionsOf, TERMINAL, textOf, WAITING } from "../state/fold";
import { send } from "../state/store";
import type { Followed } from "../state/stream";
import { Markdown } from "./content/markdown";
import { Parts } from "./content/parts";
import { type Given, QuestionForm } from "./question";
import { RunView, SaidView } from "./run";
import { Problem, StateBadge, UsageText } from "./ui";

/** Shows a task and follows it. `onFollow` gets the task that follows after an answer. */
export function TaskView({ followed, onFollow }: { followed: Followed; onFollow: (next: Followed) => void }) {
  const version = followed.version.value;
  const { task } = followed;
  const live = !TERMINAL.has(task.state) && !WAITING.has(task.state);
  const first = task.messages.filter((message) => message.role === "user").slice(0, 1);
  const inRun = new Set(task.run.steps.map((step) => step.key));
  const wasFollowed = task.run.steps.some((step) => step.kind === "said");
  // The agent's texts beside its calls are already among them.
  const said = new Set(task.run.steps.flatMap((step) => (step.kind === "text" ? [step.text.trim()] : [])));
  const later = task.messages.filter(
    (message) =>
      !first.includes(message) &&
      !(message.role === "agent" && said.has(textOf(message.parts).trim())) &&
      !inRun.has(message.id) &&
      !(wasFollowed && questionsOf(message.parts).length),
  );
  return (
    <article class="task">
      {first.map((message) => (
        <div class="message user" key={message.id}>
          <Parts parts={message.parts} markdown={false} />
        </div>
      ))}
      <div class="message agent">
        <RunView run={task.run} live={live} version={version} task={task.id} />
        {later.map((message) => (
          <SaidView key={message.id} message={message} />
        ))}
        {task.narration && live && <p class="narration">{task.narration}</p>}
        {task.answer && (
          <div class="answer">
            <Parts parts={task.answer.parts} done={task.answer.complete} />
          </div>
        )}
        {live && !task.answer && !["ended", "lost"].includes(followed.connection.value) && <Working followed={followed} />}
        {task.questions.map((question) => (
          <QuestionForm
            key={question.id}
            question={question}
            onGiven={async (given) => onFollow(answer(followed, question.id, question.kind, given))}
          />
        ))}
        {task.artifacts.length > 0 && (
          <div class="artifacts">
            {task.artifacts.map((artifact) => (
              <ArtifactView key={artifact.id} artifact={{ ...artifact }} open={!artifact.complete || (!task.answer && isText(artifact))} />
            ))}
          </div>
        )}
        {task.state === TaskState.TASK_STATE_COMPLETED && !task.answer && task.statusText && <Markdown text={task.statusText} />}
        {task.state === TaskState.TASK_STATE_FAILED || task.state === TaskState.TASK_STATE_REJECTED ? (
          <Problem text={task.statusText || "The task failed."} />
        ) : null}
        {task.leftOut && <p class="quiet">{task.leftOut}</p>}
        <Problem text={followed.connection.value === "lost" ? followed.error.value || "The connection is lost; it is made again." : ""} />
        {followed.connection.value === "ended" && !TERMINAL.has(task.state) && <Problem text={followed.error.value} />}
        {task.state !== TaskState.TASK_STATE_UNSPECIFIED && (
          <p class="task-foot">
            <StateBadge state={task.state} isMine={asksOwner(task.questions)} /> <UsageText usage={task.usage} />
          </p>
        )}
      </div>
    </article>
  );
}

/** Agents of other servers answer with any artifact, or with the message of the last status. */
function isText({ parts }: Artifact): boolean {
  return parts.some((part) => part.content?.$case === "text" && !part.filename);
}

export function ArtifactView({ artifact, open }: { artifact: Artifact; open: boolean }) {
  return (
    <details class="artifact" open={open}>
      <summary>
        {artifact.name || artifact.id}
        {!artifact.complete && <span class="quiet"> {artifact.failed ? "unfinished" : "being written…"}</span>}
      </summary>
      {artifact.description && <p class="quiet">{artifact.description}</p>}
      <Parts parts={artifact.parts} done={artifact.complete} open={open} />
    </details>
  );
}

function Working({ followed }: { followed: Followed }) {
  const { task } = followed;
  const said = task.state === TaskState.TASK_STATE_SUBMITTED ? "Waiting for a worker…" : "Working…";
  return (
    <p class="working" aria-live="polite">
      <span class="pulse" /> {said}
    </p>
  );
}

function answer(followed: Followed, id: string, kind: string, given: Given): Followed {
  const metadata = id ? { question: id } : undefined;
  const where = { task: followed, ...(metadata ? { metadata } : {}) };
  if ("secret" in given) return send(followed.agent, [id ? dataPart({ question: id, answer: given.secret }) : textPart(`secret: ${given.secret}`)], where);
  if ("approved" in given) return send(followed.agent, [dataPart({ approved: given.approved, ...(given.note ? { note: given.note } : {}) })], where);
  if (typeof given.answer === "string" && kind !== "data") return send(followed.agent, [textPart(given.answer)], where);
  return send(followed.agent, [dataPart(given.answer)], where);
}

/** Keeps the end of the content in view while it grows, unless the user has scrolled away from it. */
export function useStickToEnd(version: { value: number }, isWanted = true): { place: { current: HTMLDivElement | null } } {
  const place = useRef<HTMLDivElement | null>(null);
  const sticks = useSignal(true);
  useEffect(() => {
    sticks.value = isWanted;
    if (!isWanted) place.current?.scrollTo({ top: 0 });
  }, [isWanted]);
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const onScroll = () => {
      sticks.value = isWanted && element.scrollHeight - element.scrollTop - element.clientHeight < 80;
    };
    element.addEventListener("scroll", onScroll, { passive: true });
    return () => element.removeEventListener("scroll", onScroll);
  }, [isWanted]);
  useSignalEffect(() => {
    void version.value;
    if (!sticks.peek()) return;
    requestAnimationFrame(() => {
      const element = place.current;
      const asked = element?.querySelector(".question");
      // A long question is shown from its beginning, and the buttons follow at its end.
      if (asked && asked.clientHeight > element!.clientHeight) asked.scrollIntoView({ block: "start" });
      else element?.scrollTo({ top: element.scrollHeight });
    });
  });
  return { place };
}
