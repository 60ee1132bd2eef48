// A node as somebody has it who uses it: several of everything, something of everything going on, something wrong.

import { Busy, tool } from "./appliance.mjs";
import { Registrant } from "./registrant.mjs";
import { eventually } from "./report.mjs";

export const TARGET = "iqn.2026-11.org.example:vm-disks";
const VAULT = "iqn.2026-11.org.example:vault";
const MIB = 1 << 20;

export const CONFIGURATION = {
  settings: { discovery: { method: "none" } },
  targets: [
    { name: TARGET, alias: "Disks of the virtual machines" },
    { name: VAULT, authentication: { method: "chap", credentials: ["vault"] } },
    { name: "iqn.2026-11.org.example:retired", enabled: false },
  ],
  stores: [
    { id: "vm-01", place: { kind: "file", path: "vm-01.img", size: 1024 * MIB } },
    { id: "vm-02", place: { kind: "file", path: "vm-02.img", size: 5 * 1024 * MIB } },
    { id: "scratch", place: { kind: "memory", size: 64 * MIB } },
    { id: "vault", place: { kind: "file", path: "vault.img", size: 256 * MIB } },
    { id: "spare", place: { kind: "file", path: "spare.img", size: 128 * MIB } },
    { id: "archive", place: { kind: "file", path: "archive.img", size: 512 * MIB } },
  ],
  units: [
    { id: "vm-01", store: "vm-01" },
    { id: "vm-02", store: "vm-02", soft_threshold_percent: 80 },
    { id: "scratch", store: "scratch" },
    { id: "vault", store: "vault" },
    { id: "archive", store: "archive", enabled: false },
  ],
  luns: [
    { target: TARGET, lun: 0, unit: "vm-01" },
    { target: TARGET, lun: 1, unit: "vm-02" },
    { target: TARGET, lun: 2, unit: "scratch" },
    { target: VAULT, lun: 0, unit: "vault" },
  ],
  advertised: [{ id: "branch", from: "198.51.100.0/24", address: "storage.example.org:3260" }],
  credentials: [{ id: "vault", name: "backup", secret: "kept-to-itself-1" }],
  groups: [{ id: "hypervisors", description: "The two in the cellar" }],
  initiators: [
    { name: "iqn.2026-11.org.example:host-a", description: "Upper shelf", groups: ["hypervisors"] },
    { name: "iqn.2026-11.org.example:host-b", groups: ["hypervisors"] },
  ],
  access: [
    { id: "hypervisors", target: TARGET, group: "hypervisors" },
    { id: "loopback", target: TARGET, network: "127.0.0.0/8" },
    { id: "backup", target: VAULT, any: true },
  ],
};

/** Puts the node into that state. What it gives has to be ended. */
export async function fill(appliance) {
  await appliance.api("PUT", "/config", CONFIGURATION);
  await appliance.api("POST", "/tokens", { id: "prometheus", role: "viewer" });
  await appliance.api("PUT", "/users/anna", { role: "operator", password: "another password" });
  const full = { id: "full", place: { kind: "file", path: "full.img", size: 64 * MIB } };
  await appliance.api("POST", "/jobs", { kind: "zero", store: full });
  const writes = ["-f", "raw", "-c", "write -P 1 0 48M", appliance.url(TARGET, 0)];
  await tool("qemu-io", ...writes);
  const busy = [new Busy(appliance.url(TARGET, 2)), new Busy(appliance.url(TARGET, 0))];
  const hosts = [];
  for (const [name, key] of [["host-a", 0xa1n], ["host-b", 0xb2n]]) {
    const initiator = `iqn.2026-11.org.example:${name}`;
    // The first of them reserves; the second registers, and is refused the rest.
    const host = await Registrant.register(appliance.portal, TARGET, 1, initiator, key);
    if (hosts.length === 0) await host.reserve();
    hosts.push(host);
  }
  // Those that do not get in, for three reasons, one of them twice.
  const nowhere = appliance.url("iqn.2026-11.org.example:nowhere", 0);
  for (const args of [
    [nowhere],
    [nowhere],
    [appliance.url(VAULT, 0)],
    ["-i", "iqn.2026-11.org.example:stranger", appliance.url("iqn.2026-11.org.example:retired", 0)],
  ]) {
    await tool("iscsi-inq", ...args).then(
      () => Promise.reject(new Error(`${args} got in`)),
      () => undefined,
    );
  }
  await eventually("four sessions", async () => (await appliance.api("GET", "/sessions")).total >= 4);
  return {
    async end() {
      for (const host of hosts) host.end();
      for (const one of busy) await one.end();
    },
  };
}
