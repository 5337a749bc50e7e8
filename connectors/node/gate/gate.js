// The connector itself: it asks headgate, keeps what it may keep, and reports what it has let in.

import {createHash} from 'node:crypto';
import http from 'node:http';

import {Memory} from './memory.js';
import {Keys, openPass} from './pass.js';
import {MOST_LINES, cookiesAfter, ownCookies, pairs, passesLocally, questionHeaders, valuesOf} from './question.js';

const MOST_QUESTIONS = 1000; // of a batch
const MOST_ENDS = 100; // of a batch
const MOST_BATCH = 900_000; // bytes, below the 1 MB that headgate reads
const MOST_ENDING = 1000; // ends that wait for an answer
const LEASE = 2000; // for which an answer of headgate holds, unless it says more
const FORGET_ENDED = 10_000; // a question that was under way when a session ended is over by then

/** Errors of a request that Node.js does not send: no reason to fail open. */
const UNSENDABLE = new Set(['ERR_INVALID_CHAR', 'ERR_INVALID_HTTP_TOKEN', 'ERR_HTTP_INVALID_HEADER_VALUE']);

/** Errors of this machine: they say nothing of headgate, and a flood of visitors can cause them. */
const OWN = new Set(['EMFILE', 'ENFILE', 'EADDRNOTAVAIL', 'ENOBUFS', 'ENOMEM']);

const LATE = new Error('headgate does not answer');

const DOWN = 'This site cannot be reached at the moment. Try again in some seconds.\n';

/** A moment by both clocks: one stands still while the machine sleeps, the other may be set. */
const moment = (monotonic = performance.now()) => ({monotonic, wall: Date.now()});
const since = (m) => Math.max(performance.now() - m.monotonic, Date.now() - m.wall);

export class Gate {
  constructor(options = {}) {
    const at = new URL(options.decide ?? 'http://127.0.0.1:8083');
    if (at.protocol !== 'http:' || at.pathname !== '/' || at.search || at.username) {
      throw new TypeError(`headgate: decide is ${options.decide}; write http://host:port, the address decide.listen`);
    }
    this.target = {host: at.hostname.replace(/^\[|\]$/g, ''), port: at.port || 80};
    this.timeout = options.timeout ?? 5000;
    this.failOpen = options.failOpen ?? false;
    this.rooms = options.rooms;
    this.proto = options.proto;
    this.local = options.local ?? true;
    this.agent = new http.Agent({keepAlive: true, maxSockets: options.connections ?? 256, scheduling: 'lifo'});
    this.keys = new Keys(() => this.json('GET', '/jwks.json'));
    const most = options.memory ?? 10_000;
    this.memory = new Memory(most); // of entries, by scheme, host and cookies
    this.opened = new Memory(most); // claims, by token
    this.notes = new Map(); // by session: what was let in since the last batch
    this.ends = new Map(); // by session
    this.ended = new Map(); // by session: until when nothing of it is kept
    this.timer = null;
    this.sending = null;
    this.closed = false;
    this.answered = -Infinity; // when headgate answered last
    this.failing = false; // what was sent last got no answer
    this.lease = moment(-Infinity); // when the last batch was sent that was answered with a lease
    this.leasedSince = Infinity; // what was asked from then on, the lease is for
    this.keptUntil = -Infinity; // the last end of all that was kept
    /** Counts since the start. */
    this.stats = {asked: 0, local: 0, batches: 0, down: 0};
  }

