// A real headgate, a counting relay in front of decide.listen, and visitors. No mocks.

import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {setTimeout as sleep} from 'node:timers/promises';

const binary = process.env.HEADGATE;
if (!binary) throw new Error('set HEADGATE to the path of the command headgate, or run make connectors');

/** A headgate that can be killed and started again, behind a relay whose address stays. */
export class Headgate {
  constructor(room) {
    this.dir = mkdtempSync(join(tmpdir(), 'connector-'));
    this.file = join(this.dir, 'headgate.yaml');
    const polls = room.includes('poll_min') ? '' : 'poll_min: 200ms, poll_max: 500ms, ';
    writeFileSync(this.file, `listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\ndata: ${this.dir}/data
decide: {listen: "127.0.0.1:0"}\ntrusted_proxies: [127.0.0.1]\nrooms:
  - {name: shop, host: shop.example, origin: "http://127.0.0.1:9", spread: false, ${polls}${room}}\n`);
    this.asked = {connect: 0, batch: 0, jwks: 0};
    this.stopped = false; // the relay forwards nothing
    this.slow = 0; // milliseconds by which each question is late
    this.batchesOnly = false; // the relay ends connections with other questions
    this.noBatches = false; // batches get no answer
    this.leases = 0; // batches that were answered with a lease
    this.sockets = new Set();
  }

  async start() {
    this.process = spawn(binary, ['run', '--config', this.file], {stdio: ['ignore', 'pipe', 'pipe']});
    let out = '';
    this.log = '';
    this.process.stderr.on('data', (part) => { this.log += part; });
    this.process.stdout.on('data', (part) => { out += part; });
    const port = (name) => Number(new RegExp(`^${name} +http://127\\.0\\.0\\.1:(\\d+)`, 'm').exec(out)?.[1] ?? 0);
    await until('headgate listens', () => port('proxies'));
    this.decide = port('proxies');
    this.admin = port('operators');
    await until('headgate is ready', async () => (await get(this.admin, '/readyz').catch(() => ({}))).status === 200);
    if (!this.relay) await this.startRelay();
    return this;
  }

  async startRelay() {
    this.relay = net.createServer((near) => {
      const far = net.connect(this.decide, '127.0.0.1');
      for (const s of [near, far]) {
        this.sockets.add(s);
        s.on('close', () => { near.destroy(); far.destroy(); this.sockets.delete(s); });
        s.on('error', () => {});
      }
      let silent = false;
      near.on('data', (part) => {
        for (const [, name] of part.toString('latin1').matchAll(/^(?:GET|POST) \/(connect|batch|jwks)[ .]/gm)) this.asked[name]++;
        silent ||= this.noBatches && part.includes('POST /batch');
        if (this.batchesOnly && part.includes('GET /connect')) near.destroy();
        else if (this.slow) setTimeout(() => far.write(part), this.slow);
        else if (!this.stopped && !silent) far.write(part);
      });
      far.on('data', (part) => { this.leases += part.includes('"lease":') ? 1 : 0; });
      far.pipe(near);
    });
    this.relay.listen(0, '127.0.0.1');
    await once(this.relay, 'listening');
    this.url = `http://127.0.0.1:${this.relay.address().port}`;
  }

  async kill() {
    this.process.kill('SIGKILL');
    await once(this.process, 'exit');
    for (const s of this.sockets) s.destroy();
  }

  /** headgate without the relay, for an application that nothing keeps from it. */
  get direct() {
    return {url: `http://127.0.0.1:${this.decide}`};
  }

  async metric(name) {
    const {body} = await get(this.admin, '/metrics');
    return Number(new RegExp(`^${name}\\{[^}]*\\} (\\S+)`, 'm').exec(body)?.[1] ?? 0);
  }

  async close() {
    if (this.process.exitCode === null && this.process.signalCode === null) await this.kill();
    this.relay.close();
    rmSync(this.dir, {recursive: true, force: true});
  }
}

/** Waits until something is so. */
export async function until(what, is, most = 60_000) {
  for (const end = Date.now() + most; ;) {
    const value = await is();
    if (value) return value;
    if (Date.now() > end) throw new Error(`not within ${most / 1000} s: ${what}`);
    await sleep(20);
  }
}

export function get(port, path, headers = {}, method = 'GET', body = undefined) {
  return new Promise((resolve, reject) => {
    const req = http.request({host: '127.0.0.1', port, path, method, headers, agent: false}, (res) => {
      const parts = [];
      res.on('data', (part) => parts.push(part));
      res.on('end', () => resolve({status: res.statusCode, headers: res.headers, raw: res.rawHeaders,
        body: Buffer.concat(parts).toString('utf8')}));
      res.on('error', reject);
    });
    req.on('error', reject);
    req.end(body);
  });
}

/** A browser with a jar of cookies and an address of its own. */
export class Visitor {
  constructor(port, number = 1) {
    this.port = port;
    this.jar = new Map();
    this.headers = {Host: 'shop.example', Accept: 'text/html', 'X-Visitor': String(number),
      'X-Forwarded-For': `198.51.100.${number}`};
  }

  get cookie() {
    return [...this.jar].map(([name, value]) => `${name}=${value}`).join('; ');
  }

  async ask(path = '/', headers = {}, method = 'GET', body = undefined) {
    const all = {...this.headers, ...headers};
    if (this.jar.size) all.Cookie = this.cookie;
    const answer = await get(this.port, path, all, method, body);
    for (const line of answer.headers['set-cookie'] ?? []) {
      const [, name, value] = /^([^=;]+)=([^;]*)/.exec(line);
      if (/max-age=0|max-age=-/i.test(line)) this.jar.delete(name);
      else this.jar.set(name, value);
    }
    return answer;
  }

  /** Asks until the application answers. */
  async enter(pause = 200) {
    return until(`visitor ${this.headers['X-Visitor']} gets in`, async () => {
      const answer = await this.ask();
      if (answer.status === 200) return answer;
      await sleep(pause);
      return null;
    });
  }

  /** Gets in, and shows that the cookie comes back. */
  async settle(pause = 200) {
    await this.enter(pause);
    return this.enter(pause);
  }
}

/** Visitors come to a crowded room one after another, get in, and look around. */
export async function crowd(visitors, pause = 200) {
  for (const v of visitors) {
    const first = await v.ask();
    // The third answer says that minutes may pass until the next poll.
    if (first.status !== 200) await v.ask().then(() => v.ask());
  }
  await Promise.all(visitors.map(async (v) => {
    await v.settle(pause);
    for (let i = 0; i < 5; i++) {
      await sleep(100);
      const again = await v.ask(`/page/${i}`);
      if (again.status !== 200) assert.equal(again.status, 503); // it was slower than its session
    }
  }));
}

/** The room for a crowd. However slow the machine is, nobody goes quiet or misses a call. */
export const CROWDED = 'total_active_users: 20, new_users_per_minute: 200, session_duration: 4s, checkout: {pass: true}, ' +
  'poll_min: 5m, poll_max: 5m, hold: 1h, call_hold: 1h';

export {sleep};
