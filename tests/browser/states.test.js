// Each state of a real room, in light and dark, with axe-core and under the real policy.
import assert from 'node:assert/strict';
import {mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import {after, before, test} from 'node:test';
import AxeBuilder from '@axe-core/playwright';
import {arrive, fill, heading, openBrowser, root, startRoom, until} from './room.js';

const Axe = AxeBuilder.default ?? AxeBuilder;
const schemes = ['light', 'dark'];
const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

async function assertAccessible(page, what) {
  const {violations, passes} = await new Axe({page}).withTags(rules).analyze();
  const faults = violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(' ')}`);
  assert.deepEqual(faults, [], what);
  assert.ok(passes.length > 10, `${what}: axe checked only ${passes.length} rules`);
}

// assertFits checks the narrowest screen of WCAG 1.4.10: nothing is cut off or scrolls aside.
async function assertFits(page, what) {
  await page.setViewportSize({width: 320, height: 640});
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= 320, `${what} is ${width} px wide on a screen of 320`);
}

// look opens the room as a new visitor in both schemes.
async function look(t, room, title, options = {}) {
  for (const colorScheme of schemes) {
    const {page, faults} = await arrive(t, browser, room.url, {colorScheme, ...options});
    await until(`the page says ${title}`, async () => title.test(await heading(page)));
    await assertAccessible(page, `${title} in ${colorScheme}`);
    await assertFits(page, `${title} in ${colorScheme}`);
    assert.deepEqual(faults, []);
  }
}

test('waiting', async (t) => {
  const room = await startRoom(t, {message: 'Saturday is sold out.\nThere is room on Sunday.'});
  await fill(t, browser, room);
  await look(t, room, /^You are (next|in line)$/);
});

// A visitor types the code of an invitation, first a wrong one. The text belongs to the field and is announced.
test('the form for a code', async (t) => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'headgate-codes-')), secret = path.join(folder, 'codes.key');
  t.after(() => rmSync(folder, {recursive: true, force: true}));
  writeFileSync(secret, '5ecret'.repeat(6), {mode: 0o600});
  const room = await startRoom(t, {identity: {codes: {secret_file: secret}, required: true}});
  await look(t, room, /^Enter your invitation code$/);
  const made = await room.command('codes', 'make', 'main', '--config', room.file, '--batch', '1', '--count', '2',
    '--until', '2080-01-01T00:00:00Z');
  const codes = made.trim().split('\n').slice(1).map((line) => line.split(',')[0]);
  for (const javaScriptEnabled of [true, false]) {
    const {page, faults} = await arrive(t, browser, `${room.url}/buy?x=1`, {javaScriptEnabled});
    const field = page.getByLabel('Code');
    await field.fill(codes[0].slice(1));
    await page.getByRole('button', {name: 'Continue'}).click();
    const fault = page.getByRole('alert');
    await until('the page says what is wrong', async () => /^This code is not correct/.test(await fault.textContent()));
    assert.equal(await field.getAttribute('aria-describedby'), await fault.getAttribute('id'));
    assert.equal(await field.getAttribute('aria-invalid'), 'true');
    if (javaScriptEnabled) await assertAccessible(page, 'a wrong code');
    await field.fill(codes[javaScriptEnabled ? 0 : 1].toLowerCase().replaceAll('-', ' '));
    await field.press('Enter');
    await until('the visitor is inside', async () => {
      if (await heading(page) == 'Inside') return true;
      await page.reload();
    });
    assert.equal(await page.textContent('#asked'), 'GET /buy?x=1');
    assert.deepEqual(faults, []);
  }
});

test('full', async (t) => {
  const room = await startRoom(t, {max_waiting: 1});
  await fill(t, browser, room);
  await arrive(t, browser, room.url);
  await look(t, room, /^The line is full$/);
});

test('queue_all', async (t) => {
  await look(t, await startRoom(t, {queue_all: true}), /^The line is paused$/);
});

test('closed', async (t) => {
  const room = await startRoom(t, {closed: true, message: 'Sold out. Thank you!'});
  await look(t, room, /^Closed$/);
  for (const javaScriptEnabled of [true, false]) {
    const {page} = await arrive(t, browser, room.url, {javaScriptEnabled});
    const text = await page.locator('main').innerText();
    assert.match(text, /Sold out\. Thank you!\s+No new visitors can enter\. You can close this page\./);
    assert.doesNotMatch(text, /ahead|position|reload|Notify me/i);
    const size = (id) => page.locator(id).evaluate((e) => parseFloat(getComputedStyle(e).fontSize));
    assert.ok(await size('#message') >= 1.4 * await size('#lead'), 'the message is big');
  }
});

test('not open yet', async (t) => {
  const opens_at = new Date(Date.now() + 3 * 3600_000).toISOString();
  const room = await startRoom(t, {opens_at});
  await look(t, room, /^Not open yet$/);
  const {page} = await arrive(t, browser, room.url);
  await until('the countdown runs', async () =>
    /^02:5[89]:\d\d$/.test(await page.locator('#big').textContent()));
});

test('too many from one network', async (t) => {
  const room = await startRoom(t, {join_limit: {amount: 1, action: 'refuse'}}, {trusted_proxies: ['127.0.0.1/32']});
  await fill(t, browser, room); // this machine itself is not limited
  const network = {extraHTTPHeaders: {'X-Forwarded-For': '198.51.100.7'}};
  await arrive(t, browser, room.url, network);
  await look(t, room, /^One moment, please$/, network);
});

// The pictures are what the renderer makes of each state, also those that a test cannot
// bring about at will. They are served with the policy of the real answer, which must
// therefore name the style and scripts that the pictures hold.
test('pictures of all states', async (t) => {
  const room = await startRoom(t, {queue_all: true});
  const {answer} = await arrive(t, browser, room.url);
  const policy = answer.headers()['content-security-policy'];
  assert.match(policy, /script-src 'sha256-/);
  assert.doesNotMatch(policy, /unsafe|nonce/);
  const folder = path.join(root, 'internal/pages/testdata');
  const server = http.createServer((request, response) => {
    const file = path.join(folder, path.basename(request.url));
    response.writeHead(503, {
      'Content-Type': 'text/html; charset=utf-8', 'Content-Security-Policy': policy,
    });
    response.end(readFileSync(file));
  }).listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  t.after(() => server.close());
  t.after(() => server.closeAllConnections());

  const pictures = readdirSync(folder).filter((name) => name.endsWith('.html'));
  assert.ok(pictures.length >= 10, 'the pictures are there');
  for (const name of pictures) {
    for (const colorScheme of schemes) {
      const address = `http://127.0.0.1:${server.address().port}/${name}`;
      const context = await browser.newContext({colorScheme});
      // As after many turns that came to nothing, so that the picture of called stays.
      await context.addInitScript(() => {
        if (location.protocol !== 'http:') return;
        sessionStorage.headgate = JSON.stringify({at: Date.now(), tries: 9});
      });
      const {page, faults} = await arrive(t, browser, address, {context});
      await assertAccessible(page, `${name} in ${colorScheme}`);
      await assertFits(page, `${name} in ${colorScheme}`);
      const display = await page.evaluate(() => getComputedStyle(document.body).display);
      assert.equal(display, 'grid', `${name}: the policy lets the style through`);
      assert.deepEqual(faults, [], name);
      await context.close();
    }
  }
});
