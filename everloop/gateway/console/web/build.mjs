// Bundles the console into ../dist: a page, and assets with a digest of their content in their names.

import { createHash } from "node:crypto";
import { copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const DIST = join(import.meta.dirname, "..", "dist");
const ASSETS = join(DIST, "assets");
/** Limit of the bytes of all scripts and styles together, compressed. */
const LIMIT = 250_000;

const built = await build({
  entryPoints: [
    { in: "src/main.tsx", out: "console" },
    { in: "styles/console.css", out: "console" },
  ],
  outdir: ASSETS,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  minify: true,
  metafile: true,
  jsx: "automatic",
  jsxImportSource: "preact",
  inject: ["src/shims.ts"],
  legalComments: "linked",
  define: { "process.env.NODE_ENV": '"production"' },
  logLevel: "warning",
});

const entry = (end) =>
  basename(Object.keys(built.metafile.outputs).find((name) => built.metafile.outputs[name].entryPoint && name.endsWith(end)));
const icon = await readFile("icon.svg");
const iconName = `icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8)}.svg`;
await mkdir(ASSETS, { recursive: true });
await copyFile("icon.svg", join(ASSETS, iconName));

const page = (await readFile("index.html", "utf8"))
  .replaceAll("{{script}}", entry(".js"))
  .replaceAll("{{style}}", entry(".css"))
  .replaceAll("{{icon}}", iconName);
await writeFile(join(DIST, "index.html"), page);
await copyFile("frame.html", join(DIST, "frame.html"));

// Each file is also stored compressed: the gateway compresses nothing itself.
let size = 0;
for (const name of await readdir(ASSETS)) {
  const compressed = gzipSync(await readFile(join(ASSETS, name)), { level: 9 });
  await writeFile(join(ASSETS, `${name}.gz`), compressed);
  size += compressed.length;
}
console.log(`${size} bytes compressed of ${LIMIT}`);
if (size > LIMIT) {
  console.error("the console has become too large");
  process.exit(1);
}
