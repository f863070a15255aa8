// The bytes of files in the SDK.

import { expect, it } from "vitest";
import { Buffer } from "../src/shims";

it("are written as base64 and read again, whatever they are and however many", () => {
  const bytes = Uint8Array.from({ length: 100_000 }, (_, n) => n % 256);
  const text = Buffer.from(bytes).toString();
  expect(text).toBe(btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")));
  expect([...Buffer.from(text)]).toEqual([...bytes]);
});
