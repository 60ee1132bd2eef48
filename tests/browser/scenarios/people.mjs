// Coming in and going out.

import { SET_UP_TOKEN } from "../lib/appliance.mjs";
import { look } from "../lib/judge.mjs";
import { expect } from "../lib/report.mjs";

export const USER = "admin";
export const PASSWORD = "correct horse battery staple";

/** Makes the first user, and is logged in then. */
export async function setUp({ page, complaints }, folder) {
  await page.goto("/");
  expect(new URL(page.url()).pathname === "/set-up", `the first visit leads to ${page.url()}`);
  await look(page, complaints, "set-up", folder);
  await page.getByLabel("Set-up token").fill(SET_UP_TOKEN);
  await page.getByLabel("User", { exact: true }).fill(USER);
  await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await page.getByLabel("Password again").fill(PASSWORD);
  await page.getByRole("button", { name: "Make the administrator" }).click();
  await page.getByRole("heading", { name: "Dashboard" }).waitFor();
  return true;
}

export async function logIn({ page }) {
  await page.goto("/login");
  await page.getByLabel("User", { exact: true }).fill(USER);
  await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { name: "Dashboard" }).waitFor();
}

export async function logOut({ page }) {
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByRole("heading", { name: "Log in" }).waitFor();
  await page.goto("/stores");
  expect(new URL(page.url()).pathname === "/login", `after the logout ${page.url()} is shown`);
}
