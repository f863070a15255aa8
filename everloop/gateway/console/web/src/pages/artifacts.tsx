// All artifacts of the user, the newest first.

import { ArtifactList } from "../parts/artifacts";
import { Search } from "../parts/ui";
import { query } from "../state/route";

export function Artifacts() {
  return (
    <div class="page">
      <header class="page-head">
        <h1>Artifacts</h1>
        <span class="spacer" />
        <Search what="artifacts" />
      </header>
      <ArtifactList search={query.value.get("q") ?? ""} contextId={query.value.get("context") ?? ""} />
    </div>
  );
}
