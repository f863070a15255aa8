// Who is logged in: a key or a token of the user's, kept for this tab alone, never in a cookie.

import { signal } from "@preact/signals";

export type Login = { kind: "key" | "token"; secret: string };

const PLACE = "everloop.login";

/** The login of this tab; null: nobody is, which a gateway without authentication does not mind. */
export const login = signal<Login | null>(read());

/** Whether a server wants a login. */
export const loginWanted = signal(false);

/** Why the login that there was is none any more. */
export const loginProblem = signal("");

export function logIn(given: Login): void {
  login.value = given;
  loginWanted.value = false;
  loginProblem.value = "";
  try {
    sessionStorage.setItem(PLACE, JSON.stringify(given));
  } catch {
    // storage is blocked: it lasts as long as the page
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

/** The server does not know us, or no longer, and says why; `asked` is the login that it was asked with. */
export function forget(asked: Login | null, why: string): void {
  if (login.value !== asked) return; // another one was given meanwhile
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
