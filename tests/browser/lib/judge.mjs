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
  // A picture takes seconds where the processors are busy.
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => {
    // A page that is itself the answer 409 or 422 is no file that is missing.
    const isOfPage = message.text().startsWith("Failed to load resource") && message.location().url === page.url();
    if (["error", "warning"].includes(message.type()) && !isOfPage) complaints.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`script: ${error.message}`));
  page.on("response", (response) => {
    if (response.status() >= 500) complaints.push(`${response.status()} from ${response.url()}`);
    const host = new URL(response.url()).origin;
    if (host !== origin && !response.url().startsWith("data:")) complaints.push(`loaded from elsewhere: ${response.url()}`);
  });
  return { context, page, complaints };
}

/** Looks at the page as it stands, and keeps a picture of it; `rules` of axe, when not all are asked. */
export async function look(page, complaints, name, folder, rules) {
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
  const found = [...complaints];
  complaints.length = 0;
  const [scroll, client] = await page.evaluate(() => {
    const root = document.documentElement;
    return [root.scrollWidth, root.clientWidth];
  });
  if (scroll > client) found.push(`it scrolls sideways: ${scroll} px in ${client} px (${await widest(page)})`);
  found.push(...(await violations(page, rules)));
  expect(found.length === 0, found.join("\n"));
}

/** The same in every theme at every width: what depends on neither is asked once a width. */
export async function lookAround(page, complaints, name, folder, looks) {
  const problems = [];
  for (const [theme, width] of looks) {
    await page.emulateMedia({ colorScheme: theme });
    await page.setViewportSize(WIDTHS[width]);
    const rules = theme === looks[0][0] ? undefined : ["color-contrast"];
    await look(page, complaints, `${name}-${theme}-${width}`, folder, rules).catch((problem) => {
      problems.push(`${theme}, ${WIDTHS[width].width} px: ${problem.message}`);
    });
  }
  expect(problems.length === 0, problems.join("\n"));
}

async function violations(page, rules) {
  // Evaluated, not added as a script: the page's own policy forbids scripts from elsewhere, and has to.
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axe);
  const options = { resultTypes: ["violations"], ...(rules && { runOnly: rules }) };
  const result = await page.evaluate((options) => window.axe.run(document, options), options);
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
