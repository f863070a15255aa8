// Where the gateway is, and what is asked of it over HTTP.

import { credentials, forget, login } from "./auth";

/** The path of the gateway's root, with a slash at its end, as the page that it served says. */
export const ROOT = document.querySelector<HTMLMetaElement>('meta[name="everloop-root"]')?.content || "/";

export const EXTENSION = `${ROOT}everloop/v1`;

/** What a server refused, or that it was not reached (status 0). `reason` is its name for programs. */
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

/** Fetches from this gateway, and from nobody else, as the user who is logged in; an answer of 401 ends the login. */
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

/** Returns an address as it is at this gateway, which may have another name in it than here. */
export function here(url: string): string {
  const { pathname, search } = new URL(url, location.href);
  return location.origin + pathname + search;
}

/** Asks the extension, or whatever else answers with JSON, and nobody's cache. */
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

/** Reads an error as REST of A2A 1.0 has it. */
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

/** Returns an address below the extension; ids are one segment each, whatever they hold. */
export function at(strings: TemplateStringsArray, ...ids: string[]): string {
  return EXTENSION + strings.reduce((path, text, n) => path + text + (n < ids.length ? encodeURIComponent(ids[n]!) : ""), "");
}
