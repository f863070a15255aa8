// Usage of a task, by model and tool.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type UsageReport, usageOf } from "../state/events";
import { words } from "../state/store";
import { duration, money, Problem, short } from "./ui";

export function UsageView({ taskId, version, owner = "" }: { taskId: string; version: number; owner?: string }) {
  const report = useSignal<UsageReport | null>(null);
  const error = useSignal("");
  useEffect(() => {
    const timer = setTimeout(() => {
      usageOf(taskId, owner).then(
        (found) => {
          report.value = found;
          error.value = "";
        },
        (failure: unknown) => (error.value = words(failure)),
      );
    }, 300);
    return () => clearTimeout(timer);
  }, [taskId, version]);
  const found = report.value;
  if (!found) return <Problem text={error.value} />;
  const cost = (value: number | null) => (value === null ? "unknown" : money(value));
  return (
    <div class="usage-tables">
      <table>
        <thead>
          <tr>
            <th>Model</th>
            <th class="right">Calls</th>
            <th class="right">Tokens in</th>
            <th class="right">Tokens out</th>
            <th class="right">Cost</th>
          </tr>
        </thead>
        <tbody>
          {found.models.map((each) => (
            <tr key={each.model}>
              <td>{each.model}</td>
              <td class="right">{each.calls}</td>
              <td class="right">{short(each.inputTokens)}</td>
              <td class="right">{short(each.outputTokens)}</td>
              <td class="right">{cost(each.cost)}</td>
            </tr>
          ))}
          <tr class="total">
            <td>in all</td>
            <td />
            <td class="right">{short(found.total.inputTokens)}</td>
            <td class="right">{short(found.total.outputTokens)}</td>
            <td class="right">{cost(found.total.cost)}</td>
          </tr>
        </tbody>
      </table>
      {found.tools.length > 0 && (
        <table>
          <thead>
            <tr>
              <th>Tool</th>
              <th class="right">Calls</th>
              <th class="right">Failures</th>
              <th class="right">Time</th>
              <th class="right">Cost</th>
            </tr>
          </thead>
          <tbody>
            {found.tools.map((each) => (
              <tr key={each.tool}>
                <td>
                  <code>{each.tool}</code>
                </td>
                <td class="right">{each.calls}</td>
                <td class="right">{each.failures || ""}</td>
                <td class="right">{duration(each.seconds)}</td>
                <td class="right">{each.cost ? cost(each.cost) : ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}
