// What passed and what did not: a line each while it goes on, the count at the end.

let passed = 0;
const failed = [];

/** What a claim found instead of what it said; anything else that is thrown counts as well. */
export class Wrong extends Error {}

/** Runs one step. Returns what it returns, or undefined when it failed. */
export async function step(claim, run) {
  const began = performance.now();
  const seconds = () => ((performance.now() - began) / 1000).toFixed(1).padStart(5);
  try {
    const value = await run();
    passed += 1;
    console.log(`pass ${seconds()} s  ${claim}`);
    return value;
  } catch (error) {
    failed.push(claim);
    const text = error instanceof Wrong ? error.message : (error.stack ?? String(error));
    console.log(`FAIL ${seconds()} s  ${claim}\n${text.replace(/^/gm, "             ")}`);
    return undefined;
  }
}

export function expect(condition, otherwise) {
  if (!condition) throw new Wrong(otherwise);
}

/** Asks again until it holds: for what a browser or a program does in its own time. */
export async function eventually(what, holds, patience = 15_000) {
  const deadline = Date.now() + patience;
  for (;;) {
    const value = await holds();
    if (value) return value;
    expect(Date.now() < deadline, `never came: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** The last line, and the exit code. */
export function summary() {
  console.log(`${passed} passed, ${failed.length} failed`);
  return failed.length > 0 ? 1 : 0;
}
