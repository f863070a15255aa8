// Follows one task across lost connections: it subscribes again from the last event.

import { signal, type Signal } from "@preact/signals";
import { agentClient, EVENTS, type Message, noteIds, type StreamResponse } from "../api/a2a";
import { cardOf } from "../api/catalogue";
import { ApiError, ask, here } from "../api/root";
import { callsOf, fold, type TaskModel, TERMINAL, WAITING } from "./fold";
import { findSubAgents } from "./past";

export type Connection = "connecting" | "open" | "lost" | "ended";

/** A task that is shown. `version` changes with each change of `task`. */
export type Followed = {
  agent: string;
  task: TaskModel;
  version: Signal<number>;
  connection: Signal<Connection>;
  error: Signal<string>;
  close(): void;
};

const ACTIVATED: Record<string, string> = { "A2A-Extensions": EVENTS };
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15_000;
/** Updates the screen once a frame, however many tokens arrive. */
const onFrame = (work: () => void) => (document.hidden ? setTimeout(work, 100) : requestAnimationFrame(work));

/** Follows a task from its beginning, or sends the message that starts or continues it, and follows the result. */
export function follow(agent: string, task: TaskModel, message?: Message): Followed {
  const abort = new AbortController();
  const followed: Followed = {
    agent,
    task,
    version: signal(0),
    connection: signal<Connection>("connecting"),
    error: signal(""),
    close() {
      abort.abort();
      followed.connection.value = "ended";
    },
  };
  void run(followed, abort, message);
  return followed;
}

async function run(followed: Followed, abort: AbortController, message?: Message): Promise<void> {
  let lastId = "";
  let unsent = message;
  let pause = FIRST_PAUSE;
  let isDrawn = true;
  const changed = () => {
    if (!isDrawn) return;
    isDrawn = false;
    onFrame(() => {
      isDrawn = true;
      followed.version.value++;
    });
  };
  while (!abort.signal.aborted) {
    // A signal of this connection alone, which identifies the ids of its events.
    const connection = new AbortController();
    const stop = () => connection.abort();
    abort.signal.addEventListener("abort", stop);
    try {
      let id = "";
      if (followed.connection.value === "lost") {
        // A stream is silent until an event. Another request shows whether its gateway answers.
        await ask("GET", here(await cardOf(followed.agent)), undefined, connection.signal);
        followed.connection.value = "open";
        followed.error.value = "";
      }
      noteIds(connection.signal, (given) => (id = given));
      for await (const update of await open(followed, connection.signal, unsent, lastId)) {
        followed.connection.value = "open";
        followed.error.value = "";
        pause = FIRST_PAUSE;
        fold(followed.task, update);
        unsent = followed.task.id ? undefined : unsent;
        lastId = id || lastId;
        changed();
        if (update.payload?.$case === "message") return end(followed);
      }
      if (TERMINAL.has(followed.task.state)) {
        if (isBehind(followed.task)) await read(followed, { signal: connection.signal, serviceParameters: ACTIVATED }).catch(() => undefined);
        return end(followed);
      }
      if (!followed.task.id) throw new ApiError(0, "The stream ended before the task began.");
      // A turn has ended and the task waits, or the gateway stops: subscribe without an error message.
      pause = FIRST_PAUSE;
      if (WAITING.has(followed.task.state)) {
        if (isBehind(followed.task)) lastId = ""; // its result is read
        await sleep(pause);
        continue;
      }
    } catch (error) {
      if (abort.signal.aborted) return;
      const problem = error as Partial<ApiError> & Error;
      followed.error.value = problem.message;
      const status = isUnsupported(problem) ? 0 : (problem.status ?? 0);
      if (status >= 400 && status < 500 && status !== 408 && status !== 429) return end(followed);
      if (TERMINAL.has(followed.task.state)) return end(followed);
      if (isUnsupported(problem)) lastId = ""; // it has ended since: its result is read
      pause = Math.max(pause, (problem.retryAfter ?? 0) * 1000);
    } finally {
      abort.signal.removeEventListener("abort", stop);
      connection.abort();
    }
    followed.connection.value = "lost";
    await sleep(pause * (0.75 + Math.random() / 2));
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }
}

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

function end(followed: Followed): void {
  followed.connection.value = "ended";
  followed.version.value++;
}

/** True if the task can no longer be subscribed to, because it has ended. */
function isUnsupported(error: Error): boolean {
  return /UnsupportedOperation/i.test(error.name) || /publishes nothing more/.test(error.message);
}

/** True if calls may have ended unseen: a stream that a message opens starts at that message. */
function isBehind({ run, questions }: TaskModel): boolean {
  return callsOf(run).filter((call) => !call.outcome).length > questions.length;
}

/** Reads the current state of a task, with the steps of the events extension. */
async function read(followed: Followed, options: { signal: AbortSignal; serviceParameters: Record<string, string> }): Promise<void> {
  const client = await agentClient(followed.agent);
  const value = await client.getTask({ tenant: "", id: followed.task.id, historyLength: undefined }, options);
  fold(followed.task, { payload: { $case: "task", value } });
  followed.version.value++;
}

async function open(
  followed: Followed,
  signal: AbortSignal,
  message: Message | undefined,
  lastId: string,
): Promise<AsyncIterable<StreamResponse>> {
  const client = await agentClient(followed.agent);
  const options = { signal, serviceParameters: lastId ? { ...ACTIVATED, "Last-Event-ID": lastId } : ACTIVATED };
  if (message)
    return client.sendMessageStream({ tenant: "", message, configuration: undefined, metadata: undefined }, options);
  if (!lastId) {
    // A task that has ended cannot be subscribed to.
    await read(followed, options);
    if (!TERMINAL.has(followed.task.state)) findSubAgents(followed.task).then(() => followed.version.value++, () => undefined); // a server without the extension
  }
  if (TERMINAL.has(followed.task.state)) return none();
  return client.resubscribeTask({ tenant: "", id: followed.task.id }, options);
}

async function* none(): AsyncGenerator<StreamResponse> {}
