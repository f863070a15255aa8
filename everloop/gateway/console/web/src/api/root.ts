// The address of the gateway, and HTTP requests to it.

import { credentials, forget, login } from "./auth";

/** The path of the gateway's root, with a slash at its end, from the page that it served. */
export const ROOT = document.querySelector<HTMLMetaElement>('meta[name="everloop-root"]')?.content || "/";

export const EXTENSION = `${ROOT}everloop/v1`;

/** A refusal of the server, or a failed connection (status 0). `reason` is its code for programs. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly reason = "",
    readonly retryAfter = 0,
  ) {
    super(message);
  }
}

/** Fetches from this gateway, and from no other host, with the user's login. An answer of 401 ends the login. */
export async function authorized(input: RequestInfo | URL, init: RequestInit = {}): Promise<Response> {
  const { origin } = new URL(input instanceof Request ? input.url : input, location.href);
  if (origin !== location.origin) throw new ApiError(0, `${origin} is another server: it is not asked, and gets no key.`);
  const headers = new Headers(init.headers);
  const asked = login.value;
  for (const [name, value] of Object.entries(credentials())) if (!headers.has(name)) headers.set(name, value);
  let response: Response;
  try {
    response = await fetch(input, { ...init, headers, credentials: "omit", mode: "same-origin" }); // redirects, too
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, "The gateway cannot be reached. It is tried again.");
  }
  if (response.status === 401) forget(asked, (await refusal(response.clone())).message);
  return response;
}

/** Returns an address at this gateway under the name of this page, which may differ from the public one. */
export function here(url: string): string {
  const { pathname, search } = new URL(url, location.href);
  return location.origin + pathname + search;
}

/** Fetches JSON, from the extension or elsewhere, without any cache. */
export async function ask<T>(method: string, url: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = { method, headers: { Accept: "application/json" }, cache: "no-cache" };
  if (signal) init.signal = signal;
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...init.headers, "Content-Type": "application/json" };
  }
  const response = await authorized(url, init);
  if (!response.ok) throw await refusal(response);
  return response.status === 204 ? (undefined as T) : ((await response.json()) as T);
}

/** Reads an error in the format of REST of A2A 1.0. */
export async function refusal(response: Response): Promise<ApiError> {
  let message = `${response.status} ${response.statusText}`.trim();
  let reason = "";
  try {
    const { error } = (await response.json()) as { error?: { message?: string; details?: { reason?: string }[] } };
    message = error?.message || message;
    reason = error?.details?.find((each) => each.reason)?.reason || "";
  } catch {
    // no JSON: a proxy answered
  }
  return new ApiError(response.status, message, reason, Number(response.headers.get("Retry-After")) || 0);
}

/** Returns an address below the extension. Each id is one segment, whatever characters it contains. */
export function at(strings: TemplateStringsArray, ...ids: string[]): string {
  return EXTENSION + strings.reduce((path, text, n) => path + text + (n < ids.length ? encodeURIComponent(ids[n]!) : ""), "");
}
