// A dataset page by page: JSON lines, fetched only as far as they are shown.

import { useEffect, useMemo, useState } from "preact/hooks";
import { authorized, refusal } from "../../api/root";
import type { Json } from "../../api/types";
import { words } from "../../state/store";
import { Problem } from "../ui";

const ROWS = 100;
const BLOCK = 128 * 1024;
const COLUMNS = 50;
const LONG = 300;

type Row = { [column: string]: Json };

/** Reads rows in order, a block at a time. */
export class RowReader {
  readonly rows: Row[] = [];
  isAtEnd = false;
  private offset = 0;
  private rest = "";
  private decoder = new TextDecoder();

  constructor(private readonly fetchBlock: (from: number, to: number) => Promise<{ bytes: Uint8Array; isLast: boolean }>) {}

  /** Reads on until there are so many rows, or the file ends. */
  async until(count: number): Promise<void> {
    while (this.rows.length < count && !this.isAtEnd) {
      const { bytes, isLast } = await this.fetchBlock(this.offset, this.offset + BLOCK);
      this.offset += bytes.length;
      this.isAtEnd = isLast;
      const lines = (this.rest + this.decoder.decode(bytes, { stream: !isLast })).split("\n");
      this.rest = isLast ? "" : (lines.pop() ?? "");
      for (const line of lines) if (line.trim()) this.rows.push(JSON.parse(line) as Row);
    }
  }
}

/** Fetches bytes of a file. A server without range requests sends the whole file. */
async function block(url: string, from: number, to: number): Promise<{ bytes: Uint8Array; isLast: boolean }> {
  // With a condition the gateway itself answers. Otherwise it may redirect to another host.
  const headers = { Range: `bytes=${from}-${to - 1}`, "If-Match": "*", Accept: "application/x-ndjson" };
  const response = await authorized(url, { headers });
  if (response.status === 416) return { bytes: new Uint8Array(), isLast: true };
  if (!response.ok) throw await refusal(response);
  const bytes = new Uint8Array(await response.arrayBuffer());
  const whole = Number(/\/(\d+)$/.exec(response.headers.get("Content-Range") ?? "")?.[1]);
  return { bytes, isLast: response.status !== 206 || from + bytes.length >= whole };
}

export function Rows({ url, count }: { url: string; count?: number | undefined }) {
  const reader = useMemo(() => new RowReader((from, to) => block(url, from, to)), [url]);
  const [page, setPage] = useState(0);
  const [error, setError] = useState("");
  const [, redraw] = useState(0);
  const load = (): void => {
    reader.until((page + 1) * ROWS + 1).then(
      () => {
        setError("");
        redraw((n) => n + 1);
      },
      (failure: unknown) => setError(words(failure)),
    );
  };
  useEffect(load, [reader, page]);
  return (
    <>
      <Problem text={error} retry={load} />
      <RowPage rows={reader.rows} total={count ?? (reader.isAtEnd ? reader.rows.length : null)} page={page} go={setPage} />
    </>
  );
}

/** Rows that are loaded. */
export function KnownRows({ rows }: { rows: Row[] }) {
  const [page, setPage] = useState(0);
  return <RowPage rows={rows} total={rows.length} page={page} go={setPage} />;
}

export function isRows(value: unknown): value is Row[] {
  return Array.isArray(value) && value.length > 0 && value.every((each) => typeof each === "object" && each !== null && !Array.isArray(each));
}

type PageProps = { rows: readonly Row[]; total: number | null; page: number; go: (page: number) => void };

function RowPage({ rows, total, page, go }: PageProps) {
  const from = page * ROWS;
  const shown = rows.slice(from, from + ROWS);
  const all = columnsOf(shown);
  const columns = all.slice(0, COLUMNS);
  return (
    <div class="rows">
      <div class="rows-table" tabIndex={0} role="region" aria-label="Rows">
        <table>
          <thead>
            <tr>
              <th class="right">#</th>
              {columns.map((column) => (
                <th key={column} class={shown.some((row) => typeof row[column] === "number") ? "right" : ""}>
                  {column}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row, n) => (
              <tr key={from + n}>
                <td class="right quiet">{from + n + 1}</td>
                {columns.map((column) => (
                  <td key={column} class={typeof row[column] === "number" ? "right" : ""}>
                    {cell(row[column])}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="rows-foot">
        <span class="quiet" role="status">
          {shown.length ? `Rows ${from + 1} to ${from + shown.length}${total === null ? "" : ` of ${total}`}` : total === 0 ? "No rows" : "Reading…"}
          {all.length > COLUMNS && `; the first ${COLUMNS} of ${all.length} columns`}
        </span>
        {(page > 0 || rows.length > ROWS) && (
          <>
            <button type="button" disabled={!page} onClick={() => go(page - 1)}>
              Previous
            </button>
            <button type="button" disabled={rows.length <= from + ROWS} onClick={() => go(page + 1)}>
              Next
            </button>
          </>
        )}
      </p>
    </div>
  );
}

function columnsOf(rows: readonly Row[]): string[] {
  const found = new Set<string>();
  for (const row of rows) for (const column of Object.keys(row)) found.add(column);
  return [...found];
}

function cell(value: Json | undefined): string {
  if (value === undefined || value === null) return "";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > LONG ? `${text.slice(0, LONG)}…` : text;
}
