// Deletions: the gateway reports when nothing is left.

import { ApiError, ask, at } from "../api/root";
import type { Deletion } from "../api/types";
import { toast, words } from "./store";

const FIRST_PAUSE = 300;
const LONGEST_PAUSE = 1_000;
/** Seconds until a deletion is reported as still running. */
const LONGEST_TOAST = 3600;

/** Deletes the object at an address, waits for the end, and reports the deleted parts or the failure. */
export async function remove(url: string, what: string): Promise<boolean> {
  let told = (): void => undefined;
  try {
    let { deletion } = await ask<{ deletion: Deletion }>("DELETE", url);
    let pause = FIRST_PAUSE;
    if (deletion.state === "running") told = toast(`${what} is being deleted. That takes some seconds.`, "info", LONGEST_TOAST);
    while (deletion.state === "running") {
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, LONGEST_PAUSE);
      deletion = await progressOf(deletion);
    }
    if (deletion.state === "failed") throw new Error(`${what} could not be deleted whole. Delete it again: it is safe to repeat.`);
    toast(`${what} is deleted${counted(deletion.removed)}.`);
    return true;
  } catch (error) {
    const isOld = error instanceof ApiError && (error.status === 404 || error.status === 405) && error.reason !== "TASK_NOT_FOUND";
    toast(isOld ? `${what} is not here any more, or this gateway cannot delete it.` : words(error), "error");
    return false;
  } finally {
    told();
  }
}

/** Repeats a request to a gateway that does not answer. */
async function progressOf(known: Deletion): Promise<Deletion> {
  try {
    return (await ask<{ deletion: Deletion }>("GET", at`/deletions/${known.id}`)).deletion;
  } catch (error) {
    if (error instanceof ApiError && error.status && error.status < 500 && error.status !== 429) throw error;
    return known;
  }
}

/** Formats the deleted parts in words, without internal ones. */
export function counted(removed: { [kind: string]: number }): string {
  const named = ["tasks", "artifacts"].flatMap((kind) => {
    const count = removed[kind] ?? 0;
    return count ? [`${count} ${count === 1 ? kind.slice(0, -1) : kind}`] : [];
  });
  return named.length ? `, with ${named.join(" and ")}` : "";
}
