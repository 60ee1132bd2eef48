// An initiator that does one thing which no packaged tool does: it registers a key for a persistent reservation, may
// take the reservation, and stays. Only the PDUs for that (RFC 7143, sections 11.2, 11.3, 11.12) and their CDBs (SPC-4).

import { connect } from "node:net";

import { Wrong } from "./report.mjs";

export class Registrant {
  /** Logs in and registers `key` at the LUN. */
  static async register(portal, target, lun, name, key) {
    const it = new Registrant();
    const [host, port] = portal.split(":");
    it.socket = connect(Number(port), host);
    Object.assign(it, { lun, key, cmdSn: 1, expStatSn: 0, tag: 1, received: Buffer.alloc(0), answers: [] });
    it.socket.on("data", (chunk) => it.take(chunk));
    it.socket.on("error", () => {});
    it.socket.on("close", () => it.wake?.());
    await it.logIn(name, target);
    await it.persistentReserveOut(0, 0, 0n, key);
    return it;
  }

  /** Takes the reservation: write exclusive, registrants only. */
  async reserve() {
    await this.persistentReserveOut(1, 5, this.key, 0n);
  }

  end() {
    this.socket.destroy();
  }

  async logIn(name, target) {
    const keys = { InitiatorName: name, TargetName: target, SessionType: "Normal" };
    const text = Object.entries(keys).map(([key, value]) => `${key}=${value}\0`).join("");
    const header = Buffer.alloc(48);
    header[0] = 0x43;
    // From the operational stage straight on to the full feature phase.
    header[1] = 0x87;
    // ISID of the random format.
    header[8] = 0x80;
    header.writeUInt32BE(this.cmdSn, 24);
    const answer = await this.exchange(header, Buffer.from(text));
    if (answer[36] !== 0) throw new Wrong(`login of ${name}: status ${answer.readUInt16BE(36).toString(16)}`);
  }

  async persistentReserveOut(action, type, key, newKey) {
    const parameters = Buffer.alloc(24);
    parameters.writeBigUInt64BE(key, 0);
    parameters.writeBigUInt64BE(newKey, 8);
    // A unit attention comes before anything else is done: of the power-on, or of what else the disk has lived through.
    for (let round = 0; round < 4; round += 1) {
      const header = Buffer.alloc(48);
      header[0] = 0x01;
      header[1] = 0xa1;
      header.writeUInt16BE(this.lun, 8);
      header.writeUInt32BE((this.tag += 1), 16);
      header.writeUInt32BE(parameters.length, 20);
      header.writeUInt32BE(this.cmdSn++, 24);
      header.writeUInt32BE(this.expStatSn, 28);
      header.set([0x5f, action, type, 0, 0, 0, 0, 0, parameters.length], 32);
      const answer = await this.exchange(header, parameters);
      if (answer[3] === 0) return;
      if (answer[3] !== 0x02) throw new Wrong(`PERSISTENT RESERVE OUT: status ${answer[3].toString(16)}`);
    }
    throw new Wrong("PERSISTENT RESERVE OUT: no end of unit attentions");
  }

  /** Sends one PDU and gives the header of the response. */
  async exchange(header, data) {
    header.writeUIntBE(data.length, 5, 3);
    this.socket.write(Buffer.concat([header, data, Buffer.alloc(-data.length & 3)]));
    while (this.answers.length === 0) {
      if (this.socket.destroyed) throw new Wrong("the target closed the connection");
      await new Promise((done) => (this.wake = done));
    }
    const answer = this.answers.shift();
    this.expStatSn = answer.readUInt32BE(24) + 1;
    return answer;
  }

  /** Cuts what comes into PDUs, and answers pings at once (section 11.18). */
  take(chunk) {
    this.received = Buffer.concat([this.received, chunk]);
    while (this.received.length >= 48) {
      const length = 48 + ((this.received.readUIntBE(5, 3) + 3) & ~3);
      if (this.received.length < length) return;
      const header = this.received.subarray(0, 48);
      this.received = this.received.subarray(length);
      if (header[0] === 0x20) this.pong(header);
      else this.answers.push(header);
    }
    this.wake?.();
  }

  pong(ping) {
    if (ping.readUInt32BE(20) === 0xffffffff) return;
    const header = Buffer.alloc(48);
    header[0] = 0x40;
    header[1] = 0x80;
    ping.copy(header, 8, 8, 16);
    header.writeUInt32BE(0xffffffff, 16);
    ping.copy(header, 20, 20, 24);
    header.writeUInt32BE(this.cmdSn, 24);
    header.writeUInt32BE(this.expStatSn, 28);
    this.socket.write(header);
  }
}
