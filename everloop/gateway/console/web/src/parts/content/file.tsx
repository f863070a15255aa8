// Files: downloaded with the user's login, and displayed by their type.
//
// No content can run: text is shown as text, images as images, and HTML in a frame of another origin
// without scripts.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Part } from "../../api/a2a";
import { authorized, here, refusal, ROOT } from "../../api/root";
import { printable } from "../../state/printable";
import { toast, words } from "../../state/store";
import { bytes, Problem } from "../ui";
import { Markdown } from "./markdown";
import { Rows } from "./rows";
import { Json, LongText } from "./text";

/** The type of content that is only read or saved. */
const DOWNLOAD = "application/octet-stream";
/** Limit of the bytes of a displayed text. */
const MOST = 5_000_000;

type Kind = "image" | "pdf" | "markdown" | "json" | "rows" | "html" | "text";

/** Returns how a file is displayed, or null if it can only be downloaded. */
export function kindOf(mediaType: string): Kind | null {
  const type = typeOf(mediaType);
  if (/^image\/(png|jpeg|gif|webp|avif|svg\+xml)$/.test(type)) return "image";
  if (type === "application/pdf") return navigator.pdfViewerEnabled ? "pdf" : null;
  if (type === "text/markdown") return "markdown";
  if (type === "text/html" || type === "application/xhtml+xml") return "html";
  if (type === "application/x-ndjson") return "rows";
  if (/^application\/(.+\+)?json$/.test(type)) return "json";
  return /^text\/|^application\/(xml|yaml|toml|x-sh|javascript|sql)$/.test(type) ? "text" : null;
}

/** Returns a type without parameters, and without characters that would make browsers guess the type. */
function typeOf(mediaType: string): string {
  return mediaType.split(";")[0]!.trim().toLowerCase();
}

type Props = { part: Part; size: number | null; rows?: number | undefined; open?: boolean };

export function FilePart({ part, size, rows, open = false }: Props) {
  const [shown, setShown] = useState(open);
  const name = printable(part.filename || "file");
  const url = part.content?.$case === "url" ? part.content.value : "";
  const foreign = url !== "" && !isOurs(url);
  const kind = foreign ? null : kindOf(part.mediaType);
  const [busy, setBusy] = useState(false);
  const download = async (csv: boolean): Promise<void> => {
    setBusy(true);
    try {
      save(await blobOf(part, DOWNLOAD, csv ? "csv" : ""), csv ? `${name.replace(/\.(jsonl|ndjson|json|csv)$/i, "")}.csv` : name);
    } catch (error) {
      toast(words(error), "error");
    } finally {
      setBusy(false);
    }
  };
  return (
    <div class="file">
      <span class="file-name">{name}</span>
      <span class="quiet">
        {part.mediaType} {size !== null && bytes(size)} {rows !== undefined && `${rows} rows`}
      </span>
      {foreign ? (
        <a href={/^https?:/i.test(url) ? url : "#"} target="_blank" rel="noopener noreferrer nofollow">
          Open {hostOf(url)}
        </a>
      ) : (
        <>
          {kind && (
            <button type="button" class="plain" aria-expanded={shown} onClick={() => setShown(!shown)}>
              {shown ? "Hide" : "Show"}
            </button>
          )}
          <button type="button" class="plain" disabled={busy} onClick={() => void download(false)}>
            Download
          </button>
          {kind === "rows" && url && (
            <button type="button" class="plain" disabled={busy} onClick={() => void download(true)}>
              as CSV
            </button>
          )}
        </>
      )}
      {shown && kind && (
        <div class="file-content">
          {kind === "rows" && url ? <Rows url={here(url)} count={rows} /> : <Content part={part} kind={kind} name={name} size={size} />}
        </div>
      )}
    </div>
  );
}

type Loaded = { text: string; isCut: boolean } | { address: string };

