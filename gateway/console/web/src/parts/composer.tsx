// Where the user writes: text, and files by choosing, dropping or pasting.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Part, textPart } from "../api/a2a";
import { toast } from "../state/store";
import { bytes } from "./ui";

const MOST_BYTES = 10_000_000;

async function filePart(file: File): Promise<Part> {
  const value = new Uint8Array(await file.arrayBuffer()) as never;
  return { content: { $case: "raw", value }, metadata: undefined, filename: file.name, mediaType: file.type || "application/octet-stream" };
}

type Props = {
  placeholder: string;
  disabled?: boolean;
  /** What stands beside the button to send. */
  children?: ComponentChildren;
  /** What stands there at first. */
  initial?: string;
  onSend: (parts: Part[]) => void;
};

export function Composer({ placeholder, disabled = false, children, initial = "", onSend }: Props) {
  const [text, setText] = useState(initial);
  const [files, setFiles] = useState<File[]>([]);
  const [over, setOver] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const chooser = useRef<HTMLInputElement>(null);

  useEffect(() => {
    if (initial) area.current?.focus();
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
      return toast(`Files of a message may have ${bytes(MOST_BYTES)} together.`, "error");
    setFiles(all);
  };
  const send = async (): Promise<void> => {
    if (disabled || (!text.trim() && !files.length)) return;
    const parts = [...(text.trim() ? [textPart(text)] : []), ...(await Promise.all(files.map(filePart)))];
    setText("");
    setFiles([]);
    onSend(parts);
  };

  return (
    <form
      class={`composer${over ? " over" : ""}`}
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        add(event.dataTransfer?.files ?? []);
      }}
    >
      {files.length > 0 && (
        <ul class="files">
          {files.map((file, n) => (
            <li key={`${file.name}${n}`}>
              {file.name} <span class="quiet">{bytes(file.size)}</span>
              <button type="button" aria-label={`Remove ${file.name}`} onClick={() => setFiles(files.filter((each) => each !== file))}>
                ×
              </button>
            </li>
          ))}
        </ul>
      )}
      <textarea
        ref={area}
        rows={1}
        value={text}
        placeholder={placeholder}
        aria-label={placeholder}
        onInput={(event) => setText(event.currentTarget.value)}
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
        <span class="spacer" />
        {children}
        <button class="primary" disabled={disabled || (!text.trim() && !files.length)}>
          Send
        </button>
      </div>
    </form>
  );
}
