// Time and cost of a task, iteration by iteration.

import { useMemo } from "preact/hooks";
import { type Bar, bars, type TaskEvent } from "../state/events";
import { duration, Empty, money, short } from "./ui";
import { Virtual } from "./virtual";

const NAMES = { model: "model", tool: "tool", wait: "wait" };

const ROW = 26;

type Props = { events: readonly TaskEvent[]; isOpen: boolean; onFork?: (iteration: number) => void };

export function Timeline({ events, isOpen, onFork }: Props) {
  const found = useMemo(() => bars(events, isOpen ? Date.now() : Date.parse(events.at(-1)?.at ?? new Date().toISOString())), [events, isOpen]);
  if (!found.length)
    return (
      <Empty title="Nothing has happened yet">
        <p>Each call of a model or tool gets a bar here, from its start to its end.</p>
      </Empty>
    );
  const start = found.reduce((least, bar) => Math.min(least, bar.from), Infinity);
  const whole = found.reduce((most, bar) => Math.max(most, bar.to), 0) - start || 1;
  const dearest = found.reduce((most, bar) => Math.max(most, bar.cost ?? 0), 0);
  return (
    <div class="timeline">
      <Sums found={found} whole={whole} />
      <div class="timeline-head" aria-hidden="true">
        <span />
        <span />
        <span class="axis">
          <span>0</span>
          <span>{duration(whole / 2000)}</span>
          <span>{duration(whole / 1000)}</span>
        </span>
        <span class="right">Time</span>
        <span class="right">Tokens</span>
        <span class="right">Cost</span>
      </div>
      <Virtual items={found} keyOf={(bar) => bar.key} height={ROW}>
        {(bar, n) => (
          <div class="timeline-row">
            <span class="quiet right" title="Iteration">
              {bar.iteration && bar.iteration !== found[n - 1]?.iteration ? bar.iteration : ""}
            </span>
            <span class={`one-line ${bar.kind === "tool" ? "depth-1" : ""}`}>
              {bar.kind === "tool" ? <code>{bar.name}</code> : bar.name}{" "}
              {bar.failed && <span class="badge bad">failed</span>}
              {bar.attempts > 1 && <span class="badge asks">{bar.attempts} attempts</span>}
              {onFork && bar.kind === "model" && !bar.failed && (
                <button type="button" class="plain fork-here" title={`Fork: keep all up to iteration ${bar.iteration}`} onClick={() => onFork(bar.iteration)}>
                  Fork here
                </button>
              )}
            </span>
            <svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={NAMES[bar.kind]}>
              <rect
                class={`bar ${bar.failed ? "failed" : bar.kind}`}
                x={(100 * (bar.from - start)) / whole}
                y="1"
                width={Math.max(0.4, (100 * (bar.to - bar.from)) / whole)}
                height="8"
              />
            </svg>
            <span class="right">{duration((bar.to - bar.from) / 1000)}</span>
            <span class="right quiet">{bar.tokens ? short(bar.tokens) : ""}</span>
            <span class={`right ${bar.cost && bar.cost === dearest ? "" : "quiet"}`}>{bar.cost ? money(bar.cost) : ""}</span>
            {bar.why && (
              <span class="why one-line" title={bar.why}>
                {bar.why}
              </span>
            )}
          </div>
        )}
      </Virtual>
    </div>
  );
}

/** Shows the shares of the time, as one bar and in words. */
function Sums({ found, whole }: { found: readonly Bar[]; whole: number }) {
  const sums = { model: 0, tool: 0, wait: 0 };
  let cost = 0;
  for (const bar of found) {
    sums[bar.kind] += bar.to - bar.from;
    cost += bar.cost ?? 0;
  }
  const busy = sums.model + sums.tool + sums.wait || 1;
  const retries = found.reduce((sum, bar) => sum + bar.attempts - 1, 0);
  let at = 0;
  return (
    <div class="sums">
      <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        {(["model", "tool", "wait"] as const).map((kind) => {
          const width = (100 * sums[kind]) / busy;
          at += width;
          return <rect key={kind} class={`bar ${kind}`} x={at - width} y="0" width={width} height="6" />;
        })}
      </svg>
      <p>
        {duration(whole / 1000)} in all <span class="key model">model {duration(sums.model / 1000)}</span>
        <span class="key tool">tools {duration(sums.tool / 1000)}</span>
        {sums.wait > 0 && <span class="key wait">waiting for people {duration(sums.wait / 1000)}</span>}
        {retries > 0 && <span>{retries === 1 ? "1 retry" : `${retries} retries`}</span>}
        {cost > 0 && <span>{money(cost)}</span>}
      </p>
    </div>
  );
}
