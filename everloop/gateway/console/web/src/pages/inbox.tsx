// Questions and approvals of all tasks that wait for the user.

import { useEffect } from "preact/hooks";
import { EXTENSION } from "../api/root";
import type { Context } from "../api/types";
import { QuestionForm } from "../parts/question";
import { Ago, Empty, Problem } from "../parts/ui";
import { answerWaiting, inbox, inboxProblem, keyOf, loadInbox, notifies } from "../state/inbox";
import { useListing } from "../state/list";
import { href } from "../state/route";
import { agentName, toast } from "../state/store";

export function Inbox() {
  useEffect(() => void loadInbox(), []);
  // A question does not contain the title of its task, but its context has one.
  const contexts = useListing<Context>(`${EXTENSION}/contexts?`, "contexts").items.value ?? [];
  return (
    <div class="page">
      <header class="page-head">
        <h1>Inbox</h1>
        <span class="spacer" />
        {typeof Notification !== "undefined" && (
          <label class="check-line">
            <input type="checkbox" checked={notifies.value} onChange={(event) => void choose(event.currentTarget.checked)} /> Notify me
          </label>
        )}
      </header>
      <Problem text={inboxProblem.value} retry={() => void loadInbox()} />
      {inbox.value?.length === 0 && (
        <Empty title="Nothing waits for you">
          <p>Approvals and questions of all tasks show here, and in the title of this tab.</p>
        </Empty>
      )}
      <div class="turns" tabIndex={-1}>
        {(inbox.value ?? []).map((waiting) => (
          <article key={keyOf(waiting)} class="waiting">
            <p class="quiet waiting-head">
              <a href={href(["tasks", waiting.agent, waiting.taskId])}>
                {agentName(waiting.agent)}: {contexts.find((each) => each.id === waiting.contextId)?.title || waiting.taskId}
              </a>
              {waiting.scope !== "owner" && <> · for {waiting.scope}</>} · <Ago at={waiting.askedAt} />
            </p>
            <QuestionForm
              question={{
                id: waiting.questionId,
                kind: waiting.kind,
                text: waiting.text,
                purpose: waiting.purpose,
                options: waiting.options ?? [],
                json_schema: waiting.kind === "data" ? (waiting.answerSchema ?? null) : null,
                tool: waiting.tool,
                arguments: waiting.arguments,
              }}
              onGiven={async (given) => {
                await answerWaiting(waiting, given);
                toast("Answered.");
              }}
            />
          </article>
        ))}
      </div>
    </div>
  );
}

async function choose(wanted: boolean): Promise<void> {
  const allowed = !wanted || (await Notification.requestPermission()) === "granted";
  if (!allowed) toast("The browser does not allow notifications of this page.", "error");
  notifies.value = wanted && allowed;
}
