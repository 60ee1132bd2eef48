// The essentials in a browser that runs no scripts: in, a disk made and taken away, a session closed, out.

import { Busy } from "../lib/appliance.mjs";
import { open } from "../lib/judge.mjs";
import { eventually, expect, step } from "../lib/report.mjs";
import { logIn, logOut } from "./people.mjs";

const TARGET = "iqn.2026-11.org.example:plain";

export async function plain(browser, appliance) {
  const visitor = await open(browser, appliance.origin, { javaScriptEnabled: false });
  const { page } = visitor;
  await step("without scripts: logging in", () => logIn(visitor));
  await step("without scripts: the dashboard has the rates of the moment", async () => {
    const cell = page.locator("table[data-by=luns] td[data-value^=bytes]").first();
    expect(/B\/s$/.test(await cell.innerText()), `the busiest LUN does ${await cell.innerText()}`);
    expect(await page.getByText("look again").isVisible(), "nothing says how to see newer ones");
  });
  await step("without scripts: a LUN is made", async () => {
    await page.goto("/new/lun");
    await page.locator("#disk-new").check();
    await page.getByLabel("Name", { exact: true }).fill("plain");
    await page.getByLabel("Size", { exact: true }).fill("16 MiB");
    await page.locator("#at-new").check();
    await page.getByLabel("iSCSI name").fill(TARGET);
    await page.getByLabel("Any initiator").check();
    await page.getByRole("button", { name: "Make the LUN" }).click();
    await page.getByRole("heading", { level: 1, name: "plain" }).waitFor();
  });
  await step("without scripts: a store is filled with zeroes", async () => {
    await page.goto("/new/store");
    await page.getByLabel("Name", { exact: true }).fill("zeroed");
    await page.getByLabel("Size", { exact: true }).fill("16 MiB");
    await page.getByLabel("Take all the space now").check();
    await page.getByRole("button", { name: "Make the store" }).click();
    const row = page.getByRole("row", { name: "Zeroing zeroed" });
    await eventually("its end", async () => {
      await page.goto("/jobs");
      return (await row.getByText("done", { exact: true }).count()) === 1;
    });
  });
  await step("without scripts: an address is advertised, and not any more", async () => {
    await page.goto("/settings/advertised/new");
    await page.getByLabel("Name", { exact: true }).fill("plain");
    await page.getByLabel("To initiators from").fill("203.0.113.0/24");
    await page.getByLabel("Address that they are told").fill("192.0.2.77:3260");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("link", { name: "Change rule plain" }).click();
    await page.getByRole("link", { name: "Delete…" }).click();
    await page.getByRole("button", { name: "Delete the rule" }).click();
    await page.getByText("Rule plain is deleted").waitFor();
  });
  const busy = new Busy(appliance.url(TARGET, 0));
  try {
    const of = async () => (await appliance.api("GET", "/sessions")).items.filter((it) => it.target === TARGET);
    const [session] = await eventually("its session", async () => ((await of()).length > 0 ? of() : undefined));
    await step("without scripts: a session is closed after a question", async () => {
      await page.goto(`/sessions/${session.tsih}`);
      await page.getByRole("link", { name: "Close…" }).click();
      await page.getByText("it may log in again", { exact: false }).first().waitFor();
      await page.getByRole("button", { name: "Close the session" }).click();
      await page.getByText("is told to go").waitFor();
      await eventually("its end", async () => !(await of()).some((it) => it.tsih === session.tsih && it.isid === session.isid));
    });
  } finally {
    await busy.end();
  }
  await step("without scripts: the LUN is deleted with its data", async () => {
    await page.goto(`/luns/${TARGET}/0`);
    await page.getByRole("link", { name: "Delete" }).click();
    await page.getByRole("main").getByRole("button").first().click();
    await page.getByRole("status").waitFor();
    expect(!(await appliance.api("GET", "/luns")).items.some((it) => it.target === TARGET), "it is still there");
  });
  await step("without scripts: events are filtered and go on page by page", async () => {
    await page.goto("/events");
    await page.getByLabel("Show").selectOption("Login failed");
    await page.getByRole("button", { name: "Filter" }).click();
    await page.getByText("no target").first().waitFor();
    expect((await page.getByText("Logged in", { exact: true }).count()) <= 1, "others are shown as well");
  });
  await step("without scripts: logging out", () => logOut(visitor));
  await visitor.context.close();
}