function Content({ part, kind, name, size }: { part: Part; kind: Kind; name: string; size: number | null }) {
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [error, setError] = useState("");
  const key = part.content?.$case === "url" ? part.content.value : part.content;
  useEffect(() => {
    let address = "";
    let gone = false;
    const load = async (): Promise<void> => {
      if (kind === "image" || kind === "pdf") {
        address = URL.createObjectURL(await blobOf(part, typeOf(part.mediaType)));
        if (gone) URL.revokeObjectURL(address);
        else setLoaded({ address });
      } else {
        const blob = await blobOf(part, DOWNLOAD, "", MOST);
        const text = await blob.slice(0, MOST).text();
        if (!gone) setLoaded({ text, isCut: blob.size > MOST || (size ?? 0) > MOST });
      }
    };
    load().catch((failure: unknown) => !gone && setError(words(failure)));
    return () => {
      gone = true;
      if (address) URL.revokeObjectURL(address);
    };
  }, [key, kind]);
  if (error) return <Problem text={error} />;
  if (!loaded) return <p class="quiet">Reading…</p>;
  if ("address" in loaded)
    return kind === "image" ? <img src={loaded.address} alt={name} /> : <iframe src={loaded.address} title={name} class="pdf" />;
  return (
    <>
      <Text text={loaded.text} kind={kind} name={name} />
      {loaded.isCut && <p class="quiet">The first {bytes(MOST)}. Download it to read the rest.</p>}
    </>
  );
}

function Text({ text, kind, name }: { text: string; kind: Kind; name: string }) {
  const [source, setSource] = useState(false);
  if (kind === "json") return <Json text={text} isTree />;
  if (kind === "markdown") return <Markdown text={text} />;
  if (kind !== "html") return <LongText text={text} label={name} />;
  return (
    <>
      <button type="button" class="plain" aria-pressed={source} onClick={() => setSource(!source)}>
        {source ? "Page" : "Source"}
      </button>
      {source ? <LongText text={text} label={name} /> : <Frame html={text} name={name} />}
    </>
  );
}

/** Shows a page in a frame with an origin of its own, without scripts and network access. */
function Frame({ html, name }: { html: string; name: string }) {
  const frame = useRef<HTMLIFrameElement>(null);
  return (
    <iframe
      ref={frame}
      src={`${ROOT}console/frame`}
      sandbox="allow-scripts"
      referrerpolicy="no-referrer"
      title={name}
      onLoad={() => frame.current?.contentWindow?.postMessage(html, "*")}
    />
  );
}

function isOurs(url: string): boolean {
  try {
    const { pathname, host } = new URL(url, location.href);
    return host === location.host || pathname.startsWith(`${ROOT}artifacts/`) || pathname.startsWith(`${ROOT}results/`);
  } catch {
    return false;
  }
}

function hostOf(url: string): string {
  try {
    return new URL(url).host;
  } catch {
    return url.slice(0, 80);
  }
}

/**
 * Fetches content with the login of the user, of large files no more than `most` bytes. It has an address of this page's
 * origin, so `type` is the type that we chose for display, never the one that was declared.
 */
async function blobOf(part: Part, type: string, format = "", most = 0): Promise<Blob> {
  if (part.content?.$case === "raw") return new Blob([part.content.value as unknown as BlobPart], { type });
  if (part.content?.$case === "text") return new Blob([part.content.value], { type });
  const path = here(String(part.content?.value));
  const url = format ? `${path}${path.includes("?") ? "&" : "?"}format=${format}` : path;
  // With a condition the gateway itself answers. Otherwise it may redirect to another host.
  const headers: Record<string, string> = { "If-Match": "*" };
  if (most) headers["Range"] = `bytes=0-${most - 1}`;
  const response = await authorized(url, { headers });
  if (response.status === 416) return new Blob([], { type }); // it is empty
  if (!response.ok) throw await refusal(response);
  return new Blob([await response.blob()], { type });
}

export function saveJson(value: object, name: string): void {
  save(new Blob([JSON.stringify(value, null, 2)], { type: "application/json" }), name);
}

/** Downloads a file. */
function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