  /**
   * Decides about a request.
   * @returns {Promise<{admitted?: string, pass?: string, claims?: object, setCookie?: string[],
   *   answer?: http.IncomingMessage, status?: number, text?: string}>}
   */
  async decide(visit) {
    if (visit.lines.length > MOST_LINES) return {status: 431, text: 'This request has too many headers.\n'};
    if (!visit.host) return {status: 400, text: 'This request needs exactly one Host.\n'};
    const cookies = ownCookies(visit.lines);
    const key = cookies?.length ? this.key(visit, cookies) : '';
    const entry = this.local && key ? this.memory.get(key) : undefined;
    const mayPass = entry && !this.ended.has(entry.claims.sub) && passesLocally(entry.folder, visit);
    const holds = mayPass && (this.failing ? this.fresh(entry, 0) : this.fresh(entry, entry.margin) && this.leased(entry));
    if (holds && this.note(entry, visit)) return this.letIn(entry, visit);
    const asked = moment();
    const began = performance.now();
    let answer;
    try {
      this.stats.asked++;
      answer = await this.ask(visit);
    } catch (error) {
      if (visit.signal?.aborted) throw error;
      if (UNSENDABLE.has(error.code)) return {status: 400, text: 'This request is not well formed.\n'};
      this.stats.down++;
      const own = OWN.has(error.code);
      if (!own) this.failing = this.answered < began;
      // A flood makes questions wait for a connection, or takes the last of them. It must open nothing.
      const flooded = own || !this.failing;
      const passes = mayPass && this.fresh(entry, 0) && (!flooded || this.leased(entry));
      if (passes && this.note(entry, visit)) return this.letIn(entry, visit);
      return this.failOpen && !flooded ? {admitted: 'open', pass: '', setCookie: []} : {status: 503, text: DOWN};
    }
    const lines = pairs(answer.rawHeaders);
    const admitted = valuesOf(lines, 'headgate-admitted');
    if (admitted.length !== 1) {
      if (mayPass) this.forget(new Set([entry.claims.sub]));
      return {answer};
    }
    answer.resume();
    const setCookie = valuesOf(lines, 'set-cookie');
    const pass = admitted[0] === 'session' ? valuesOf(lines, 'headgate-pass').join() : '';
    const claims = pass ? await this.open(pass) : null;
    if (claims && cookies) {
      const kept = this.keep({}, visit, cookies, {claims, pass, setCookie, asked,
        folder: valuesOf(lines, 'headgate-local').join(), date: valuesOf(lines, 'date').join()});
      if (kept && visit.upgrade) kept.setCookie = setCookie; // no cookie is sent with an upgrade
    }
    return {admitted: admitted[0], pass, claims, setCookie};
  }

  letIn(entry, visit) {
    this.stats.local++;
    const setCookie = visit.upgrade ? [] : entry.setCookie;
    if (!visit.upgrade) entry.setCookie = [];
    return {admitted: 'session', pass: entry.pass, claims: entry.claims, setCookie};
  }

  key(visit, cookies) {
    return createHash('sha256').update(JSON.stringify([visit.proto, visit.host, cookies])).digest('base64');
  }

  /** Reports whether a pass lets in now. A clock that jumps does not make it last longer. */
  fresh(entry, margin) {
    return performance.now() < entry.until - margin && Date.now() < entry.claims.exp * 1000;
  }

  /** Reports whether headgate gives no other visitor the slot of a session, whatever happens. */
  leased({asked}) {
    return since(asked) < LEASE || (asked.monotonic >= this.leasedSince && since(this.lease) < LEASE);
  }

  /** Takes a lease. It is for what is in the memory, but for the sessions that have ended. */
  renewLease(sent, {lease, gone = []}) {
    const over = new Set(gone.filter((sub) => !this.ended.has(sub)));
    for (const sub of over) {
      this.ended.set(sub, performance.now() + FORGET_ENDED);
      this.notes.delete(sub);
    }
    this.forget(over);
    if (!(lease > 0)) this.lease = moment(-Infinity);
    else if (since(sent) < LEASE) {
      if (sent.monotonic - this.lease.monotonic > LEASE) this.leasedSince = sent.monotonic - LEASE;
      this.lease = sent;
    }
  }

  async open(pass) {
    let claims = this.opened.get(pass);
    if (!claims) {
      claims = await openPass(pass, this.keys, {rooms: this.rooms});
      if (claims) this.opened.set(pass, claims);
    }
    return claims;
  }

