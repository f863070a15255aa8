// The user's login is sent to this gateway only.

import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { logIn, logOut } from "../src/api/auth";
import { authorized, here } from "../src/api/root";

const fetched = vi.fn(async (..._: [RequestInfo | URL, RequestInit?]) => new Response());
beforeEach(() => {
  (window as unknown as { happyDOM: { setURL: (url: string) => void } }).happyDOM.setURL("https://agents.example/console");
  vi.stubGlobal("fetch", fetched);
  logIn({ kind: "key", secret: "k3y" });
});
afterEach(() => {
  logOut();
  fetched.mockClear();
  vi.unstubAllGlobals();
});

const key = () => new Headers(fetched.mock.calls[0]![1]!.headers).get("X-API-Key");

it.each(["/agents", "https://agents.example/agents", new URL("https://agents.example/x"), new Request("https://agents.example/x")])("%s gets the key", async (address) => {
  await authorized(address);
  expect(key()).toBe("k3y");
  expect(fetched.mock.calls[0]![1]!.mode).toBe("same-origin");
});

it.each(["//evil.example/x", "https://evil.example/agents", "http://agents.example/x", "https://agents.example:8443/x", "https://agents.example@evil.example/", "\\\\evil.example\\x", new Request("https://evil.example")])(
  "%s is not asked",
  async (address) => {
    await expect(authorized(address)).rejects.toThrow("another server");
    expect(fetched).not.toHaveBeenCalled();
  },
);

it.each([
  ["https://other.name/artifacts/a?b=c", "https://agents.example/artifacts/a?b=c"],
  ["https://other.name//evil.example/x", "https://agents.example//evil.example/x"],
  ["//evil.example/x", "https://agents.example/x"],
  ["/artifacts/a", "https://agents.example/artifacts/a"],
])("%s is asked of this gateway", (url, asked) => expect(here(url)).toBe(asked));
