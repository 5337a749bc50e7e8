// The API, the session, and the stream of rooms.

import {upper, uri} from './dom.js';

const api = 'api';

// A Problem is an error answer: message, hint, and faults with their keys.
export class Problem extends Error {
  constructor(status, body) {
    const p = body ?? {};
    const first = p.errors?.[0];
    super(p.detail ?? first?.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = p.code ?? first?.headgate?.code ?? '';
    this.hint = upper(p.hint ?? '');
    this.faults = p.faults ?? [];
    if (p.field) this.faults = [{key: p.field, problem: p.detail, hint: p.hint}];
    for (const e of p.errors ?? []) { // of Cloudflare's form, or ours
      const key = e.source?.pointer ?? e.pointer;
      const text = (e.detail ?? e.message ?? '').replace(`${key}: `, '');
      const hint = e.hint ?? e.headgate?.hint ?? '';
      if (key) this.faults.push({key, problem: text.replace(`: ${hint}`, ''), hint});
    }
    this.faults = this.faults.map((f) => ({...f, hint: upper(f.hint ?? '')}));
  }

  get says() {
    return upper(this.message) + (this.hint && `. ${this.hint}`);
  }
}

export async function ask(method, path, body, signal) {
  const sent = body !== undefined && {body: JSON.stringify(body), headers: {'Content-Type': 'application/json'}};
  const answer = await fetch(path, {method, signal, ...sent}).catch((error) => {
    throw error.name === 'AbortError' ? error : new Problem(0, {detail: 'headgate does not answer', hint: 'Is it running? The page retries automatically.'});
  });
  const text = await answer.text();
  const kind = answer.headers.get('Content-Type') ?? '';
  const value = text && kind.includes('json') ? JSON.parse(text) : text;
  const tag = answer.headers.get('ETag'); // the version of what was asked for, or changed
  if (tag && kind.includes('json')) value.version = Number(tag.replaceAll('"', ''));
  if (!answer.ok) {
    if (answer.status === 401 && path !== 'session') session.check();
    throw new Problem(answer.status, typeof value === 'object' ? value : undefined);
  }
  return value;
}

export const read = (path, signal) => ask('GET', api + path, undefined, signal);
export const write = (method, path, body) => ask(method, api + path, body);

export const maybe = (path) => read(path).catch(() => null);

export const session = {
  now: {signed_in: false, reads: false},
  told: () => {},
  async check() {
    try {
      this.now = await ask('GET', 'session');
      this.told();
    } catch {} // the stream reports the failure
    return this.now;
  },
  may(room) { // write
    return (this.now.scopes ?? []).some((s) => {
      const [scope, only] = s.split(':');
      return scope === 'write' && (!only || only === room || only.startsWith('zone/'));
    });
  },
};

// live is the stream of rooms: changes for the list, and everything for the watched room.
export const live = {
  rooms: new Map(),
  room: '',
  at: 0,
  state: 'connecting',
  listeners: new Set(),
  wait: 1000,
  set(state) {
    this.state = state;
    for (const l of this.listeners) l();
  },
  watch(room) {
    if (room === this.room) return;
    this.room = room;
    this.rooms = new Map();
    if (this.state === 'live') this.state = 'turning';
    this.start();
  },
  start() {
    this.stop();
    if (document.hidden || !session.now.reads) return;
    const source = this.source = new EventSource(this.room ? `live?room=${uri(this.room)}` : 'live');
    this.late();
    source.onmessage = (event) => {
      this.late();
      const {at, all, rooms = [], gone = []} = JSON.parse(event.data);
      this.at = at;
      this.wait = 1000;
      if (all) this.rooms = new Map();
      for (const r of rooms) this.rooms.set(r.name, {...this.rooms.get(r.name), ...r});
      for (const name of gone) this.rooms.delete(name);
      this.set('live');
    };
    source.addEventListener('session', (event) => {
      if (event.data !== (session.now.id ?? '')) session.check();
    });
    source.addEventListener('end', () => session.check().then(() => this.start()));
    source.onerror = () => {
      this.set('lost');
      if (source.readyState !== EventSource.CLOSED) return; // the browser reconnects
      this.stop();
      this.wait = Math.min(15000, this.wait * 2);
      this.timer = setTimeout(() => session.check().then(() => this.start()), this.wait);
    };
  },
  // late reconnects when no data arrives: a frozen process does not close the stream.
  late() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.set('lost');
      this.start();
    }, 8000);
  },
  stop() {
    clearTimeout(this.timer);
    this.source?.close();
  },
};

document.addEventListener('visibilitychange', () => document.hidden ? live.stop() : live.start());
