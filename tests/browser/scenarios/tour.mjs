// Every page there is, found by following links, looked at in both themes and at both widths.

import { mkdirSync } from "node:fs";

import { THEMES, WIDTHS, lookAround, open } from "../lib/judge.mjs";
import { expect, step } from "../lib/report.mjs";

const EVERYWHERE = THEMES.flatMap((theme) => Object.keys(WIDTHS).map((width) => [theme, width]));
/** Pages that must be among those that are found: a link that is lost must not make the tour shorter. */
const AT_LEAST = [
  "/", "/targets", "/luns", "/stores", "/initiators", "/sessions", "/login-failures", "/reservations", "/jobs", "/events",
  "/audit", "/configuration", "/settings", "/settings/users", "/settings/tokens", "/settings/password", "/settings/node",
  "/settings/portals/new", "/settings/advertised/new", "/traces", "/new/lun", "/new/store", "/new/target",
];
/** Those that only something in use leads to. */
const IN_USE = [
  "/sessions/*", "/sessions/*/close", "/luns/*/*", "/targets/*", "/stores/*", "/reservations/*/clear",
  "/settings/advertised/*",
];

/** Looks at all of them; `isInUse` says that the node has something of everything. */
export async function tour(browser, { origin }, storageState, folder, { looks = EVERYWHERE, isInUse = true }) {
  mkdirSync(folder, { recursive: true });
  const inside = await open(browser, origin, { storageState });
  const pages = await crawl(inside.page, origin);
  inside.complaints.length = 0;
  await step("following links finds every page", () => {
    const wanted = isInUse ? [...AT_LEAST, ...IN_USE] : AT_LEAST;
    const missing = wanted.filter((shape) => !pages.has(shape));
    expect(missing.length === 0, `no link leads to ${missing.join(", ")}`);
  });
  if (isInUse) await step("sessions and logins that failed lead to a trace of them", () => toTraces(inside.page));
  for (const [shape, path] of pages) await visit(inside, shape, path, looks, folder);
  await inside.context.close();
  const outside = await open(browser, origin);
  await visit(outside, "/login", "/login", looks, folder);
  await outside.context.close();
}

function visit({ page, complaints }, shape, path, looks, folder) {
  return step(`${shape}, ${looks.length} looks`, async () => {
    await page.goto(path);
    if (await page.locator("[data-charts]").count()) await page.locator("[data-charts] canvas").first().waitFor();
    await lookAround(page, complaints, name(shape), folder, looks);
  });
}

async function toTraces(page) {
  await page.goto("/sessions");
  await page.getByRole("link", { name: /libiscsi/ }).first().click();
  const session = new URL(page.url()).pathname.split("/").at(-1);
  await page.getByRole("link", { name: "Trace it" }).click();
  expect((await page.getByLabel("Session").inputValue()) === session, "the form is not about the session");
  await page.goto("/login-failures");
  await page.getByRole("link", { name: "Trace its next login (iqn.2026-11.org.example:stranger)" }).click();
  const initiator = await page.getByLabel("Next logins of").inputValue();
  expect(initiator === "iqn.2026-11.org.example:stranger", `the form is about ${initiator}`);
}

/** One page of each shape: shape → path. */
async function crawl(page, origin) {
  const found = new Map([["/", "/"]]);
  // A map goes on with what is added while it is walked through.
  for (const path of found.values()) {
    await page.goto(path, { waitUntil: "domcontentloaded" });
    const links = await page.$$eval("main a[href], nav a[href]", (all) => all.map((link) => link.href));
    for (const url of links.map((link) => new URL(link)).filter((url) => url.origin === origin)) {
      const shape = shapeOf(url.pathname);
      if (isPage(url.pathname) && !found.has(shape)) found.set(shape, url.pathname);
    }
  }
  return found;
}

function isPage(path) {
  return !path.startsWith("/api/") && !path.startsWith("/assets/") && path !== "/configuration/export";
}

/** The path with stars where names of objects are. */
function shapeOf(path) {
  const [kind, ...rest] = path.slice(1).split("/");
  if (kind === "new") return path;
  const fixed = kind === "settings" ? 1 : 0;
  const names = kind === "luns" ? 2 : 1;
  const isName = (part, place) => place >= fixed && place < fixed + names && part !== "new";
  return `/${[kind, ...rest.map((part, place) => (isName(part, place) ? "*" : part))].join("/")}`;
}

function name(shape) {
  return shape === "/" ? "dashboard" : shape.slice(1).replaceAll("/", "-").replaceAll("*", "one");
}