  /** Keeps an answer for the cookies of the request, and for those that the visitor has after it. */
  keep(entry, visit, cookies, x) {
    const date = Date.parse(x.date) / 1000;
    if (!x.folder.startsWith('/') || !(date > 0) || this.ended.has(x.claims.sub)) return null;
    const left = (x.claims.exp - date) * 1000;
    Object.assign(entry, {folder: x.folder, claims: x.claims, pass: x.pass, setCookie: [],
      asked: x.asked, until: x.asked.monotonic + left - 1000, margin: Math.min(3000, left / 4), cookies: cookiesAfter(cookies, x.setCookie)});
    this.keptUntil = Math.max(this.keptUntil, entry.until);
    this.schedule();
    if (cookies.length) this.memory.set(this.key(visit, cookies), entry);
    if (entry.cookies.length) this.memory.set(this.key(visit, entry.cookies), entry);
    return entry;
  }

  forget(subs) {
    if (!subs.size) return;
    for (const [key, entry] of this.memory.all) {
      if (subs.has(entry.claims.sub)) this.memory.delete(key);
    }
  }

  /** Remembers for the next batch that a session was used. It reports false if there is no room. */
  note(entry, visit) {
    const {sub} = entry.claims;
    if (this.notes.size >= MOST_QUESTIONS && !this.notes.has(sub)) return false;
    this.notes.set(sub, {entry, visit: {method: visit.method, host: visit.host, proto: visit.proto, uri: visit.uri,
      from: visit.from, agents: valuesOf(visit.lines, 'user-agent')}});
    this.schedule();
    return true;
  }

  /**
   * Ends a session.
   * @param {string} token its pass
   * @param {{sub: string, aud: string}} claims
   * @returns {Promise<boolean>} whether the session has ended now; false if it was over
   */
  end(token, claims, as) {
    if (as !== 'complete' && as !== 'abandon') throw new TypeError('headgate: a session ends as complete or abandon');
    const had = this.ends.get(claims.sub);
    if (had) return had.promise;
    if (this.closed || this.ends.size >= MOST_ENDING) return Promise.reject(new Error('headgate: too many sessions end'));
    const end = {room: claims.aud, token, as};
    end.promise = new Promise((resolve, reject) => { Object.assign(end, {resolve, reject}); });
    this.ends.set(claims.sub, end);
    this.ended.set(claims.sub, Infinity);
    this.notes.delete(claims.sub);
    this.forget(new Set([claims.sub]));
    this.schedule(0);
    return end.promise;
  }

  schedule(delay = 1000) {
    if (this.closed || this.sending || (this.timer && delay > 0)) return;
    clearTimeout(this.timer);
    const soonest = (this.lastBatch ?? -Infinity) + 1000 - performance.now();
    this.timer = setTimeout(() => { this.flush(); }, Math.max(delay, soonest, 0));
    if (this.ends.size === 0) this.timer.unref(); // an application may exit between batches
  }

  flush() {
    clearTimeout(this.timer);
    this.timer = null;
    this.sending ??= this.send().finally(() => {
      this.sending = null;
      const now = performance.now();
      for (const [sub, until] of this.ended) {
        if (until < now) this.ended.delete(sub);
      }
      if (this.notes.size || this.ends.size || this.renews()) this.schedule();
    });
    return this.sending;
  }

  /** Reports whether there is anything to let in by. */
  renews() {
    return performance.now() < this.keptUntil;
  }

