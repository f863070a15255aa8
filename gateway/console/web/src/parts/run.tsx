// What an agent does: its thoughts, calls and words in the order in which they began; sub-agents within the calls.

import { useState } from "preact/hooks";
import { agentName } from "../state/store";
import type { Call, Run, Step } from "../state/fold";
import { Markdown } from "./markdown";
import { SaidView } from "./said";
import { bytes, duration, Json } from "./ui";

/** `version` changes when anything of the run does: its parts are changed in place. */
export function RunView({ run, live, version }: { run: Run; live: boolean; version: number }) {
  return (
    <div class="run">
      {run.steps.map((step, n) => (
        <StepView key={step.key} step={step} live={live && n === run.steps.length - 1} version={version} />
      ))}
    </div>
  );
}

function StepView({ step, live, version }: { step: Step; live: boolean; version: number }) {
  switch (step.kind) {
    case "thought":
      return <Thought text={step.text} live={live && !step.done} />;
    case "text":
      return <Markdown text={step.text} done={!live} />;
    case "call":
      return <CallCard call={step.call} live={live} version={version} />;
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
      <div class="thought-text">{text}</div>
    </details>
  );
}

const SIGNS: Record<Call["state"], string> = { asked: "○", running: "◐", ok: "✓", failed: "✕" };
const WORDS: Record<Call["state"], string> = { asked: "asked for", running: "running", ok: "done", failed: "failed" };

export function CallCard({ call, live, version }: { call: Call; live: boolean; version: number }) {
  const [open, setOpen] = useState(false);
  const last = call.progress.at(-1);
  const seconds = call.startedAt && call.endedAt ? (Date.parse(call.endedAt) - Date.parse(call.startedAt)) / 1000 : null;
  return (
    <section class={`call ${call.state}`}>
      <button type="button" class="call-head" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span class="sign" role="img" aria-label={WORDS[call.state]}>
          {SIGNS[call.state]}
        </span>
        <code class="call-name">{call.name}</code>
        <span class="call-arguments">{call.arguments === "{}" ? "" : call.arguments}</span>
        <span class="call-facts">
          {call.attempt > 1 && <span>attempt {call.attempt}</span>}
          {call.cached && <span>cached</span>}
          {seconds !== null && <span>{duration(seconds)}</span>}
        </span>
      </button>
      {last && call.state === "running" && <p class="progress">{last}</p>}
      {call.state === "failed" && !open && <p class="call-error">{firstLine(call.result) || call.outcome}</p>}
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
                <p class="quiet">
                  The beginning of {bytes(call.size)}.
                  {call.url && (
                    <>
                      {" "}
                      <a href={call.url} target="_blank" rel="noopener">
                        All of it
                      </a>
                    </>
                  )}
                </p>
              )}
            </>
          )}
        </div>
      )}
      {call.inner && (
        <div class="inner">
          <p class="inner-head">
            {agentName(call.inner.agent) || "sub-agent"} {call.inner.state && <span class="quiet">{call.inner.state}</span>}
          </p>
          <RunView run={call.inner} live={live} version={version} />
        </div>
      )}
    </section>
  );
}

function firstLine(text: string): string {
  const line = text.split("\n", 1)[0] ?? "";
  return line.length > 200 ? `${line.slice(0, 200)}…` : line;
}
