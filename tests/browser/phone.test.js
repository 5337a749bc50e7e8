// The proof of work as people meet it: on a slow phone, with a screen reader, and when the connection is
// lost in the middle of it.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import {assertLooks} from './board.js';
import {crowded, onDevice, phone, solves, traced, worksWith} from './challenged.js';
import {arrive, fill, insecureHost, isInside, openBrowser, patience, startRoom, until} from './room.js';

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

test('the page of a slow phone does not stand still while it computes', async (t) => {
  const room = await crowded(t, browser), plain = await startRoom(t);
  await fill(t, browser, plain);
  const work = [], none = [];
  for (let i = 0; i < 3; i++) {
    work.push(await traced(t, browser, room, phone, true));
    none.push(await traced(t, browser, plain, phone, false));
  }
  for (const [name, all] of Object.entries({work, none})) {
    t.diagnostic(`${name}: ${all.map((v) => `${v.computed.toFixed(2)} s computed, the longest of ${v.tasks} tasks ` +
      `of the page ${v.longest.toFixed(1)} ms`).join('; ')}`);
  }
  assert.ok(work.every((v) => v.computed > 0) && none.every((v) => v.computed == 0), 'it is not seen who computes');
  assert.ok(none.every((v) => v.longest > 0), 'the page without a challenge does nothing');
  // What a machine adds is in some visits; what our script does is in all of them.
  const longest = Math.min(...work.map((v) => v.longest)), without = Math.max(...none.map((v) => v.longest));
  assert.ok(longest <= 2 * without, `the page stands still for ${longest} ms, without a challenge for ${without}`);
});

test('the solution of a slow phone counts', async (t) => {
  const room = await crowded(t, browser);
  const {page} = await solves(room, () => onDevice(t, browser, room, phone), 5 * patience);
  await room.inside[0].leave();
  await until('the first is in', () => isInside(room.first.page));
  await room.inside[1].leave();
  await until('the phone is in', () => isInside(page));
});

// reader returns what a screen reader has of a page: the text of its tree, and of the status in it, which
// is told when it changes and interrupts nobody.
async function reader(page) {
  const cdp = await page.context().newCDPSession(page);
  const {nodes} = await cdp.send('Accessibility.getFullAXTree');
  await cdp.detach();
  const byID = new Map(nodes.map((n) => [n.nodeId, n]));
  const text = (n) => n.role?.value == 'StaticText' ? n.name.value : (n.childIds ?? []).map((id) => text(byID.get(id))).join(' ');
  const live = nodes.filter((n) => n.properties?.some((p) => p.name == 'live' && p.value.value != 'off') && n.role.value == 'status');
  assert.deepEqual(live.map((n) => n.properties.find((p) => p.name == 'live').value.value), ['polite'], 'one status, and it is polite');
  return {all: text(nodes[0]), status: text(live[0])};
}

// listens notes each text that the status has had, and each reason why it takes longer with its time.
const listens = (context) => context.addInitScript(() => {
  self.told = [];
  self.why = [];
  new MutationObserver(() => {
    const text = (id) => document.getElementById(id)?.textContent ?? '';
    if (text('live') != (self.told.at(-1) ?? '')) self.told.push(text('live'));
    if (text('slow') != (self.why.at(-1)?.text ?? '')) self.why.push({text: text('slow'), at: Date.now()});
  }).observe(document, {childList: true, subtree: true, characterData: true});
});

