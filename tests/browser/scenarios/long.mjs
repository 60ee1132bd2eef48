// Work that takes long, in the browser: begun, watched, cancelled, done; and a disk that is at two LUNs.

import { readdirSync } from "node:fs";

import { tool } from "../lib/appliance.mjs";
import { look } from "../lib/judge.mjs";
import { eventually, expect, step } from "../lib/report.mjs";

const TARGET = "iqn.2026-11.org.example:full";
const GIB = 1 << 30;

export async function long({ page, complaints }, appliance, folder) {
  const begun = await step("a store that takes all its space shows how far it is", () => begin(page, appliance));
  if (begun) {
    await look(page, complaints, "zeroing", folder);
    await step("it is cancelled, and nothing of it is left", () => cancel(page, complaints, appliance, folder));
  }
  const made = await step("a LUN that takes all its space is there when it is filled", () => fill(page, appliance));
  if (!made) return;
  await step("its disk is mapped at a second number, and is the same there", () => map(page, appliance));
  await appliance.api("DELETE", `/targets/${TARGET}`);
  await appliance.api("DELETE", "/units/full");
  await appliance.api("DELETE", "/stores/full?delete-data=true");
}

async function begin(page, appliance) {
  // Enough to be watched, and no more than there is room for.
  const free = (await appliance.api("GET", "/store-roots")).items.at(-1).free;
  await page.goto("/new/store");
  expect((await page.getByLabel("Where").innerText()).includes("free"), "the form does not say how much is free");
  await page.getByLabel("Name", { exact: true }).fill("huge");
  await page.getByLabel("Size", { exact: true }).fill(`${Math.min(8, Math.floor(free / GIB / 2))} GiB`);
  await page.getByLabel("Take all the space now").check();
  await page.getByRole("button", { name: "Make the store" }).click();
  await page.getByText("Store huge is being filled with zeroes").waitFor();
  const row = page.getByRole("row", { name: "Zeroing huge" });
  // By itself, without loading the page again.
  await eventually("some progress", async () => (await row.getByRole("progressbar").evaluate((bar) => bar.value)) > 0);
  return true;
}

async function cancel(page, complaints, appliance, folder) {
  await page.getByRole("link", { name: "Cancel… Zeroing huge" }).click();
  await look(page, complaints, "zeroing-cancel", folder);
  await page.getByRole("button", { name: "Cancel it" }).click();
  const row = page.getByRole("row", { name: "Zeroing huge" });
  await eventually("its end", async () => (await row.getByText("cancelled", { exact: true }).count()) === 1);
  const stores = (await appliance.api("GET", "/stores")).items.map((store) => store.id);
  expect(!stores.includes("huge"), "the store is there");
  const left = readdirSync(appliance.state).filter((name) => name.startsWith("huge"));
  expect(left.length === 0, `these files are left: ${left}`);
}

async function fill(page, appliance) {
  await page.goto("/new/lun");
  await page.getByLabel("Name", { exact: true }).fill("full");
  await page.getByLabel("Size", { exact: true }).fill("64 MiB");
  await page.getByText("More about the disk").click();
  await page.getByLabel("Take all the space now").check();
  await page.getByLabel("iSCSI name").fill(TARGET);
  await page.getByLabel("Any initiator").check();
  await page.getByRole("button", { name: "Make the LUN" }).click();
  await page.getByText("Its file is being filled with zeroes").waitFor();
  await eventually("the LUN", async () => (await appliance.api("GET", "/luns")).total === 1);
  const output = await tool("qemu-io", "-f", "raw", "-c", "write -P 5 1M 64k", appliance.url(TARGET, 0));
  expect(!output.includes("failed"), output);
  return true;
}

async function map(page, appliance) {
  await page.goto(`/luns/${TARGET}/0`);
  await page.getByRole("link", { name: "Map it elsewhere" }).click();
  await page.getByText("Choose its number").click();
  await page.getByLabel("LUN (optional)").fill("5");
  await page.getByRole("button", { name: "Make the LUN" }).click();
  await page.getByRole("link", { name: `LUN 0 of ${TARGET}` }).waitFor();
  const output = await tool("qemu-io", "-f", "raw", "-c", "read -P 5 1M 64k", appliance.url(TARGET, 5));
  expect(!output.includes("failed"), output);
}
