// Texts that people decide by; the same table as in `tests/unit/runtime/test_printable.py`.

import { expect, it } from "vitest";
import { printable } from "../src/state/printable";

it.each([
  ["to alice", "to alice"],
  ["to \u202eecila", "to \\u202eecila"],
  ["\u2066alice\u2069", "\\u2066alice\\u2069"],
  ["ali\u200bce", "ali\\u200bce"],
  ["ali\u00adce\ufeff", "ali\\u00adce\\ufeff"],
  ["ali\ufe0fce", "ali\\ufe0fce"],
  ["alice\u3164\u2800\u034f", "alice\\u3164\\u2800\\u034f"],
  ["alice\u{e0061}\u{e0100}", "alice\\udb40\\udc61\\udb40\\udd00"],
  ["a\u00a0b\u3000c", "a\\u00a0b\\u3000c"],
  ["a\tb\nc\rd\x1b[2J\x00", "a\\tb\\nc\\rd\\u001b[2J\\u0000"],
  ["a\u2028b\u0085", "a\\u2028b\\u0085"],
  ["half \ud800", "half \\ud800"],
  ["Müller, 東京, שלום, ⚠️ ❤️ 👍🏽, e\u0301", "Müller, 東京, שלום, ⚠️ ❤️ 👍🏽, e\u0301"],
])("what is not seen is escaped as in JSON: %j", (text, shown) => {
  expect(printable(text)).toBe(shown);
});

it("line breaks stay where a text has lines", () => {
  expect(printable("a\nb\u200b\r\n", true)).toBe("a\nb\\u200b\\r\n");
});
