// Tasks of all owners, for operators: stuck tasks, the reasons, and remedies.

import { useSignal } from "@preact/signals";
import { Fragment } from "preact";
import { EXTENSION } from "../api/root";
import type { OperatorTask } from "../api/types";
import { HelpDialog, StuckView } from "../parts/help";
import { Ago, AgentOptions, Empty, ListingProblem, More, WireState } from "../parts/ui";
import { useListing } from "../state/list";
import { filter, href, query } from "../state/route";
import { agentName } from "../state/store";

const STATES = ["submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled", "rejected"];

export function Operator() {
  const asked = query.value;
  const all = asked.get("show") === "all";
  const chosen = ["state", "agent", "owner"].flatMap((name) => (asked.get(name) ? [`${name}=${encodeURIComponent(asked.get(name)!)}&`] : []));
  const listing = useListing<OperatorTask>(`${EXTENSION}/operator/tasks?${all ? chosen.join("") : "stuck=true&"}`, "tasks");
  const ending = useSignal<OperatorTask | null>(null);
  const items = listing.items.value;
  return (
    <div class="page">
      <header class="page-head">
        <h1>Operator</h1>
        <nav class="switch" aria-label="Which tasks">
          <a href={href(["operator"])} aria-current={all ? undefined : "page"}>
            Stuck
          </a>
          <a href={href(["operator"], { show: "all" })} aria-current={all ? "page" : undefined}>
            All owners
          </a>
        </nav>
        <span class="spacer" />
        {all && (
          <>
            <input
              id="search"
              placeholder="Owner"
              aria-label="Owner"
              value={asked.get("owner") ?? ""}
              onChange={(event) => filter({ owner: event.currentTarget.value.trim() })}
            />
            <select aria-label="State" value={asked.get("state") ?? ""} onChange={(event) => filter({ state: event.currentTarget.value })}>
              <option value="">any state</option>
              {STATES.map((state) => (
                <option key={state} value={state}>
                  {state.replace("-", " ")}
                </option>
              ))}
            </select>
            <select aria-label="Agent" value={asked.get("agent") ?? ""} onChange={(event) => filter({ agent: event.currentTarget.value })}>
              <option value="">any agent</option>
              <AgentOptions />
            </select>
          </>
        )}
      </header>
      <ListingProblem listing={listing} what="operators" />
      {items?.length === 0 && (
        <Empty title={all ? "No such tasks" : "Nothing is stuck"}>
          <p>{all ? "No owner has one." : "A task that cannot go on by itself shows here, with why and what helps."}</p>
        </Empty>
      )}
      {!!items?.length && (
        <div class="table-place" tabIndex={-1}>
          <table class="list">
            <thead>
              <tr>
                <th>State</th>
                <th>Task</th>
                <th class="wide">Owner</th>
                <th class="wide">Agent</th>
                <th class="right">Changed</th>
                <th>
                  <span class="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {items.map((each) => (
                <Fragment key={each.id}>
                  <tr class={each.stuck ? "has-more" : ""}>
                    <td>
                      <WireState state={each.state} isMine={false} />
                    </td>
                    <td class="title">
                      <a href={href(["operator", each.id], { owner: each.owner, agent: each.agent })}>{each.title || each.id}</a>
                      {each.waitsFor && <div class="quiet one-line">waits for {each.waitsFor}</div>}
                    </td>
                    <td class="wide">{each.owner}</td>
                    <td class="wide">{agentName(each.agent)}</td>
                    <td class="right">
                      <Ago at={each.updatedAt} />
                    </td>
                    <td class="right">
                      {!/completed|failed|canceled|rejected/.test(each.state) && !each.stuck && (
                        <button type="button" class="plain" onClick={() => (ending.value = each)}>
                          Cancel
                        </button>
                      )}
                    </td>
                  </tr>
                  {each.stuck && (
                    <tr>
                      <td colspan={6}>
                        <StuckView task={each} onHelped={() => void listing.load()} />
                      </td>
                    </tr>
                  )}
                </Fragment>
              ))}
            </tbody>
          </table>
          <More listing={listing} />
        </div>
      )}
      {ending.value && (
        <HelpDialog
          task={ending.value.id}
          action="cancel"
          onClose={() => {
            ending.value = null;
            void listing.load();
          }}
        />
      )}
    </div>
  );
}
