// The steps of an agent: thoughts, calls and texts in the order of their start, with sub-agents within the calls.

import { Component } from "preact";
import { useState } from "preact/hooks";
import type { Part } from "../api/a2a";
import { oneLine } from "../state/events";
import { runOfCall } from "../state/past";
import { agentName, agents, toast, words } from "../state/store";
import { isOperator } from "../state/operator";
import { printable } from "../state/printable";
import { type Call, questionsOf, type Run, type Said, type Step } from "../state/fold";
import { Markdown } from "./content/markdown";
import { HelpDialog } from "./help";
import { FilePart } from "./content/file";
import { Parts } from "./content/parts";
import { Json } from "./content/text";
import { bytes, duration } from "./ui";

/** Steps that are drawn as one group. A finished group is not drawn again. */
const GROUP = 40;

/** `version` changes with each change in the run, whose parts are changed in place. */
export function RunView({ run, live, version, task }: { run: Run; live: boolean; version: number; task: string }) {
  const groups = Array.from({ length: Math.ceil(run.steps.length / GROUP) }, (_, n) => run.steps.slice(n * GROUP, (n + 1) * GROUP));
  return (
    <div class="run">
      {groups.map((steps, n) => (
        <Group key={n} steps={steps} live={live && n === groups.length - 1} version={isOver(steps) && n < groups.length - 1 ? 0 : version} task={task} />
      ))}
    </div>
  );
}

type GroupProps = { steps: readonly Step[]; live: boolean; version: number; task: string };

/** True if none of these steps can change any more. */
function isOver(steps: readonly Step[]): boolean {
  return steps.length === GROUP && steps.every((step) => step.kind !== "call" || (step.call.outcome && step.call.state !== "running"));
}

class Group extends Component<GroupProps> {
  override shouldComponentUpdate(next: GroupProps): boolean {
    const { steps, live, version } = this.props;
    return version !== 0 || next.version !== 0 || live !== next.live || steps[0]?.key !== next.steps[0]?.key || steps.length !== next.steps.length;
  }

  override render({ steps, live, version, task }: GroupProps) {
    return (
      <div class="run-group">
        {steps.map((step, n) => (
          <StepView key={step.key} step={step} live={live && n === steps.length - 1} version={version} task={task} />
        ))}
      </div>
    );
  }
}

type StepProps = { step: Step; live: boolean; version: number; task: string };

function StepView({ step, live, version, task }: StepProps) {
  switch (step.kind) {
    case "thought":
      return <Thought text={step.text} live={live && !step.done} />;
    case "text":
      return <Markdown text={step.text} done={!live} />;
    case "call":
      return <CallCard call={step.call} live={live} version={version} task={task} />;
    case "said":
      return <SaidView message={step.message} />;
    case "note":
      return <p class={`note ${step.tone}`}>{step.text}</p>;
  }
}

function Thought({ text, live }: { text: string; live: boolean }) {
  return (
    <details class="thought">
      <summary>{live ? "Thinking…" : "Thought"}</summary>
      <div class="thought-text" dir="auto">{text}</div>
    </details>
  );
}

const SIGNS: Record<Call["state"], string> = { asked: "○", running: "◐", ok: "✓", failed: "✕" };
const WORDS: Record<Call["state"], string> = { asked: "asked for", running: "running", ok: "done", failed: "failed" };

type CallProps = { call: Call; live: boolean; version: number; task: string };

export function CallCard({ call, live, version, task }: CallProps) {
  const [open, setOpen] = useState(false);
  const [skips, setSkips] = useState(false);
  const [loads, setLoads] = useState(false);
  /** Events before the page was opened. */
  async function showInner(): Promise<void> {
    setLoads(true);
    try {
      call.inner = (await runOfCall(task, call.id)) ?? undefined;
      if (!call.inner) toast("There are no events of it.");
    } catch (error) {
      toast(words(error), "error");
    }
    setLoads(false);
  }
  const last = call.progress.at(-1);
  const seconds = call.startedAt && call.endedAt ? (Date.parse(call.endedAt) - Date.parse(call.startedAt)) / 1000 : null;
  return (
    <section class={`call ${call.state}`}>
      <button type="button" class="call-head" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span class="sign" role="img" aria-label={WORDS[call.state]}>
          {SIGNS[call.state]}
        </span>
        <code class="call-name">{printable(call.name)}</code>
        <span class="call-arguments">{call.arguments === "{}" ? "" : printable(call.arguments)}</span>
        <span class="call-facts">
          {call.attempt > 1 && <span>attempt {call.attempt}</span>}
          {call.cached && <span>cached</span>}
          {seconds !== null && <span>{duration(seconds)}</span>}
        </span>
      </button>
      {last && call.state === "running" && <p class="progress">{last}</p>}
      {open && (call.state === "running" || call.state === "asked") && isOperator.value && (
        <p class="progress">
          <button type="button" onClick={() => setSkips(true)}>
            Skip this call
          </button>
        </p>
      )}
      {skips && <HelpDialog task={task} action="skip" callId={call.id} onClose={() => setSkips(false)} />}
      {call.state === "failed" && !open && <p class="call-error">{oneLine(call.result) || call.outcome}</p>}
      {open && (
        <div class="call-body">
          {call.arguments && (
            <>
              <h4>Arguments</h4>
              <Json text={call.arguments} />
            </>
          )}
          {call.outcome && (
            <>
              <h4>
                {call.outcome === "ok" ? "Result" : `Result: ${call.outcome}`}
                {call.raisedAt && <span class="quiet"> raised at {call.raisedAt}</span>}
              </h4>
              <Json text={call.result} />
              {call.cut && (
                <div class="quiet">
                  The beginning of {bytes(call.size)}.{call.url && <FilePart part={resultPart(call)} size={call.size} />}
                </div>
              )}
            </>
          )}
        </div>
      )}
      {open && call.outcome && !call.inner && agents.value?.some((agent) => agent.id === call.name) && (
        <p class="progress">
          <button type="button" disabled={loads} onClick={() => void showInner()}>
            What {agentName(call.name)} did
          </button>
        </p>
      )}
      {call.inner && (
        <div class="inner">
          <p class="inner-head">
            {agentName(call.inner.agent) || "sub-agent"} {call.inner.state && <span class="quiet">{call.inner.state}</span>}
          </p>
          <RunView run={call.inner} live={live} version={version} task={call.inner.task || task} />
        </div>
      )}
    </section>
  );
}

/** The complete result of a shortened one, as a file of this gateway. */
function resultPart(call: Call): Part {
  return { content: { $case: "url", value: call.url }, metadata: undefined, filename: `${call.name}.txt`, mediaType: "text/plain" };
}

/** A message in the course of a task: of the user, or a question of the agent. */
export function SaidView({ message }: { message: Said }) {
  const asked = questionsOf(message.parts);
  if (asked.length)
    return (
      <div class="asked-before">
        {asked.map((question) => (
          <p key={question.id}>{printable(question.text, true)}</p>
        ))}
      </div>
    );
  const verdict = verdictOf(message);
  return (
    <div class={`message ${message.role} later`}>
      {verdict ? <p>{verdict}</p> : <Parts parts={message.parts} markdown={message.role === "agent"} />}
    </div>
  );
}

/** Formats a yes or no as words. */
function verdictOf({ parts }: Said): string {
  const content = parts.length === 1 ? parts[0]!.content : undefined;
  const data = content?.$case === "data" ? (content.value as { approved?: boolean; note?: string } | null) : null;
  if (typeof data?.approved !== "boolean") return "";
  return `${data.approved ? "Approved" : "Rejected"}${data.note ? `: ${data.note}` : ""}`;
}
