// Remedies of operators for stuck tasks: each with its effect, and a note if one is useful.

import { useState } from "preact/hooks";
import type { OperatorAction, OperatorTask } from "../api/types";
import { help } from "../state/operator";
import { toast } from "../state/store";
import { Ago, FormDialog } from "./ui";

const ACTIONS: Record<OperatorAction, [label: string, what: string]> = {
  resume: ["Resume", "The task goes on: what failed is tried again."],
  skip: ["Skip the call", "The call that does not end gets your note as its result, and the task goes on without it. Its effect may have happened."],
  reset: ["Reset", "The task goes on from before its failure. Calls that ended well are not made again."],
  cancel: ["Cancel", "The task ends now. Calls that run are stopped."],
};

export function StuckView({ task, onHelped }: { task: OperatorTask; onHelped?: () => void }) {
  const [chosen, setChosen] = useState<OperatorAction | null>(null);
  if (!task.stuck) return null;
  return (
    <section class="stuck" aria-label="The task is stuck">
      <p>
        {task.stuck.why}{" "}
        <span class="quiet">
          · for <Ago at={task.stuck.since} />
        </span>
      </p>
      <div class="choices">
        {task.stuck.actions.map((action, n) => (
          <button type="button" key={action} class={n === 0 ? "primary" : ""} onClick={() => setChosen(action)}>
            {ACTIONS[action]?.[0] ?? action}
          </button>
        ))}
      </div>
      {chosen && (
        <HelpDialog
          task={task.id}
          action={chosen}
          {...(task.stuck.callId ? { callId: task.stuck.callId } : {})}
          onClose={(done) => {
            setChosen(null);
            if (done) onHelped?.();
          }}
        />
      )}
    </section>
  );
}

type HelpProps = { task: string; action: OperatorAction; callId?: string; onClose: (done: boolean) => void };

export function HelpDialog({ task, action, callId, onClose }: HelpProps) {
  const [note, setNote] = useState("");
  const [label, what] = ACTIONS[action];
  async function act(): Promise<void> {
    const body = { skip: { ...(callId ? { callId } : {}), note }, reset: { to: "lastGood" }, resume: {}, cancel: {} }[action];
    toast(await help(task, action, body));
    onClose(true);
  }
  return (
    <FormDialog title={label} submit={label} disabled={action === "skip" && !note.trim()} onSubmit={act} onClose={() => onClose(false)}>
      <p>{what}</p>
      {action === "skip" && (
        <label>
          <span>Note (the model reads it)</span>
          <textarea rows={3} value={note} onInput={(event) => setNote(event.currentTarget.value)} />
        </label>
      )}
      <p class="quiet">The task’s events record who did this, and when.</p>
    </FormDialog>
  );
}
