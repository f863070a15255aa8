// Conversations of all agents, with their messages and artifacts.

import { useSignal } from "@preact/signals";
import { at, EXTENSION } from "../api/root";
import type { Context } from "../api/types";
import { Ago, ConfirmDelete, Empty, ListingProblem, More, Search, UsageText } from "../parts/ui";
import { remove } from "../state/deletion";
import { useRowKeys } from "../state/keys";
import { useListing } from "../state/list";
import { go, href, query } from "../state/route";
import { agentName } from "../state/store";

export function Contexts() {
  const search = query.value.get("q") ?? "";
  const listing = useListing<Context>(`${EXTENSION}/contexts?${search ? `query=${encodeURIComponent(search)}&` : ""}`, "contexts");
  const leaving = useSignal<Context | null>(null);
  const items = listing.items.value;
  const chosen = useRowKeys(items?.length ?? 0, (n) => go(href(["contexts", items![n]!.id])));
  const one = leaving.value;
  return (
    <div class="page">
      <header class="page-head">
        <h1>Contexts</h1>
        <span class="spacer" />
        <Search what="contexts" />
      </header>
      <ListingProblem listing={listing} what="contexts" />
      {items?.length === 0 ? (
        <Empty title={search ? "No such contexts" : "No contexts yet"}>
          {search ? (
            <p>
              <a href={href(["contexts"])}>Show all</a>
            </p>
          ) : (
            <p>
              <a href={href(["chat"])}>Write to an agent</a>: what you say and what it does becomes a context.
            </p>
          )}
        </Empty>
      ) : (
        <div class="table-place" tabIndex={-1}>
          {items && (
            <table class="list">
              <thead>
                <tr>
                  <th>Context</th>
                  <th class="wide">Agents</th>
                  <th class="right wide">Tasks</th>
                  <th class="wide">Tokens and cost</th>
                  <th class="right">Changed</th>
                  <th>
                    <span class="visually-hidden">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {items.map((each, n) => (
                  <tr key={each.id} data-row={n} class={n === chosen ? "chosen" : ""} onClick={() => go(href(["contexts", each.id]))}>
                    <td class="title">
                      <a href={href(["contexts", each.id])}>{each.title || each.id}</a>
                    </td>
                    <td class="wide">{each.agents.map(agentName).join(", ")}</td>
                    <td class="right wide">{each.tasks}</td>
                    <td class="wide">
                      <UsageText usage={each.usage} />
                    </td>
                    <td class="right">
                      <Ago at={each.updatedAt} />
                    </td>
                    <td class="right">
                      <button
                        type="button"
                        class="plain"
                        onClick={(event) => {
                          event.stopPropagation();
                          leaving.value = each;
                        }}
                      >
                        Delete
                      </button>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
          <More listing={listing} />
        </div>
      )}
      {one && (
        <ConfirmDelete
          title="Delete this context?"
          text={`“${one.title || one.id}”, with its ${one.tasks} tasks, artifacts and files. What still runs is stopped. It cannot be undone.`}
          onYes={() => void remove(at`/contexts/${one.id}`, "The context").then((done) => (done ? listing.load() : undefined))}
          onClose={() => (leaving.value = null)}
        />
      )}
    </div>
  );
}
