// An initiator that does one thing which no packaged tool does: it registers a key for a persistent reservation, takes
// the reservation, and stays. Only the PDUs for that (RFC 7143, sections 11.2, 11.3, 11.12) and their CDBs (SPC-4).

import { connect } from "node:net";

import { Wrong } from "./report.mjs";

export class Registrant {
  /** Logs in, registers `key` at the LUN and reserves it: write exclusive, registrants only. */
  static async reserve(portal, target, lun, name, key) {
    const it = new Registrant();
    const [host, port] = portal.split(":");
    it.socket = connect(Number(port), host);
    it.received = Buffer.alloc(0);
    it.socket.on("data", (chunk) => {
      it.received = Buffer.concat([it.received, chunk]);
      it.wake?.();
    });
    it.socket.on("error", () => {});
    it.socket.on("close", () => it.wake?.());
    Object.assign(it, { lun, cmdSn: 1, expStatSn: 0, tag: 1 });
    await it.logIn(name, target);
    await it.persistentReserveOut(0, 0, 0n, key);
    await it.persistentReserveOut(1, 5, key, 0n);
    return it;
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
    for (;;) {
      const answer = await this.pdu();
      // Pings of the target may come in between.
      if (answer[0] === 0x20) continue;
      this.expStatSn = answer.readUInt32BE(24) + 1;
      return answer;
    }
  }

  async pdu() {
    for (;;) {
      if (this.received.length >= 48) {
        const length = 48 + ((this.received.readUIntBE(5, 3) + 3) & ~3);
        if (this.received.length >= length) {
          const header = this.received.subarray(0, 48);
          this.received = this.received.subarray(length);
          return header;
        }
      }
      if (this.socket.destroyed) throw new Wrong("the target closed the connection");
      await new Promise((done) => (this.wake = done));
    }
  }
}
