// A running `lunaport serve` with its management, on loopback and in a state directory of its own; a client of its API
// by the Unix socket; and the initiators that use it.

import { execFile, spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

import { Wrong, eventually, expect } from "./report.mjs";

export const SET_UP_TOKEN = "set-up-token-of-the-browser-tests";

export class Appliance {
  /** Starts it, and waits until it is managed. */
  static async start(logPath) {
    const it = new Appliance();
    it.state = mkdtempSync(join(tmpdir(), "lunaport-browser-"));
    it.logPath = logPath;
    const [portal, admin] = [await freePort(), await freePort()];
    it.portal = `127.0.0.1:${portal}`;
    it.origin = `http://127.0.0.1:${admin}`;
    const token = join(it.state, "set-up-token");
    writeFileSync(token, SET_UP_TOKEN, { mode: 0o600 });
    const options = ["serve", "--state-dir", it.state, "--portal", it.portal, "--admin", `127.0.0.1:${admin}`];
    // Settings of the caller's shell must not leak into what is judged.
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("LUNAPORT_")));
    const log = openSync(logPath, "w");
    const program = resolve(process.env.LUNAPORT_BIN);
    it.process = spawn(...bound(program, ...options, "--set-up-token-file", token), {
      stdio: ["ignore", log, log],
      env,
    });
    closeSync(log);
    await eventually("`management at` in the log", () => {
      if (it.process.exitCode !== null) throw new Wrong(`it ended by itself:\n${it.log()}`);
      return it.log().includes("management at");
    });
    return it;
  }

  log() {
    return readFileSync(this.logPath, "utf8");
  }

  url(target, lun) {
    return `iscsi://${this.portal}/${target}/${lun}`;
  }

  /** A request to the API as the user of this host. Its JSON, when the status is a good one. */
  async api(method, path, body) {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const answer = await new Promise((done, failed) => {
      const headers = text === undefined ? {} : { "content-type": "application/json" };
      const options = { socketPath: join(this.state, "lunaport.sock"), method, path: `/api/v1${path}`, headers };
      const sent = request(options, (response) => {
        const chunks = [];
        response.on("data", (chunk) => chunks.push(chunk));
        response.on("end", () => done({ status: response.statusCode, text: Buffer.concat(chunks).toString() }));
      });
      sent.on("error", failed);
      sent.end(text);
    });
    expect(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.text}`);
    return answer.text === "" ? undefined : JSON.parse(answer.text);
  }

  /** Ends it as an operator would. */
  async stop() {
    const early = this.process.exitCode;
    if (early === null) {
      const ended = new Promise((done) => this.process.once("exit", done));
      this.process.kill("SIGTERM");
      const timer = setTimeout(() => this.process.kill("SIGKILL"), 15_000);
      await ended;
      clearTimeout(timer);
    }
    rmSync(this.state, { recursive: true, force: true });
    expect(early === null, `it ended by itself with exit code ${early}`);
    expect(this.process.exitCode === 0, `exit code ${this.process.exitCode} after SIGTERM`);
    expect(!this.log().includes("panicked at"), "it panicked, see its log");
  }
}

/**
 * An initiator that logs in and uses a disk until it is ended. It works a tenth of the time: going on, it and the target
 * would take the processors that the browser needs.
 */
export class Busy {
  constructor(url) {
    this.process = spawn(...bound("iscsi-perf", "-m", "2", "-b", "8", "-t", "600", url), { stdio: "ignore" });
    this.ended = new Promise((done) => this.process.once("exit", done));
    this.pulse = setInterval(() => {
      this.process.kill("SIGCONT");
      setTimeout(() => this.process.kill("SIGSTOP"), 50);
    }, 500);
  }

  async end() {
    clearInterval(this.pulse);
    this.process.kill("SIGKILL");
    await this.ended;
  }
}

/** Runs a program to its end; its output, both streams, when it ended well. */
export function tool(program, ...args) {
  return new Promise((done, failed) => {
    execFile(...bound(program, ...args), { timeout: 60_000 }, (error, stdout, stderr) => {
      const output = stdout + stderr;
      if (error) failed(new Wrong(`${program} ${args.join(" ")}: ${error.code ?? error.signal}: ${output.slice(-500)}`));
      else done(output);
    });
  });
}

/** A command that ends with this process: whoever kills the test leaves nothing behind. */
function bound(...command) {
  return ["setpriv", ["--pdeathsig", "KILL", ...command]];
}

function freePort() {
  return new Promise((done, failed) => {
    const probe = createServer();
    probe.once("error", failed);
    probe.listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => done(port));
    });
  });
}
