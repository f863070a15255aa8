// What one side said in the course of a task: the words of the user, and what the agent asked.

import { questionsOf, type Said } from "../state/fold";
import { Parts } from "./content/parts";

export function SaidView({ message }: { message: Said }) {
  const asked = questionsOf(message.parts);
  if (asked.length)
    return (
      <div class="asked-before">
        {asked.map((question) => (
          <p key={question.id}>{question.text}</p>
        ))}
      </div>
    );
  const verdict = verdictOf(message);
  return (
    <div class={`message ${message.role} later`}>
      {verdict ? <p>{verdict}</p> : <Parts parts={message.parts} markdown={message.role === "agent"} />}
    </div>
  );
}

/** Returns a yes or no in words. */
function verdictOf({ parts }: Said): string {
  const content = parts.length === 1 ? parts[0]!.content : undefined;
  const data = content?.$case === "data" ? (content.value as { approved?: boolean; note?: string } | null) : null;
  if (typeof data?.approved !== "boolean") return "";
  return `${data.approved ? "Approved" : "Rejected"}${data.note ? `: ${data.note}` : ""}`;
}
