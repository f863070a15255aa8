// All events of a task. Only visible ones are in the document.

import { useMemo, useState } from "preact/hooks";
import type { TaskEvent } from "../state/events";
import { JsonTree } from "./content/text";
import { Empty } from "./ui";
import { Virtual } from "./virtual";

export function Events({ events, isCut }: { events: readonly TaskEvent[]; isCut: boolean }) {
  const [words, setWords] = useState("");
  const wanted = words.trim().toLowerCase();
  const found = useMemo(() => (wanted ? events.filter((event) => `${event.type} ${summary(event)}`.toLowerCase().includes(wanted)) : events), [events, wanted]);
  if (!events.length) return <Empty title="No events" />;
  return (
    <div class="event-list">
      <p class="event-search">
        <input
          type="search"
          id="search"
          placeholder="Type or words"
          aria-label="Search events"
          value={words}
          onInput={(event) => setWords(event.currentTarget.value)}
        />
        <span class="quiet" role="status">
          {wanted ? `${found.length} of ${events.length} events` : `${events.length} events`}
        </span>
      </p>
      <Virtual items={found} keyOf={(event) => event.id} height={30}>
        {(event) => <EventRow event={event} />}
      </Virtual>
      {isCut && <p class="quiet">The first {events.length} events. Read on with the API: GET /everloop/v1/tasks/…/events?after=ID</p>}
    </div>
  );
}

function EventRow({ event }: { event: TaskEvent }) {
  const [open, setOpen] = useState(false);
  return (
    <div class="event">
      <button type="button" class="event-head" aria-expanded={open} onClick={() => setOpen(!open)}>
        <time dateTime={event.at}>{clock(event.at)}</time>
        <span class="event-type">{event.type}</span>
        <span class={`${event.data["isError"] || event.data["error"] ? "why" : "quiet"} one-line`}>{summary(event)}</span>
      </button>
      {open && <JsonTree value={event.data} />}
    </div>
  );
}

function clock(at: string): string {
  const date = new Date(at);
  return `${date.toLocaleTimeString([], { hour12: false })}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** A short text that distinguishes an event from others of its type. */
function summary({ data }: TaskEvent): string {
  if (data["role"] === "operator") return `operator ${data["by"] ?? ""}: ${data["action"] ?? data["signal"] ?? ""} ${data["note"] ?? ""}`;
  if (data["isReset"]) return `reset by ${data["by"] || "an operator"}`;
  const calls = (data["toolCalls"] as { name: string }[] | undefined)?.map((call) => call.name).join(", ");
  const told = data["name"] ?? data["state"] ?? (data["text"] || calls) ?? data["model"] ?? data["artifactId"] ?? data["agentId"] ?? data["role"];
  const more = data["error"] ?? data["result"] ?? data["arguments"] ?? data["summary"] ?? "";
  return `${told ?? ""} ${typeof more === "string" ? more : JSON.stringify(more)}`.trim().slice(0, 300);
}
