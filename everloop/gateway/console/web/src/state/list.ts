// A list of the extension, loaded page by page, and refreshed regularly.

import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { ApiError, ask } from "../api/root";

const PAGE = 50;
const REFRESH = 5_000;

/** The state of a list. `isMissing`: this gateway has no such address. */
export class Listing<Item> {
  readonly items: Signal<Item[] | null> = signal(null);
  readonly error: Signal<string> = signal("");
  readonly isMissing: Signal<boolean> = signal(false);
  readonly hasMore: Signal<boolean> = signal(false);
  private wanted = PAGE;
  private timer = 0;
  private isClosed = false;

  /** `url` ends at a place where `&` may follow. */
  constructor(
    readonly url: string,
    readonly name: string,
  ) {}

  /** Loads all visible pages, and again after a pause. */
  async load(): Promise<void> {
    clearTimeout(this.timer);
    try {
      await this.fetch();
      this.error.value = "";
    } catch (error) {
      this.isMissing.value = error instanceof ApiError && (error.status === 404 || error.status === 405);
      this.error.value = this.isMissing.value ? "" : (error as Error).message;
      if (this.isMissing.value || (error instanceof ApiError && error.status === 403)) return;
    }
    if (!this.isClosed) this.timer = window.setTimeout(() => void this.load(), document.hidden ? REFRESH * 5 : REFRESH);
  }

  more(): void {
    this.wanted += PAGE;
    void this.load();
  }

  close(): void {
    this.isClosed = true;
    clearTimeout(this.timer);
  }

  private async fetch(): Promise<void> {
    const { items, hasMore } = await readPages<Item>(this.url, this.name, this.wanted);
    if (this.isClosed) return;
    this.items.value = items;
    this.hasMore.value = hasMore;
  }
}

/** Reads a list page by page until there are so many items, or it ends. */
export async function readPages<Item>(url: string, name: string, wanted = Infinity): Promise<{ items: Item[]; hasMore: boolean }> {
  const items: Item[] = [];
  let token = "";
  do {
    const more = token && `&pageToken=${encodeURIComponent(token)}`;
    const page = await ask<Record<string, Item[]> & { nextPageToken?: string }>("GET", `${url}pageSize=${PAGE}${more}`);
    items.push(...((page[name] as Item[] | undefined) ?? []));
    token = page.nextPageToken ?? "";
  } while (token && items.length < wanted);
  return { items, hasMore: Boolean(token) };
}

/** Keeps a list loaded as long as a page shows it. */
export function useListing<Item>(url: string, name: string): Listing<Item> {
  const listing = useMemo(() => new Listing<Item>(url, name), [url, name]);
  useEffect(() => {
    void listing.load();
    return () => listing.close();
  }, [listing]);
  return listing;
}
