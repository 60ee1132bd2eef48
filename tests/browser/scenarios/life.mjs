// A disk's life in the browser, with an initiator at the far end: made, written and read, seen at work, grown, taken away
// from under a session.

import { Busy, tool } from "../lib/appliance.mjs";
import { look } from "../lib/judge.mjs";
import { eventually, expect, step } from "../lib/report.mjs";

const TARGET = "iqn.2026-11.org.example:cellar";
const MIB = 1 << 20;

export async function life(admin, appliance, folder) {
  const { page, complaints } = admin;
  const url = appliance.url(TARGET, 0);
  const made = await step("a LUN with store and target is made with one form", () => make(page));
  if (!made) return;
  await step("its page has the commands for four kinds of hosts", () => commands(page, appliance));
  await look(page, complaints, "made", folder);
  await step("an initiator writes to it and reads it back", async () => {
    await patterns(url, [["write -P 7 0 1M"], ["flush"], ["write -P 9 130M 64k"]]);
    await patterns(url, [["read -P 7 0 1M"], ["read -P 9 130M 64k"], ["read -P 0 64M 1M"]]);
  });
  // Before the initiator logs in: its row and its line have to come while the page is open.
  await page.goto("/");
  await page.getByText("Nobody is logged in").waitFor();
  const busy = new Busy(url);
  try {
    await step("the dashboard shows its rates as they come, in table and charts", () => rates(page, appliance));
    await look(page, complaints, "at-work", folder);
    await step("the session is listed with what was agreed", () => session(page));
    await step("it grows, and the initiator sees the new size", () => grow(page, url));
    await step("deleting it names the session that uses it, and waits for a yes", () => refuse(page, appliance));
    await look(page, complaints, "delete", folder);
    await step("said all the same, it is gone within 2 s, and its initiator cannot read it", () => force(page, url));
  } finally {
    await busy.end();
  }
  await step("the audit log has every step with who made it", () => audit(page));
}

async function make(page) {
  await page.goto("/");
  await page.getByRole("link", { name: "Make the first LUN" }).click();
  await page.getByLabel("Name", { exact: true }).fill("cellar");
  await page.getByLabel("Size", { exact: true }).fill("256 MiB");
  await page.getByLabel("iSCSI name").fill(TARGET);
  await page.getByLabel("Any initiator").check();
  await page.getByRole("button", { name: "Make the LUN" }).click();
  await page.getByRole("heading", { level: 1, name: "cellar" }).waitFor();
  return true;
}

async function commands(page, appliance) {
  const text = await page.locator("#connect").locator("..").innerText();
  for (const part of ["iscsiadm", "New-IscsiTargetPortal", "esxcli", "qemu", appliance.portal.split(":")[1], TARGET]) {
    expect(text.includes(part), `no ${part} in the commands`);
  }
}

/** Old versions of qemu-io report a failed comparison in words only. */
async function patterns(url, lines) {
  const output = await tool("qemu-io", "-f", "raw", ...lines.flatMap(([line]) => ["-c", line]), url);
  expect(!output.includes("failed"), output);
}

async function rates(page, appliance) {
  const row = page.locator(`table[data-by=luns] tr[data-key="${TARGET}/0"]`);
  const cell = (name) => row.locator(`[data-value^="${name}:"]`).innerText();
  await eventually("a rate in the row of the LUN", async () => /^[1-9].*[kMG]?B\/s$/.test(await cell("bytes_per_second")));
  await eventually("operations in the row of the LUN", async () => parseFloat(await cell("iops")) > 0);
  await eventually("a latency in the row of the LUN", async () => /(µs|ms)$/.test(await cell("mean_us")));
  expect((await page.locator("[data-charts] canvas").count()) === 3, "there are not three charts");
  // The row's colour is the one of its line: there is a line.
  await eventually("a line in the charts", async () => (await row.locator('[data-swatch="1"]').count()) === 1);
  const drawn = () => page.locator('[data-chart^="bytes"] canvas').evaluate((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const [red, green, blue] = [0x1a, 0x5a, 0xa8];
    for (let at = 0; at < data.length; at += 4) {
      if (data[at] === red && data[at + 1] === green && data[at + 2] === blue && data[at + 3] === 255) return true;
    }
    return false;
  });
  await eventually("the colour of the first line in the chart", drawn);
  await page.getByLabel("By initiator").check();
  await eventually("a line of the initiator", async () => {
    return (await page.locator('table[data-by=initiators] [data-swatch="1"]').count()) === 1;
  });
  const api = await appliance.api("GET", "/stats");
  expect(api.luns[0].iops > 0, "the API shows no rate");
}

async function session(page) {
  await page.goto("/sessions");
  await page.getByRole("link", { name: /libiscsi/ }).first().click();
  await page.getByRole("heading", { name: "What was agreed" }).waitFor();
  for (const key of ["MaxBurstLength", "HeaderDigest", "InitialR2T", "ErrorRecoveryLevel", "iSCSIProtocolLevel"]) {
    expect((await page.getByText(key, { exact: true }).count()) === 1, `${key} is not shown`);
  }
}

async function grow(page, url) {
  await page.goto(`/luns/${TARGET}/0`);
  await page.getByText("Grow it").click();
  await page.getByLabel("New size").fill("384 MiB");
  await page.getByRole("button", { name: "Grow" }).click();
  await page.getByText("It has 384 MiB now").waitFor();
  const output = await tool("iscsi-readcapacity16", url);
  expect(new RegExp(`total size:\\s*${384 * MIB}\\b`, "i").test(output), output);
}

async function refuse(page, appliance) {
  await page.goto(`/luns/${TARGET}/0`);
  await page.getByRole("link", { name: "Delete" }).click();
  await page.getByText("1 session is using it").waitFor();
  await page.getByText(/iqn\.2010-11\.libiscsi/).waitFor();
  expect((await appliance.api("GET", "/luns")).total === 1, "it is gone already");
}

async function force(page, url) {
  const began = performance.now();
  await page.getByRole("button", { name: /all the same/ }).click();
  await page.getByRole("status").waitFor();
  const seconds = (performance.now() - began) / 1000;
  expect(seconds < 2, `it took ${seconds.toFixed(1)} s`);
  await tool("iscsi-readcapacity16", url).then(
    () => expect(false, "it can still be read"),
    () => undefined,
  );
}

async function audit(page) {
  await page.goto("/audit");
  const text = await page.locator("table").innerText();
  for (const part of ["created", "changed", "deleted", "user admin"]) expect(text.includes(part), `no ${part} in the log`);
}
