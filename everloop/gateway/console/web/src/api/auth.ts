// The login: a key or a token of the user, stored for this tab only, never in a cookie.

import { signal } from "@preact/signals";

export type Login = { kind: "key" | "token"; secret: string };

const PLACE = "everloop.login";

/** The login of this tab, null if there is none, which is enough for a gateway without authentication. */
export const login = signal<Login | null>(read());

/** True if the server requires a login. */
export const loginWanted = signal(false);

/** The reason why the earlier login is no longer valid. */
export const loginProblem = signal("");

export function logIn(given: Login): void {
  login.value = given;
  loginWanted.value = false;
  loginProblem.value = "";
  try {
    sessionStorage.setItem(PLACE, JSON.stringify(given));
  } catch {
    // storage is blocked: it is kept as long as the page
  }
}

export function logOut(): void {
  login.value = null;
  loginWanted.value = true;
  try {
    sessionStorage.removeItem(PLACE);
  } catch {
    // as above
  }
}

/** Ends a login that the server has refused, for a reason; `asked` is the login of the request. */
export function forget(asked: Login | null, why: string): void {
  if (login.value !== asked) return; // the login was replaced meanwhile
  if (asked) {
    logOut();
    loginProblem.value = `The gateway does not take this key or token${why && `: ${why}`}`;
  }
  loginWanted.value = true;
}

/** Returns the headers of a request. */
export function credentials(): Record<string, string> {
  const known = login.value;
  if (!known) return {};
  return known.kind === "key" ? { "X-API-Key": known.secret } : { Authorization: `Bearer ${known.secret}` };
}

function read(): Login | null {
  try {
    return JSON.parse(sessionStorage.getItem(PLACE) || "null") as Login | null;
  } catch {
    return null;
  }
}
