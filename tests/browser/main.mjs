// The browser tests in their order: first start, a disk's life in the browser with an initiator at the far end, work that takes
// long, a look at every page in both themes and at both widths, and the essentials without JavaScript.

import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";

import { Appliance } from "./lib/appliance.mjs";
import { launch, open } from "./lib/judge.mjs";
import { step, summary } from "./lib/report.mjs";
import { fill } from "./lib/sample.mjs";
import { life } from "./scenarios/life.mjs";
import { long } from "./scenarios/long.mjs";
import { logOut, setUp } from "./scenarios/people.mjs";
import { plain } from "./scenarios/plain.mjs";
import { tour } from "./scenarios/tour.mjs";

const work = "target/browser";
const shots = join(work, "shots");

async function main(onlyShots) {
  rmSync(shots, { recursive: true, force: true });
  mkdirSync(shots, { recursive: true });
  const appliance = await step("the program starts", () => Appliance.start(join(work, "lunaport.log")));
  if (!appliance) return;
  let browser, inUse;
  try {
    browser = await launch();
    const admin = await open(browser, appliance.origin);
    const ready = await step("first start: the token of the log makes the first user", () => setUp(admin, shots));
    if (!ready) return;
    const storageState = await admin.context.storageState();
    if (!onlyShots) {
      const looks = [["light", "desk"], ["dark", "phone"]];
      await tour(browser, appliance, storageState, join(shots, "empty"), { looks, isInUse: false });
      await life(admin, appliance, shots);
      await long(admin, appliance, shots);
    }
    inUse = await step("the node gets into use", () => fill(appliance));
    if (inUse) await tour(browser, appliance, storageState, join(shots, "in-use"), {});
    if (!onlyShots) {
      await plain(browser, appliance, shots);
      await step("logging out ends the session", () => logOut(admin));
    }
  } finally {
    await inUse?.end();
    await browser?.close();
    await step("the program ends cleanly", () => appliance.stop());
  }
}

const options = process.argv.slice(2);
if (options.some((option) => option !== "--shots")) {
  console.error("browser: unknown option, see the top of tests/browser/run");
  process.exit(2);
}
await main(options.includes("--shots"));
process.exit(summary());
