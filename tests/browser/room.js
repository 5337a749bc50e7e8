// What the browser tests share: a real headgate in front of a tiny origin, a real Chromium,
// and visitors. Nothing here stands in for headgate; a test that errs on purpose (a server
// that sends a larger number, a lost connection) says so where it does it.
import assert from 'node:assert/strict';
import {execFile, execFileSync, spawn} from 'node:child_process';
import {once} from 'node:events';
import {existsSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import {setTimeout as sleep} from 'node:timers/promises';
import {fileURLToPath} from 'node:url';
import {chromium} from 'playwright-core';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');

// insecureHost resolves to this machine in the browser; unlike 127.0.0.1 it is no secure
// context without https.
export const insecureHost = 'room.test';

const flags = [
  `--host-resolver-rules=MAP ${insecureHost} 127.0.0.1`,
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync',
];

// How long anything may take that ends by itself: a call, a claim, a page that loads. It ends a test that
// hangs, and judges nothing: on a busy machine a dozen pages load at once.
export const patience = 120_000;

function chromiumPath() {
  const file = process.env.CHROMIUM || '/usr/bin/chromium';
  assert.ok(existsSync(file), `no Chromium at ${file}: install it, or set CHROMIUM to its path`);
  return file;
}

const launch = {executablePath: chromiumPath(), args: flags, chromiumSandbox: false};

// openBrowser starts Chromium for one test file, with more flags than usual; close it in after().
export async function openBrowser(...more) {
  const browser = await chromium.launch({...launch, args: [...flags, ...more]});
  browser.on('context', (context) => context.setDefaultTimeout(patience));
  return browser;
}

// openWithoutCookies starts a Chromium whose user has switched cookies off.
export async function openWithoutCookies(t) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'headgate-profile-'));
  const preferences = {profile: {default_content_setting_values: {cookies: 2}}};
  const profile = path.join(folder, 'Default');
  execFileSync('mkdir', [profile]);
  writeFileSync(path.join(profile, 'Preferences'), JSON.stringify(preferences));
  const context = await chromium.launchPersistentContext(folder, launch);
  context.setDefaultTimeout(patience);
  t.after(async () => {
    await context.close();
    rmSync(folder, {recursive: true, force: true});
  });
  return context;
}

// binary builds headgate once for each test file, unless HEADGATE names one.
let built;
function binary() {
  if (process.env.HEADGATE) return path.resolve(process.env.HEADGATE);
  if (!built) {
    const folder = mkdtempSync(path.join(os.tmpdir(), 'headgate-bin-'));
    process.on('exit', () => rmSync(folder, {recursive: true, force: true}));
    built = path.join(folder, 'headgate');
    execFileSync('go', ['build', '-o', built, './cmd/headgate'], {cwd: root, stdio: 'inherit'});
  }
  return built;
}

// freePort gives the first of so many free ports in a row. They lie below those that the system
// gives to who dials or asks for any.
export async function freePort(n = 1) {
  for (;;) {
    const servers = [], first = 10_000 + Math.floor(Math.random() * 20_000);
    try {
      for (let i = 0; i < n; i++) {
        const server = net.createServer().listen(first + i, '127.0.0.1');
        servers.push(server);
        await once(server, 'listening');
      }
      return first;
    } catch (fault) {
      if (fault.code !== 'EADDRINUSE') throw fault;
    } finally {
      await Promise.all(servers.map((server) => server.listening && new Promise((done) => server.close(done))));
    }
  }
}

// startOrigin serves one page for every address, which says what was asked for. /leave ends
// the visitor's stay; /warn is a page with the script that warns, and a strict policy.
async function startOrigin() {
  const escape = (s) => s.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const server = http.createServer((request, response) => {
    response.setHeader('Content-Type', 'text/html; charset=utf-8');
    response.setHeader('Cache-Control', 'no-store');
    if (request.url.startsWith('/leave')) response.setHeader('Headgate-Command', 'revoke');
    const warns = request.url.startsWith('/warn');
    if (warns) {
      response.setHeader('Content-Security-Policy', "default-src 'none'; script-src 'self'; connect-src 'self'");
    }
    const script = warns ? '<script src="/.headgate/warn.js" defer></script>' : '';
    response.end(`<!doctype html><html lang="en"><title>Inside</title>${script}<main><h1>Inside</h1>` +
      `<p id="asked">${request.method} ${escape(request.url)}</p></main></html>`);
  });
  server.listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    stop: () => new Promise((done) => {
      server.close(done);
      server.closeAllConnections();
    }),
  };
}

// startRoom starts an origin and headgate in front of it for one test: two may be inside, a
// newcomer each second, and a stay ends 10 s after the last request. room overrides keys of
// the room's configuration; more adds to the file, and may be a function of the origin.
export async function startRoom(t, room = {}, more = {}) {
  const origin = await startOrigin();
  const {rooms = [], ...others} = typeof more === 'function' ? more(origin.url) : more;
  const folder = mkdtempSync(path.join(os.tmpdir(), 'headgate-room-'));
  const headgate = await startHeadgate(folder, {rooms: [roomOf(origin, room), ...rooms], ...others});
  t.after(async () => {
    await headgate.stop();
    await origin.stop();
    rmSync(folder, {recursive: true, force: true});
  });
  await headgate.ready();
  return {...headgate, stopOrigin: origin.stop};
}

