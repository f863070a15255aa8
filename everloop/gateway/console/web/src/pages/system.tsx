// System health for operators: the servers, the workers of each queue, and its backlog.

import { href } from "../state/route";
import { isOperator, loadSystem, stuck, system, systemProblem } from "../state/operator";
import { agentName } from "../state/store";
import { Ago, duration, Empty, Problem } from "../parts/ui";
import type { System as SystemReport } from "../api/types";

export function SystemPage() {
  const known = system.value;
  if (isOperator.value === false)
    return (
      <Empty title="This page is for operators">
        <p>It requires credentials with the scope admin, and a gateway that reports on itself.</p>
        <p class="quiet">{systemProblem.value}</p>
        <button type="button" onClick={() => void loadSystem()}>
          Try again
        </button>
      </Empty>
    );
  return (
    <div class="page">
      <header class="page-head">
        <h1>System</h1>
        <span class="spacer" />
        {known?.temporalUi && (
          <a href={known.temporalUi} target="_blank" rel="noopener noreferrer">
            Temporal’s UI
          </a>
        )}
      </header>
      <Problem text={systemProblem.value} retry={() => void loadSystem()} />
      {known && (
        <div class="turns tab-wide" tabIndex={-1}>
          <Health report={known} />
          <Queues report={known} />
          <Workers report={known} />
          <h2>Versions</h2>
          <dl class="pairs">
            {Object.entries(known.versions).map(([part, version]) => (
              <div key={part}>
                <dt>{spaced(part)}</dt>
                <dd>{version ?? "unknown"}</dd>
              </div>
            ))}
          </dl>
        </div>
      )}
    </div>
  );
}

function Health({ report }: { report: SystemReport }) {
  const tasks = Object.entries(report.tasks).filter(([, count]) => count);
  return (
    <>
      <ul class="tiles" aria-label="Health">
        {report.health.map((each) => (
          <li key={each.name} class={`tile ${each.ok ? "good" : "bad"}`}>
            <b>{spaced(each.name)}</b>
            <span>{each.ok ? "answers" : "does not answer"}</span>
            {each.detail && <small>{each.detail}</small>}
          </li>
        ))}
        <li class={`tile ${stuck.value.length ? "bad" : "good"}`}>
          <b>{stuck.value.length} stuck</b>
          <a href={href(["operator"])}>{stuck.value.length ? "See why, and help" : "All tasks get on"}</a>
        </li>
      </ul>
      {tasks.length > 0 && (
        <>
          <h2>Runs of tasks</h2>
          <ul class="tiles" aria-label="Runs of tasks">
            {tasks.map(([state, count]) => (
              <li key={state} class="tile">
                <b>{count}</b>
                <a href={href(["operator"], { show: "all", state })}>{state.replace(/-/g, " ")}</a>
              </li>
            ))}
          </ul>
          <p class="note">Sub-agents have tasks of their own. One that was reset has two runs: the one before has failed.</p>
        </>
      )}
    </>
  );
}

function Queues({ report }: { report: SystemReport }) {
  return (
    <>
      <h2>Queues</h2>
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Queues">
        <table>
          <thead>
            <tr>
              <th>Queue</th>
              <th>Work</th>
              <th>Agents</th>
              <th class="right">Workers</th>
              <th class="right">Backlog</th>
              <th class="right">Oldest waits</th>
            </tr>
          </thead>
          <tbody>
            {report.queues.map((queue) => (
              <tr key={`${queue.name} ${queue.kind}`}>
                <td>
                  <code>{queue.name}</code>
                </td>
                <td>{queue.kind}</td>
                <td>{queue.agents.map(agentName).join(", ") || "all"}</td>
                <td class="right">{queue.workers ? queue.workers : <span class="badge bad">no workers</span>}</td>
                <td class="right">{queue.backlog}</td>
                <td class="right">{queue.oldest === null || !queue.backlog ? "–" : duration(Number(queue.oldest))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function Workers({ report }: { report: SystemReport }) {
  return (
    <>
      <h2>Workers</h2>
      {report.workers.length === 0 ? (
        <p class="problem">No worker polls. Tasks wait until one is started: everloop worker.</p>
      ) : (
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Workers">
          <table>
            <thead>
              <tr>
                <th>Worker</th>
                <th>Queues</th>
                <th>Version</th>
                <th class="right">Last seen</th>
              </tr>
            </thead>
            <tbody>
              {report.workers.map((worker) => (
                <tr key={worker.identity}>
                  <td>
                    <code>{worker.identity}</code>
                  </td>
                  <td class="wraps">{worker.queues.join(", ")}</td>
                  <td>{worker.version ?? ""}</td>
                  <td class="right">
                    <Ago at={worker.lastSeen} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

/** Writes a program's name as words. */
function spaced(name: string): string {
  return name.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
}