  async send() {
    const notes = [];
    const questions = [];
    let size = 0;
    for (const [sub, note] of this.notes) {
      const {visit, entry} = note;
      const question = {method: visit.method, host: visit.host, proto: visit.proto, uri: visit.uri, for: visit.from,
        headers: [['Cookie', entry.cookies.join('; ')], ...visit.agents.map((value) => ['User-Agent', value])]};
      size += Buffer.byteLength(JSON.stringify(question)) + 1;
      if (size > MOST_BATCH) break;
      this.notes.delete(sub);
      notes.push([sub, note]);
      questions.push(question);
    }
    const ends = [];
    for (const [sub, end] of this.ends) {
      size += end.token.length + end.room.length + 100;
      if (ends.length === MOST_ENDS || size > MOST_BATCH) break;
      ends.push([sub, end]);
    }
    if (!questions.length && !ends.length && !this.renews()) return;
    const asked = moment();
    this.lastBatch = asked.monotonic;
    let told;
    try {
      this.stats.batches++;
      told = await this.json('POST', '/batch',
        {questions, ends: ends.map(([, {room, token, as}]) => ({room, token, as}))});
      if (told.answers.length !== questions.length || told.ends.length !== ends.length) throw new Error('another batch');
    } catch {
      this.stats.down++;
      this.failing = this.answered < asked.monotonic;
      for (const [sub, note] of notes) { // a newer note of the session counts
        if (!this.notes.has(sub) && !this.ended.has(sub)) this.notes.set(sub, note);
      }
      return;
    }
    this.renewLease(asked, told);
    for (const [i, [sub, {entry, visit}]] of notes.entries()) {
      const a = told.answers[i];
      const claims = a.status === 204 && a.admitted === 'session' && a.pass ? await this.open(a.pass) : null;
      const unsent = entry.setCookie;
      const setCookie = a.set_cookie ?? [];
      if (claims?.sub === sub && this.keep(entry, visit, entry.cookies,
        {claims, pass: a.pass, setCookie, asked, folder: a.local ?? '', date: told.date})) {
        entry.setCookie = setCookie.length ? setCookie : unsent;
      } else {
        this.forget(new Set([sub]));
      }
    }
    for (const [i, [sub, end]] of ends.entries()) {
      const {ended, error} = told.ends[i];
      if (error === 'not_ended') continue;
      this.ends.delete(sub);
      this.ended.set(sub, performance.now() + FORGET_ENDED);
      if (error) end.reject(new Error(`headgate: the session was not ended: ${error}`));
      else end.resolve(ended);
    }
  }

  /** Sends the last batch, and closes the connections. */
  async close() {
    clearTimeout(this.timer);
    await this.sending;
    if (this.notes.size || this.ends.size) await this.flush();
    this.closed = true;
    clearTimeout(this.timer);
    for (const end of this.ends.values()) end.reject(new Error('headgate: closed before the session was ended'));
    this.agent.destroy();
  }

  ask(visit) {
    const headers = questionHeaders(visit);
    return this.send1({method: visit.body ? 'POST' : 'GET', path: '/connect', headers, body: visit.body,
      signal: visit.signal});
  }

  async json(method, path, value) {
    const body = value && Buffer.from(JSON.stringify(value));
    const headers = [['Accept', 'application/json'], ...(body ? [['Content-Type', 'application/json']] : [])];
    const signal = AbortSignal.timeout(this.timeout);
    const answer = await this.send1({method, path, headers, body, signal});
    const parts = [];
    for await (const part of answer) parts.push(part);
    if (answer.statusCode !== 200) throw new Error(`headgate: ${path} answered ${answer.statusCode}`);
    return {...JSON.parse(Buffer.concat(parts).toString('utf8')), date: answer.headers.date};
  }

  /** Sends one request to decide.listen, and returns the answer as soon as its headers are there. */
  send1({method, path, headers, body, signal}, again = true) {
    const {promise, resolve, reject} = Promise.withResolvers?.() ?? deferred();
    const {host, port} = this.target;
    const raw = [['Host', `${host.includes(':') ? `[${host}]` : host}:${port}`], ...headers];
    if (body) raw.push(['Content-Length', String(body.length)]);
    const question = http.request({host, port, method, path, agent: this.agent, headers: raw.flat(), signal});
    const late = setTimeout(() => question.destroy(LATE), this.timeout);
    question.on('response', (answer) => {
      clearTimeout(late);
      this.answered = performance.now();
      this.failing = false;
      resolve(answer);
    });
    question.on('error', (error) => {
      clearTimeout(late);
      // headgate may close a connection in the moment in which it is used again.
      if (again && question.reusedSocket && error.code === 'ECONNRESET' && !signal?.aborted) {
        resolve(this.send1({method, path, headers, body, signal}, false));
      } else {
        reject(error);
      }
    });
    question.end(body);
    return promise;
  }
}

function deferred() {
  const d = {};
  d.promise = new Promise((resolve, reject) => { Object.assign(d, {resolve, reject}); });
  return d;
}
