// Artifacts in the store, of one context or of all.

import { useSignal } from "@preact/signals";
import type { Part } from "../api/a2a";
import { at, EXTENSION } from "../api/root";
import type { StoredArtifact } from "../api/types";
import { remove } from "../state/deletion";
import { useListing } from "../state/list";
import { filter, href, query } from "../state/route";
import { FilePart } from "./content/file";
import { Ago, bytes, ConfirmDelete, Empty, ListingProblem, More } from "./ui";

export function ArtifactList({ contextId = "", search = "" }: { contextId?: string; search?: string }) {
  const listing = useListing<StoredArtifact>(`${EXTENSION}/artifacts?${contextId ? `contextId=${encodeURIComponent(contextId)}&` : ""}`, "artifacts");
  const leaving = useSignal<StoredArtifact | null>(null);
  const words = search.toLowerCase();
  const items = listing.items.value?.filter((each) => !words || `${each.name} ${each.artifactId} ${each.description}`.toLowerCase().includes(words));
  const open = query.value.get("open") ?? "";
  const one = leaving.value;
  return (
    <div class="turns tab-wide" tabIndex={-1}>
      <ListingProblem listing={listing} what="list of artifacts" />
      {items?.length === 0 && (
        <Empty title={words ? "No such artifacts" : "No artifacts"}>
          <p>Files, documents and tables that agents make show here, and what you sent them.</p>
        </Empty>
      )}
      <div class="artifacts">
        {items?.map((each) => {
          const key = `${each.contextId}/${each.artifactId}`;
          return (
            <section class="artifact" key={key}>
              <header class="artifact-head">
                <button type="button" class="plain artifact-name one-line" aria-expanded={open === key} onClick={() => filter({ open: open === key ? "" : key })}>
                  <span class="tree-sign">{open === key ? "▾" : "▸"}</span> {each.name || each.artifactId}
                </button>
                {each.status !== "complete" && <span class="badge">{each.status === "failed" ? "unfinished" : "being written"}</span>}
                <span class="spacer" />
                <span class="quiet wide artifact-type">{typesOf(each)}</span>
                <span class="quiet artifact-size">{bytes(each.parts.reduce((sum, part) => sum + (part.size ?? 0), 0))}</span>
                <span class="quiet artifact-age">
                  <Ago at={each.updatedAt} />
                </span>
                <button type="button" class="plain" onClick={() => (leaving.value = each)}>
                  Delete
                </button>
              </header>
              {open === key && (
                <div class="artifact-body">
                  {each.description && <p class="quiet">{each.description}</p>}
                  {each.parts.map((part, n) => (
                    <FilePart key={n} part={urlPart(each, part)} size={part.size ?? null} rows={part.rows} open />
                  ))}
                  <p class="quiet">
                    <a href={href(["contexts", each.contextId])}>Context</a>
                  </p>
                </div>
              )}
            </section>
          );
        })}
      </div>
      <More listing={listing} />
      {one && (
        <ConfirmDelete
          title={`Delete ${one.name || one.artifactId}?`}
          text="It cannot be undone. Tasks keep what they have read of it."
          onYes={() => void remove(at`/artifacts/${one.contextId}/${one.artifactId}`, "The artifact").then((done) => (done ? listing.load() : undefined))}
          onClose={() => (leaving.value = null)}
        />
      )}
    </div>
  );
}

function typesOf(artifact: StoredArtifact): string {
  return [...new Set(artifact.parts.map((part) => part.mediaType.split(";")[0] || part.kind))].join(", ");
}

/** The text of an agent's artifact is Markdown unless its media type says otherwise. */
function urlPart(artifact: StoredArtifact, { url, mediaType, filename, kind }: StoredArtifact["parts"][number]): Part {
  const type = kind === "rows" ? "application/x-ndjson" : kind === "data" ? "application/json" : kind === "text" && !mediaType ? "text/markdown" : mediaType;
  return { content: { $case: "url", value: url }, metadata: undefined, filename: filename || artifact.name || artifact.artifactId, mediaType: type };
}
