// The declared type of an agent's file does not extend its permissions.

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, expect, it, vi } from "vitest";
import type { Part } from "../src/api/a2a";
import { FilePart } from "../src/parts/content/file";

afterEach(() => {
  render(null, document.body);
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

const part = (mediaType: string, content: Part["content"]): Part => ({ content, metadata: undefined, filename: "f", mediaType });
const raw = (mediaType: string) => part(mediaType, { $case: "raw", value: new TextEncoder().encode("<script>") as never });

it.each([
  ["application/pdf\u00a0", "application/pdf"],
  ["Application/PDF; x=text/html", "application/pdf"],
  ["image/svg+xml\u00a0;a", "image/svg+xml"],
])("what is shown as %j has a type of ours: browsers would guess another one, which could be a page", async (claimed, type) => {
  vi.stubGlobal("navigator", { ...navigator, pdfViewerEnabled: true });
  const made = vi.spyOn(URL, "createObjectURL").mockReturnValue("blob:x");
  await act(() => render(<FilePart part={raw(claimed)} size={1} open />, document.body));
  await vi.waitFor(() => expect(made).toHaveBeenCalled());
  expect((made.mock.calls[0]![0] as Blob).type).toBe(type);
});

it("what is saved has no type at all, whatever it claims", async () => {
  const made = vi.spyOn(URL, "createObjectURL").mockReturnValue("blob:x");
  await act(() => render(<FilePart part={raw("text/html")} size={1} />, document.body));
  const save = [...document.querySelectorAll("button")].find((each) => each.textContent === "Download")!;
  await act(async () => save.click());
  await vi.waitFor(() => expect(made).toHaveBeenCalled());
  expect((made.mock.calls[0]![0] as Blob).type).toBe("application/octet-stream");
});
