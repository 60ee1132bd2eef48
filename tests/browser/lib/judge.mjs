// A browser, and what is asked of every page that it shows: no error in the console, no violation that axe finds, no
// horizontal scrolling, and a picture of it.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

import { expect } from "./report.mjs";

const require = createRequire(resolve(process.env.BROWSER_LIBRARIES) + "/");
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

export const WIDTHS = { desk: { width: 1280, height: 800 }, phone: { width: 390, height: 844 } };
export const THEMES = ["light", "dark"];

export function launch() {
  const args = ["--no-sandbox", "--disable-dev-shm-usage"];
  return chromium.launch({ executablePath: process.env.CHROMIUM, args });
}

/** A window of its own, logged in when `storageState` has the cookie. What its console says is kept in `complaints`. */
export async function open(browser, origin, options = {}) {
  const { theme = "light", width = "desk", ...more } = options;
  const context = await browser.newContext({
    baseURL: origin,
    colorScheme: theme,
    viewport: WIDTHS[width],
    reducedMotion: "reduce",
    ...more,
  });
  context.setDefaultTimeout(10_000);
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`script: ${error.message}`));
  page.on("response", (response) => {
    if (response.status() >= 500) complaints.push(`${response.status()} from ${response.url()}`);
    const host = new URL(response.url()).origin;
    if (host !== origin && !response.url().startsWith("data:")) complaints.push(`loaded from elsewhere: ${response.url()}`);
  });
  return { context, page, complaints };
}

/** Looks at the page as it stands, and keeps a picture of it. */
export async function look(page, complaints, name, folder) {
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
  const found = [...complaints];
  complaints.length = 0;
  const [scroll, client] = await page.evaluate(() => {
    const root = document.documentElement;
    return [root.scrollWidth, root.clientWidth];
  });
  if (scroll > client) found.push(`it scrolls sideways: ${scroll} px in ${client} px (${await widest(page)})`);
  for (const violation of await violations(page)) found.push(violation);
  expect(found.length === 0, found.join("\n"));
}

async function violations(page) {
  // Evaluated, not added as a script: the page's own policy forbids scripts from elsewhere, and has to.
  await page.evaluate(axe);
  const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return result.violations.map(({ id, help, nodes }) => {
    const places = nodes.slice(0, 3).map((node) => `${node.target.join(" ")} ${node.any[0]?.message ?? ""}`);
    return `axe, ${id}: ${help}\n  ${places.join("\n  ")}`;
  });
}

/** The element that reaches out furthest to the right, to be mended. */
function widest(page) {
  return page.evaluate(() => {
    let far = document.body;
    for (const element of document.querySelectorAll("body *")) {
      if (element.getBoundingClientRect().right > far.getBoundingClientRect().right) far = element;
    }
    return `${far.tagName.toLowerCase()}.${far.className}`;
  });
}
