// What the tests of challenges share: a room in which a newcomer needs a solution.
import assert from 'node:assert/strict';
import {arrive, fill, patience, startRoom, until} from './room.js';

// crowded is a room in which two are inside and one waits: the next newcomer needs a solution. The one
// that waits has its place without one, whatever it has computed.
export async function crowded(t, browser, room = {}) {
  const shop = await startRoom(t, {challenge: {kind: 'work'}, new_users_per_minute: 6000, ...room});
  const inside = await fill(t, browser, shop);
  const first = await arrive(t, browser, shop.url);
  shop.state = () => stateOf(shop);
  await until('one waits', async () => (await shop.state()).waiting_users == 1);
  if (!room.page) { // so that what is solved from now on is that of others
    await first.page.waitForResponse(async (answer) => answer.request().headers()['headgate-poll'] &&
      (await answer.json()).headgate.challenge === null);
  }
  return {...shop, inside, first, solved: (await shop.state()).challenges.solved};
}

// phone is how many times slower a phone is; a desktop is 1. Chromium slows down the main thread alone, neither
// workers nor WebCrypto: there each derivation is made as often.
export const phone = 6;
const slowWorker = (slower) => `{
  const derive = SubtleCrypto.prototype.deriveBits;
  SubtleCrypto.prototype.deriveBits = async function (...how) {
    for (let i = 1; i < ${slower}; i++) await derive.apply(this, how);
    return derive.apply(this, how);
  };
}`;

// worksWith puts a script before that of the worker. The room may end while a page asks for it.
export const worksWith = (context, script) => context.route('**/.headgate/work.js', async (route) => {
  try {
    const response = await route.fetch();
    await route.fulfill({response, body: script + await response.text()});
  } catch {
    await route.abort().catch(() => {});
  }
});

// onDevice opens a room on a device. seen.solution is what it has sent, as soon as it has.
export async function onDevice(t, browser, room, slower) {
  const context = await browser.newContext();
  t.after(() => context.close());
  if (slower > 1) await worksWith(context, slowWorker(slower));
  await context.addInitScript(() => self.document && addEventListener('DOMContentLoaded',
    () => requestAnimationFrame(() => requestAnimationFrame(() => performance.mark('shown')))));
  const page = await context.newPage();
  await (await context.newCDPSession(page)).send('Emulation.setCPUThrottlingRate', {rate: slower});
  const seen = {context, page, polls: 0};
  page.on('request', (request) => {
    const solution = request.headers()['headgate-solution'];
    if (solution) seen.solution ??= JSON.parse(Buffer.from(solution, 'base64'));
  });
  page.on('response', (answer) => seen.polls += !!answer.request().headers()['headgate-poll']);
  seen.worked = new Promise((done) => page.once('worker', (worker) => {
    const began = performance.now();
    worker.once('close', () => done(performance.now() - began));
  }));
  await page.goto(room.url);
  return seen;
}

// traced is a visit until the page has polled twice and its worker has ended, and what the page did after it
// was shown. Times are those of threads on a processor, so a busy machine is no slow page; waited is how long
// the worker ran. derived is how many keys its solution took.
export async function traced(t, browser, room, slower, works) {
  await browser.startTracing(undefined, {categories: ['disabled-by-default-devtools.timeline', 'blink.user_timing', '__metadata']});
  const visit = await onDevice(t, browser, room, slower);
  const waited = works ? await visit.worked / 1000 : 0;
  await until('it has polled', () => visit.polls >= 2);
  await until('it was shown', () => visit.page.evaluate(() => performance.getEntriesByName('shown').length > 0));
  const {traceEvents: events} = JSON.parse(await browser.stopTracing());
  await visit.context.close();
  const shown = events.find((e) => e.name == 'shown');
  const names = new Map(events.filter((e) => e.name == 'thread_name' && e.pid == shown.pid).map((e) => [e.tid, e.args.name]));
  const tasks = events.filter((e) => e.name == 'RunTask' && e.pid == shown.pid && e.tdur);
  const main = tasks.filter((e) => e.tid == shown.tid && e.ts > shown.ts).map((e) => e.tdur / 1000);
  const computed = tasks.filter((e) => /^(WebCrypto|DedicatedWorker thread)$/.test(names.get(e.tid)))
    .reduce((sum, e) => sum + e.tdur, 0) / 1e6;
  return {tasks: main.length, longest: Math.max(0, ...main), computed, waited,
    derived: visit.solution && 4 * Math.floor(visit.solution.solution.counter / 4) + 4,
    cost: visit.solution?.challenge.parameters.cost};
}

export const stateOf = async (room) => (await (await fetch(`${room.admin}/v1/rooms`)).json()).rooms[0];

export const lane = (state) => state.lanes?.find((l) => l.name == 'unsolved')?.waiting ?? 0;

// solves lets newcomers come, one after the other, until one has solved its challenge in time, and returns
// that one. How many are needed depends on the machine and on luck; what is judged is where each waits.
export async function solves(room, visit, within = patience) {
  const end = Date.now() + within;
  for (let late = 0; ; late++) {
    assert.ok(Date.now() < end, `none of ${late} newcomers has solved its challenge`);
    const visitor = await visit();
    const ordinary = (state) => state.waiting_users - lane(state) == 2;
    let state;
    await until('it waits', async () => ordinary(state = await room.state()) || lane(state) > late, within);
    const {solved, refused} = state.challenges;
    assert.deepEqual([refused.foreign, refused.malformed, refused.wrong], [0, 0, 0]);
    if (ordinary(state)) {
      assert.ok(solved > room.solved, 'a place for nothing');
      return visitor;
    }
    await visitor.context.close();
  }
}
