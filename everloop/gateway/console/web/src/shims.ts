// Node features that the SDK uses and browsers lack: bytes, and their form in JSON.

const STEP = 0x8000;

function fromBase64(text: string): Uint8Array {
  const signs = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  return Uint8Array.from(signs, (sign) => sign.charCodeAt(0));
}

function toBase64(bytes: Uint8Array): string {
  let signs = "";
  for (let at = 0; at < bytes.length; at += STEP) signs += String.fromCharCode(...bytes.subarray(at, at + STEP));
  return btoa(signs);
}

export const Buffer = {
  from(value: Uint8Array | string): Uint8Array {
    const bytes = typeof value === "string" ? fromBase64(value) : Uint8Array.from(value);
    return Object.defineProperty(bytes, "toString", { value: () => toBase64(bytes) });
  },
  isBuffer: (value: unknown): boolean => value instanceof Uint8Array,
};

(globalThis as { Buffer?: unknown }).Buffer ??= Buffer;
