// Parts of messages and artifacts: text, data, files.

import type { Part } from "../../api/a2a";
import { FilePart } from "./file";
import { Markdown } from "./markdown";
import { isRows, KnownRows } from "./rows";
import { Json, JsonTree, LongText } from "./text";
import type { Json as JsonValue } from "../../api/types";

type Props = { parts: readonly Part[]; done?: boolean; markdown?: boolean; open?: boolean };

export function Parts({ parts, done = true, markdown = true, open = false }: Props) {
  return (
    <>
      {joinedRows(parts).map((part, n) => (
        <OnePart key={n} part={part} done={done} markdown={markdown} open={open} />
      ))}
    </>
  );
}

/** A dataset comes as one part for each batch of rows. */
function joinedRows(parts: readonly Part[]): Part[] {
  const joined: Part[] = [];
  for (const part of parts) {
    const last = joined.at(-1)?.content;
    const { content } = part;
    if (content?.$case === "data" && last?.$case === "data" && isRows(content.value) && isRows(last.value))
      joined[joined.length - 1] = { ...part, content: { $case: "data", value: [...last.value, ...content.value] } };
    else joined.push(part);
  }
  return joined;
}

const LONG = 64_000;

function OnePart({ part, done, markdown, open }: { part: Part; done: boolean; markdown: boolean; open: boolean }) {
  const content = part.content;
  switch (content?.$case) {
    case "text":
      if (part.filename) return <FilePart part={part} size={content.value.length} open={open} />;
      if (part.mediaType && part.mediaType !== "text/markdown" && part.mediaType !== "text/plain") return <Json text={content.value} />;
      if (markdown) return <Markdown text={content.value} done={done} />;
      return content.value.length > LONG ? <LongText text={content.value} /> : <div class="said" dir="auto">{content.value}</div>;
    case "data":
      if (isRows(content.value)) return <KnownRows rows={content.value} />;
      return open ? <JsonTree value={content.value as JsonValue} /> : <Json text={JSON.stringify(content.value)} />;
    case "raw":
      return <FilePart part={part} size={content.value.length} open={open} />;
    case "url": {
      const known = part.metadata as { size?: number; rows?: number } | undefined;
      return <FilePart part={part} size={known?.size ?? null} rows={known?.rows} open={open} />;
    }
  }
  return null;
}
