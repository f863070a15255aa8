// The input of messages: text, and files by choosing, dropping or pasting.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { type Part, textPart } from "../api/a2a";
import { toast, words } from "../state/store";
import { bytes } from "./ui";

const MOST_BYTES = 10_000_000;

async function filePart(file: File): Promise<Part> {
  const value = new Uint8Array(await file.arrayBuffer()) as never;
  return { content: { $case: "raw", value }, metadata: undefined, filename: file.name, mediaType: file.type || "application/octet-stream" };
}

type Props = {
  placeholder: string;
  /** True until there is an agent to write to. Messages wait until then. */
  waits?: boolean;
  /** True if a question is open. It has a form of its own, which this input does not answer. */
  closed?: boolean;
  /** Elements beside the send button. */
  children?: ComponentChildren;
  /** The initial text, and files that were sent before. */
  initial?: string;
  initialFiles?: readonly Part[];
  onSend: (parts: Part[]) => void;
};

export function Composer({ placeholder, waits = false, closed = false, children, initial = "", initialFiles = [], onSend }: Props) {
  const [text, setText] = useState(initial);
  const [sent, setSent] = useState(initialFiles);
  const [files, setFiles] = useState<File[]>([]);
  const [over, setOver] = useState(false);
  const [isDue, setDue] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const chooser = useRef<HTMLInputElement>(null);

  useLayoutEffect(() => {
    if (initial) area.current?.focus(); // before the paint: the user may press Enter as soon as the text is visible
  }, []);
  useEffect(() => {
    const element = area.current;
    if (!element) return;
    element.style.height = "0";
    element.style.height = `${Math.min(element.scrollHeight, 240)}px`;
  }, [text]);

  const add = (given: Iterable<File>): void => {
    const all = [...files, ...given];
    if (all.reduce((sum, file) => sum + file.size, 0) > MOST_BYTES)
      return void toast(`Files of a message may have ${bytes(MOST_BYTES)} together.`, "error");
    setFiles(all);
  };
  const isEmpty = !text.trim() && !files.length && !sent.length;
  const send = async (): Promise<void> => {
    if (isEmpty || closed) return;
    setDue(waits);
    if (waits) return;
    // Before files are read, which takes a while, so that pressing Enter twice sends once.
    setText("");
    setSent([]);
    setFiles([]);
    try {
      onSend([...(text.trim() ? [textPart(text)] : []), ...sent, ...(await Promise.all(files.map(filePart)))]);
    } catch (error) {
      setText(text);
      setSent(sent);
      setFiles(files);
      toast(`Nothing is sent: a file cannot be read (${words(error)}).`, "error");
    }
  };
  useEffect(() => {
    if (isDue && !waits) void send();
  }, [isDue, waits]);

  // Files may be dropped anywhere: outside the composer the browser would open them instead of this page.
  const latest = useRef(add);
  latest.current = add;
  useEffect(() => {
    const onDrag = (event: DragEvent): void => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      setOver(event.type === "dragover");
      if (event.type === "drop") latest.current(event.dataTransfer.files);
    };
    const onLeave = (event: DragEvent): void => void (event.relatedTarget || setOver(false));
    for (const type of ["dragover", "drop"] as const) addEventListener(type, onDrag);
    addEventListener("dragleave", onLeave);
    return () => {
      for (const type of ["dragover", "drop"] as const) removeEventListener(type, onDrag);
      removeEventListener("dragleave", onLeave);
    };
  }, []);

  return (
    <form
      class={`composer${over ? " over" : ""}`}
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      {files.length + sent.length > 0 && (
        <ul class="files">
          {sent.map((part) => (
            <Chosen key={part.filename} name={part.filename || "file"} onRemove={() => setSent(sent.filter((each) => each !== part))} />
          ))}
          {files.map((file, n) => (
            <Chosen key={`${file.name}${n}`} name={file.name} size={file.size} onRemove={() => setFiles(files.filter((each) => each !== file))} />
          ))}
        </ul>
      )}
      <textarea
        ref={area}
        rows={1}
        value={text}
        dir="auto"
        placeholder={placeholder}
        aria-label={placeholder}
        onInput={(event) => {
          setDue(false);
          setText(event.currentTarget.value);
        }}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          void send();
        }}
        onPaste={(event) => {
          const pasted = [...(event.clipboardData?.files ?? [])];
          if (!pasted.length) return;
          event.preventDefault();
          add(pasted);
        }}
      />
      <div class="composer-bar">
        <button type="button" class="plain" onClick={() => chooser.current?.click()}>
          Attach
        </button>
        <input ref={chooser} type="file" multiple hidden onChange={(event) => add(event.currentTarget.files ?? [])} />
        <span class="spacer" role="status">
          {isDue && "It is sent as soon as the agents are known."}
        </span>
        {children}
        <button class="primary" disabled={isEmpty || closed}>
          Send
        </button>
      </div>
    </form>
  );
}

function Chosen({ name, size, onRemove }: { name: string; size?: number; onRemove: () => void }) {
  return (
    <li>
      {name} {size !== undefined && <span class="quiet">{bytes(size)}</span>}
      <button type="button" aria-label={`Remove ${name}`} onClick={onRemove}>
        ×
      </button>
    </li>
  );
}
