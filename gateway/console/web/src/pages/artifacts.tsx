// All artifacts of the user, the newest first.

import { ArtifactList } from "../parts/artifacts";
import { filter, query } from "../state/route";

export function Artifacts() {
  const search = query.value.get("q") ?? "";
  return (
    <div class="page">
      <header class="page-head">
        <h1>Artifacts</h1>
        <span class="spacer" />
        <input
          type="search"
          id="search"
          placeholder="Search"
          aria-label="Search artifacts"
          value={search}
          onInput={(event) => filter({ q: event.currentTarget.value })}
        />
      </header>
      <ArtifactList search={search} contextId={query.value.get("context") ?? ""} />
    </div>
  );
}
