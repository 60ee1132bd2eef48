// Every page there is, found by following links, looked at in both themes and at both widths.

import { mkdirSync } from "node:fs";

import { THEMES, WIDTHS, look, open } from "../lib/judge.mjs";
import { expect, step } from "../lib/report.mjs";

const EVERYWHERE = THEMES.flatMap((theme) => Object.keys(WIDTHS).map((width) => [theme, width]));
/** Pages that must be among those that are found: a link that is lost must not make the tour shorter. */
const AT_LEAST = [
  "/", "/targets", "/luns", "/stores", "/initiators", "/sessions", "/login-failures", "/reservations", "/jobs", "/events",
  "/audit", "/configuration", "/settings", "/settings/users", "/settings/tokens", "/settings/password", "/new/lun",
];
/** Those that only something in use leads to. */
const IN_USE = ["/sessions/*", "/sessions/*/close", "/luns/*/*", "/targets/*", "/stores/*", "/reservations/*/clear"];

/** Looks at all of them; `isInUse` says that the node has something of everything. */
export async function tour(browser, { origin }, storageState, folder, { combinations = EVERYWHERE, isInUse = true }) {
  mkdirSync(folder, { recursive: true });
  const pages = await step("following links finds every page", () => crawl(browser, origin, storageState, isInUse));
  for (const [theme, width] of combinations) {
    const looks = { theme, width };
    const inside = await open(browser, origin, { ...looks, storageState });
    for (const [shape, path] of pages ?? []) await visit(inside, shape, path, looks, folder);
    // Somebody who is called away comes back to the same page; where nothing is, a page says so.
    await inside.page.close();
    await inside.context.close();
    const outside = await open(browser, origin, looks);
    await visit(outside, "/login", "/login", looks, folder);
    await outside.context.close();
  }
}

function visit({ page, complaints }, shape, path, { theme, width }, folder) {
  return step(`${shape} in ${theme} at ${WIDTHS[width].width} px`, async () => {
    await page.goto(path);
    if (shape === "/" && (await page.locator("[data-charts]").count()) > 0) {
      await page.locator("[data-charts] canvas").first().waitFor();
    }
    await look(page, complaints, `${name(shape)}-${theme}-${width}`, folder);
  });
}

/** One page of each shape: shape → path. */
async function crawl(browser, origin, storageState, isInUse) {
  const { page, context } = await open(browser, origin, { storageState });
  const found = new Map([["/", "/"]]);
  // A map goes on with what is added while it is walked through.
  for (const path of found.values()) {
    await page.goto(path);
    const links = await page.$$eval("main a[href], nav a[href]", (all) => all.map((link) => link.href));
    for (const url of links.map((link) => new URL(link)).filter((url) => url.origin === origin)) {
      const shape = shapeOf(url.pathname);
      if (isPage(url.pathname) && !found.has(shape)) found.set(shape, url.pathname);
    }
  }
  await context.close();
  const wanted = isInUse ? [...AT_LEAST, ...IN_USE] : AT_LEAST;
  const missing = wanted.filter((shape) => !found.has(shape));
  expect(missing.length === 0, `no link leads to ${missing.join(", ")}`);
  return [...found];
}

function isPage(path) {
  return !path.startsWith("/api/") && !path.startsWith("/assets/") && path !== "/configuration/export";
}

/** The path with stars where names of objects are. */
function shapeOf(path) {
  const [kind, ...rest] = path.slice(1).split("/");
  const fixed = { settings: 1, luns: 0 }[kind] ?? 0;
  const names = { luns: 2 }[kind] ?? 1;
  const starred = rest.map((part, place) => (place < fixed || place >= fixed + names || part === "new" ? part : "*"));
  return `/${[kind, ...starred].join("/")}`;
}

function name(shape) {
  return shape === "/" ? "dashboard" : shape.slice(1).replaceAll("/", "-").replaceAll("*", "one");
}
