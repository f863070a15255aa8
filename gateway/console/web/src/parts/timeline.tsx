// Where the time of a task went, iteration by iteration.

import { bars, type TaskEvent } from "../state/events";
import { duration, Empty } from "./ui";

const NAMES = { model: "model", tool: "tool", wait: "wait" };

export function Timeline({ events, isOpen }: { events: readonly TaskEvent[]; isOpen: boolean }) {
  const found = bars(events, isOpen ? Date.now() : Date.parse(events.at(-1)?.at ?? new Date().toISOString()));
  if (!found.length)
    return (
      <Empty title="Nothing has happened yet">
        <p>Each call of a model or tool gets a bar here, from its start to its end.</p>
      </Empty>
    );
  const start = Math.min(...found.map((bar) => bar.from));
  const whole = Math.max(...found.map((bar) => bar.to)) - start || 1;
  const sums = { model: 0, tool: 0, wait: 0 };
  for (const bar of found) sums[bar.kind] += bar.to - bar.from;
  return (
    <div>
      <p class="quiet sums">
        {duration(whole / 1000)} in all: {duration(sums.model / 1000)} model, {duration(sums.tool / 1000)} tools
        {sums.wait > 0 && `, ${duration(sums.wait / 1000)} waiting for people`}
      </p>
      <table class="timeline">
        <thead class="visually-hidden">
          <tr>
            <th>Iteration</th>
            <th>What</th>
            <th>When</th>
            <th>How long</th>
          </tr>
        </thead>
        <tbody>
          {found.map((bar, n) => (
            <tr key={bar.key}>
              <td class="quiet right">{bar.iteration && bar.iteration !== found[n - 1]?.iteration ? bar.iteration : ""}</td>
              <td class={bar.kind === "tool" ? "depth-1" : ""}>
                {bar.kind === "tool" ? <code>{bar.name}</code> : bar.name}
                {bar.attempts > 1 && <span class="quiet"> {bar.attempts} attempts</span>}
              </td>
              <td class="bar-place">
                <svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={NAMES[bar.kind]}>
                  <rect
                    class={`bar ${bar.failed ? "failed" : bar.kind}`}
                    x={(100 * (bar.from - start)) / whole}
                    y="1"
                    width={Math.max(0.4, (100 * (bar.to - bar.from)) / whole)}
                    height="8"
                  />
                </svg>
              </td>
              <td class="right" title={bar.note}>
                {duration((bar.to - bar.from) / 1000)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
