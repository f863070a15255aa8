// The login page, for a key or a token.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { logIn, loginProblem } from "../api/auth";
import { problem } from "../state/store";

export function Login() {
  const secret = useSignal("");
  const field = useRef<HTMLInputElement>(null);
  // Browsers apply `autofocus` once per page, but a login may fail, or end.
  useEffect(() => field.current?.focus(), []);
  return (
    <main class="login" tabIndex={-1}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const given = secret.value.trim();
          // A JWT has two dots; keys of Everloop have none.
          secret.value = "";
          logIn({ kind: given.split(".").length === 3 ? "token" : "key", secret: given });
        }}
      >
        <h1>Everloop</h1>
        <p>This gateway requires a login. Paste an API key, or a token.</p>
        <input
          ref={field}
          type="password"
          autocomplete="off"
          aria-label="API key or token"
          value={secret.value}
          onInput={(event) => (secret.value = event.currentTarget.value)}
        />
        <button class="primary" disabled={!secret.value.trim()}>
          Continue
        </button>
        {(loginProblem.value || problem.value) && (
          <p class="call-error" role="alert">
            {loginProblem.value || problem.value}
          </p>
        )}
        <p class="quiet">It is kept for this tab, until you close it, and sent to this gateway alone.</p>
      </form>
    </main>
  );
}
