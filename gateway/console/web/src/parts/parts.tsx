// Parts of messages and artifacts: text, data, files. What is a file is downloaded, or shown in a sandbox.

import { useState } from "preact/hooks";
import type { Part } from "../api/a2a";
import { authorized, refusal, ROOT } from "../api/root";
import { toast, words } from "../state/store";
import { Markdown } from "./markdown";
import { bytes, Json } from "./ui";

const SHOWN = /^(image\/(png|jpeg|gif|webp|avif)|application\/pdf|text\/.*|application\/json)$/;

export function Parts({ parts, done = true, markdown = true }: { parts: readonly Part[]; done?: boolean; markdown?: boolean }) {
  return (
    <>
      {parts.map((part, n) => (
        <OnePart key={n} part={part} done={done} markdown={markdown} />
      ))}
    </>
  );
}

function OnePart({ part, done, markdown }: { part: Part; done: boolean; markdown: boolean }) {
  const content = part.content;
  switch (content?.$case) {
    case "text":
      if (part.filename) return <FilePart part={part} size={content.value.length} />;
      return markdown ? <Markdown text={content.value} done={done} /> : <div class="said">{content.value}</div>;
    case "data":
      return <Json text={JSON.stringify(content.value)} />;
    case "raw":
      return <FilePart part={part} size={content.value.length} />;
    case "url":
      return <FilePart part={part} size={null} />;
  }
  return null;
}

function FilePart({ part, size }: { part: Part; size: number | null }) {
  const [shown, setShown] = useState<string>("");
  const name = part.filename || "file";
  const url = part.content?.$case === "url" ? part.content.value : "";
  const foreign = url !== "" && !isOurs(url);
  const load = async (): Promise<string> => URL.createObjectURL(await blobOf(part));
  const show = async (): Promise<void> => {
    try {
      setShown(shown ? "" : await load());
    } catch (error) {
      toast(words(error), "error");
    }
  };
  const download = async (): Promise<void> => {
    try {
      const link = document.createElement("a");
      link.href = await load();
      link.download = name;
      link.click();
    } catch (error) {
      toast(words(error), "error");
    }
  };
  return (
    <div class="file">
      <span class="file-name">{name}</span>
      <span class="quiet">
        {part.mediaType} {size !== null && bytes(size)}
      </span>
      {foreign ? (
        <a href={/^https?:/i.test(url) ? url : "#"} target="_blank" rel="noopener noreferrer nofollow">
          Open {new URL(url, location.href).host}
        </a>
      ) : (
        <>
          {SHOWN.test(part.mediaType) && (
            <button type="button" class="plain" onClick={show}>
              {shown ? "Hide" : "Show"}
            </button>
          )}
          <button type="button" class="plain" onClick={download}>
            Download
          </button>
        </>
      )}
      {shown && (part.mediaType.startsWith("image/") ? <img src={shown} alt={name} /> : <iframe src={shown} sandbox="" title={name} />)}
    </div>
  );
}

function isOurs(url: string): boolean {
  const { pathname, host } = new URL(url, location.href);
  return host === location.host || pathname.startsWith(`${ROOT}artifacts/`) || pathname.startsWith(`${ROOT}files/`);
}

/** Fetches content with the login of the user. A gateway that is called by another name here is the same. */
async function blobOf(part: Part): Promise<Blob> {
  const type = part.mediaType || "application/octet-stream";
  if (part.content?.$case === "raw") return new Blob([part.content.value as unknown as BlobPart], { type });
  if (part.content?.$case === "text") return new Blob([part.content.value], { type });
  const { pathname, search } = new URL(String(part.content?.value), location.href);
  const response = await authorized(pathname + search);
  if (!response.ok) throw await refusal(response);
  return new Blob([await response.blob()], { type });
}