const roomOf = (origin, room) => ({
  name: 'main', title: 'Test room', origin: origin.url,
  total_active_users: 2, new_users_per_minute: 60, session_duration: '10s', ...room,
});

// startDatacenters starts a data center of one node for each name, on this machine: the first is
// the home of the slots that no data center holds. room is as for startRoom.
export async function startDatacenters(t, names, room = {}) {
  const origin = await startOrigin();
  const folder = mkdtempSync(path.join(os.tmpdir(), 'headgate-cluster-'));
  const datacenters = {};
  for (const name of names) {
    const port = await freePort(3); // of workers, of store nodes, of other data centers
    await command('cluster', 'init', '--store', `n1=127.0.0.1:${port}`, '--datacenter', name, '--dir', path.join(folder, name));
    datacenters[name] = {url: `127.0.0.1:${port + 2}`, ca: path.join(folder, name, 'ca.pem')};
  }
  const all = await Promise.all(names.map((name) => startHeadgate(path.join(folder, name), {
    cluster: {join: 'n1.join', home: names[0], datacenters}, rooms: [roomOf(origin, room)],
  })));
  t.after(async () => {
    await Promise.all(all.map((headgate) => headgate.stop()));
    await origin.stop();
    rmSync(folder, {recursive: true, force: true});
  });
  await Promise.all(all.map((headgate) => headgate.ready())); // none is before another one
  return all;
}

// command runs headgate once, and gives what it says; child is its process.
function command(...args) {
  let child;
  const said = new Promise((done, fail) => child = execFile(binary(), args,
    (error, out, told) => error ? fail(new Error(`${error.message}\n${out}${told}`)) : done(out)));
  return Object.assign(said, {child});
}

// startHeadgate runs headgate with a configuration in a folder.
async function startHeadgate(folder, config) {
  const [port, adminPort] = [await freePort(), await freePort()];
  const [file, data] = [path.join(folder, 'headgate.yaml'), path.join(folder, 'data')];
  // JSON is YAML.
  writeFileSync(file, JSON.stringify({
    listen: `127.0.0.1:${port}`, admin_listen: `127.0.0.1:${adminPort}`, data, drain_delay: '0s', ...config,
  }));
  const process = spawn(binary(), ['run', '--config', file], {stdio: ['ignore', 'pipe', 'pipe']});
  let log = '';
  process.stdout.on('data', (text) => log += text);
  process.stderr.on('data', (text) => log += text);
  const ended = new Promise((done) => process.once('close', done));
  const admin = `http://127.0.0.1:${adminPort}`;
  return {
    url: `http://127.0.0.1:${port}`, admin, command, file,
    token: async (scope) => (await command('token', 'create', '--scope', scope, '--name', 'ops', '--data', data)).trim(),
    revoke: async (name) => {
      const line = (await command('token', 'list', '--data', data)).split('\n').find((l) => l.split(/\s+/).includes(name));
      await command('token', 'revoke', line.split(/\s+/)[0], '--data', data);
    },
    signal: (name) => process.kill(name),
    ready: () => until('headgate is ready', async () => {
      assert.equal(process.exitCode, null, `headgate ended:\n${log}`);
      return (await fetch(`${admin}/readyz`).catch(() => ({}))).ok;
    }),
    stop: () => {
      process.kill('SIGTERM');
      return ended;
    },
  };
}

// until waits for something to become true, and says what did not.
export async function until(what, check, within = patience) {
  const end = Date.now() + within;
  while (!await check()) {
    assert.ok(Date.now() < end, `waited ${within / 1000} s until ${what}`);
    await sleep(100);
  }
}

// arrive opens address as a new visitor in a browser of its own. What a page must never do
// (an error in a script, something the policy blocks) is collected in visitor.faults.
export async function arrive(t, browser, address, options = {}) {
  const context = options.context ?? await browser.newContext(options);
  const faults = [];
  context.on('weberror', (fault) => faults.push(fault.error().message));
  context.on('console', (message) => {
    if (/Content.Security.Policy/i.test(message.text())) faults.push(message.text());
  });
  if (!options.context) t.after(() => context.close());
  const page = await context.newPage();
  const answer = await page.goto(address);
  return {context, page, faults, answer};
}

// fill takes every place inside and keeps it until the visitor leaves.
export async function fill(t, browser, room, places = 2) {
  const inside = [];
  for (let i = 0; i < places; i++) {
    const visitor = await arrive(t, browser, room.url);
    await until(`visitor ${i} is inside`, async () => await isInside(visitor.page));
    const stay = setInterval(() => visitor.context.request.get(room.url).catch(() => {}), 2000);
    visitor.leave = async () => {
      clearInterval(stay);
      const answer = await visitor.context.request.get(`${room.url}/leave`);
      assert.equal(answer.status(), 200, 'leaving');
    };
    t.after(() => clearInterval(stay));
    inside.push(visitor);
  }
  return inside;
}

export const isInside = async (page) => await page.title().catch(() => '') === 'Inside';

// number reads a number off the page; NaN where there is none.
export async function number(page, id) {
  const text = await page.locator(`#${id}`).textContent().catch(() => '');
  return Number.parseInt(text.replaceAll(',', ''), 10);
}

// heading is what the page says in its first line.
export const heading = (page) => page.locator('h1').textContent();
