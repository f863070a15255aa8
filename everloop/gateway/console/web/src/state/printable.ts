// Makes invisible and reordering characters of a text visible: `printable` of
// `everloop/runtime/printable.py` in TypeScript.

/** Symbols that U+FE0F draws as emoji. */
const DRAWN = "\\u2190-\\u27ff\\u2900-\\u2bff\\u{1f000}-\\u{1faff}";
const UNSEEN = new RegExp(
  `(?<![${DRAWN}])\\ufe0f|(?!\\ufe0f)[\\p{C}\\p{Z}\\p{Default_Ignorable_Code_Point}\\u2800\\u{1d159}]`,
  "gu",
);
const SHORT: Record<string, string> = { " ": " ", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r" };

/** Escapes invisible and reordering characters, as in JSON. `lines`: line breaks stay. */
export function printable(text: string, lines = false): string {
  return text.replace(UNSEEN, (sign) => (lines && sign === "\n" ? sign : (SHORT[sign] ?? escaped(sign))));
}

function escaped(sign: string): string {
  return Array.from({ length: sign.length }, (_, n) => `\\u${sign.charCodeAt(n).toString(16).padStart(4, "0")}`).join("");
}