test('a screen reader hears of the line, and nothing of the work', async (t) => {
  const room = await crowded(t, browser);
  const visit = async (script) => {
    const context = await browser.newContext();
    t.after(() => context.close());
    if (script) await worksWith(context, script);
    await listens(context);
    const worker = context.waitForEvent('page').then((page) => page.waitForEvent('worker'));
    const visitor = await arrive(t, browser, room.url, {context});
    await worker;
    return visitor;
  };
  const {page, faults} = await solves(room, () => visit());
  const {all, status} = await reader(page);
  assert.match(all, /You are in line/);
  assert.match(status, /^You are in line\. 1 person ahead/);
  const told = await page.evaluate(() => self.told);
  assert.ok(told.length > 0 && told.every((text) => /^You are in line\. 1 person ahead/.test(text)), JSON.stringify(told));
  await assertLooks(page, 'when it has a place');

  const busy = await visit('SubtleCrypto.prototype.deriveBits = () => new Promise(() => {});');
  await assertLooks(busy.page, 'while it computes');
  assert.deepEqual([...faults, ...busy.faults], []);
});

test('a screen reader hears why the line is slower, and others can read it', async (t) => {
  const room = await crowded(t, browser);
  const context = await browser.newContext();
  t.after(() => context.close());
  await listens(context);
  const {page} = await arrive(t, browser, room.url.replace('127.0.0.1', insecureHost), {context});
  const late = 'The check that this site asks of newcomers', lane = 'Your browser did not finish the check';
  const told = () => page.evaluate(() => self.told);
  await until('it is told why', async () => (await told()).some((text) => text.includes(lane)));
  let polls = 0;
  page.on('response', (answer) => polls += !!answer.request().headers()['headgate-poll']);
  await until('it has polled', () => polls >= 4);
  for (const why of [late, lane]) {
    const said = (await told()).filter((text, i, all) => text.includes(why) && !all[i - 1]?.includes(why));
    assert.equal(said.length, 1, JSON.stringify(await told()));
  }
  const shown = await page.evaluate(() => self.why);
  const from = shown.findIndex((why) => why.text.startsWith(lane)), gone = shown[from + 1];
  assert.ok(from >= 0 && (!gone || gone.at - shown[from].at >= 20_000), JSON.stringify(shown));
  await assertLooks(page, 'in the slower line');
});

test('a connection that is lost in the middle costs no place', async (t) => {
  const room = await crowded(t, browser);
  let loads, ticket;
  const {page, faults} = await solves(room, async () => {
    const context = await browser.newContext();
    t.after(() => context.close());
    await worksWith(context, `{
      const go = new Promise((done) => new BroadcastChannel('go').onmessage = done);
      const derive = SubtleCrypto.prototype.deriveBits;
      SubtleCrypto.prototype.deriveBits = async function (...how) {
        await go;
        return derive.apply(this, how);
      };
    }`);
    await context.addInitScript(() => {
      self.Worker = class extends Worker {
        constructor(...how) {
          super(...how);
          this.addEventListener('message', () => self.solved = true);
        }
      };
    });
    const page = await context.newPage();
    const faults = [];
    page.on('pageerror', (error) => faults.push(error.message));
    loads = 0;
    page.on('request', (request) => loads += request.isNavigationRequest());
    const worker = page.waitForEvent('worker');
    await page.goto(room.url);
    ticket = await page.locator('#ticket').textContent();
    await worker;
    const cdp = await context.newCDPSession(page);
    await cdp.send('Network.enable');
    const offline = (offline) => cdp.send('Network.emulateNetworkConditions',
      {offline, latency: 0, downloadThroughput: -1, uploadThroughput: -1});
    await offline(true);
    await page.evaluate(() => new BroadcastChannel('go').postMessage(''));
    await until('it is solved', () => page.evaluate(() => self.solved));
    await until('the page tries again', async () => /Trying again/.test(await page.locator('#retry').textContent()));
    await offline(false);
    return {context, page, faults};
  });
  await until('the page is back', async () => await page.locator('#retry').textContent() == '');
  assert.equal(await page.locator('#ticket').textContent(), ticket, 'the ticket that it came with');
  assert.equal(loads, 1, 'the page was loaded again');
  await room.inside[0].leave();
  await until('the first is in', () => isInside(room.first.page));
  await room.inside[1].leave();
  await until('it is in', () => isInside(page));
  assert.equal(loads, 2);
  assert.deepEqual(faults, []);
});
