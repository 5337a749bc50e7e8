// A visitor waits in a full room, moves up, goes in and is remembered.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import {
  arrive, fill, heading, isInside, number, openBrowser, openWithoutCookies, patience, startRoom,
  until,
} from './room.js';

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

// watch notes every position that the page ever shows.
async function watch(page) {
  await page.evaluate(() => {
    self.positions = [];
    const note = () => self.positions.push(document.getElementById('position').textContent);
    new MutationObserver(note).observe(document.getElementById('position'), {childList: true});
    note();
  });
}

function assertFalling(positions) {
  const numbers = positions.map(Number);
  assert.deepEqual(numbers, numbers.toSorted((a, b) => b - a), 'the shown position rose');
}

test('waits, moves up, and goes in where it wanted to go', async (t) => {
  const room = await startRoom(t);
  const inside = await fill(t, browser, room);
  const address = `${room.url}/buy/%C3%A9?show=42&seat=A%2F7`;
  const first = await arrive(t, browser, `${room.url}/`);
  const second = await arrive(t, browser, address);
  const third = await arrive(t, browser, `${room.url}/#part`);

  assert.equal(await heading(first.page), 'You are next');
  assert.equal(await heading(second.page), 'You are in line');
  assert.equal(await number(second.page, 'big'), 1);
  assert.equal(await number(third.page, 'big'), 2);
  assert.equal(await number(third.page, 'position'), 3);
  assert.equal(await second.page.title(), '1 · You are in line · Test room');
  assert.ok((await third.page.locator('#ticket').textContent()).length >= 4, 'a short ticket');
  await until('the live region spoke', async () =>
    /You are in line/.test(await third.page.getByRole('status').textContent()));
  await watch(third.page);
  const bell = third.page.getByRole('button', {name: 'Notify me when it is my turn'});
  await bell.click();
  assert.equal(await third.page.locator('#bell').getAttribute('aria-pressed'), 'true');

  // Coming back, in another tab, is the same place.
  const ticket = await second.page.locator('#ticket').textContent();
  await second.page.close();
  second.page = await second.context.newPage();
  await second.page.goto(address);
  assert.equal(await second.page.locator('#ticket').textContent(), ticket, 'the same ticket');
  assert.equal(await number(second.page, 'position'), 2);

  await inside[0].leave();
  await until('the first is in', () => isInside(first.page));
  await until('the second is next', async () => await heading(second.page) === 'You are next');
  assertFalling(await third.page.evaluate(() => self.positions));

  await inside[1].leave();
  await until('the second is in', () => isInside(second.page));
  assert.equal(second.page.url(), address);
  assert.equal(await second.page.locator('#asked').textContent(),
    'GET /buy/%C3%A9?show=42&seat=A%2F7');
  assertFalling(await third.page.evaluate(() => self.positions));

  // Who left without a word makes room when the stay is over. A fragment is kept.
  await until('the third is in', () => isInside(third.page));
  assert.equal(third.page.url(), `${room.url}/#part`);
  for (const visitor of [first, second, third]) assert.deepEqual(visitor.faults, []);
});

test('without JavaScript the page reloads itself and goes in', async (t) => {
  const room = await startRoom(t);
  const inside = await fill(t, browser, room);
  const address = `${room.url}/buy?show=42`;
  const {context, page} = await arrive(t, browser, address, {javaScriptEnabled: false});
  assert.equal(await heading(page), 'You are next');
  assert.match(await page.locator('body').innerText(), /allow cookies/);
  const ticket = await page.locator('#ticket').textContent();
  let reloads = 0;
  page.on('request', (request) => reloads += request.isNavigationRequest());
  await until('it reloaded', () => reloads >= 1);
  await until('it kept its place', async () =>
    await page.locator('#ticket').textContent().catch(() => '') === ticket);

  await inside[0].leave();
  await until('it is in', () => isInside(page));
  assert.equal(page.url(), address);

  const again = await context.newPage();
  await again.goto(room.url);
  assert.ok(await isInside(again), 'who is inside stays inside');
});

test('a browser without cookies is told so', async (t) => {
  const room = await startRoom(t);
  await fill(t, browser, room);
  const context = await openWithoutCookies(t);
  const {page} = await arrive(t, null, room.url, {context});
  await until('the page asks for cookies', async () =>
    await heading(page) === 'Please allow cookies', 10_000);
});

test('the server notices lost cookies too', async (t) => {
  const room = await startRoom(t);
  await fill(t, browser, room);
  const {context, page, faults} = await arrive(t, browser, room.url);
  await page.route('**', async (route) => {
    await context.clearCookies();
    await route.continue();
  });
  await until('the page asks for cookies', async () =>
    await heading(page) === 'Please allow cookies');
  assert.deepEqual(faults, []);
});

test('a number that rises on the wire does not rise on the page', async (t) => {
  const room = await startRoom(t);
  await fill(t, browser, room);
  const {page} = await arrive(t, browser, room.url);
  let answers = 0;
  await page.route('**', async (route) => {
    if (!route.request().headers()['headgate-poll']) return route.continue();
    const answer = await route.fetch();
    const body = await answer.json();
    Object.assign(body.headgate, {ahead: 700, position: 701, waiting: 900});
    Object.assign(body.headgate, {eta_low_seconds: 60, eta_high_seconds: 300 + 300 * answers++});
    await route.fulfill({response: answer, json: body});
  });
  await until('the page asked three times', () => answers >= 3);
  await until('the page says why it takes longer', async () =>
    /stay longer/.test(await page.locator('#slow').textContent()));
  assert.equal(await heading(page), 'You are next');
  assert.equal(await number(page, 'position'), 1);
});

test('far from its turn the page asks the shared document every other time', async (t) => {
  const room = await startRoom(t, {session_duration: '10m', poll_min: '30s', poll_max: '1m'});
  await fill(t, browser, room);
  const context = await browser.newContext();
  t.after(() => context.close());
  await context.clock.install();
  const {page, faults} = await arrive(t, browser, room.url, {context});
  const asked = [];
  page.on('request', (request) => {
    if (request.headers()['headgate-poll']) {
      const after = request.response().then((answer) => answer.json())
        .then((body) => body.headgate.poll_after_seconds).catch(() => undefined);
      asked.push({kind: 'own', after});
    } else if (request.url().includes('/served')) asked.push({kind: 'shared'});
  });
  const count = () => asked.filter(({kind}) => kind == 'shared').length;
  for (let i = 1; i <= 2; i++) {
    await until(`shared question ${i}`, async () => {
      if (count() < i) await context.clock.runFor(15_000);
      return count() >= i && await page.locator('#retry').textContent() === '';
    });
  }
  // The first comes soon, whatever the interval: the cookie is to come back. A busy node may ask for the next
  // one soon, too: it is far from its turn when the last answer of its own says 20 s or more.
  let shared = false, last = 0;
  for (const [i, {kind, after}] of asked.entries()) {
    shared = !shared && last >= 20;
    assert.equal(kind, shared ? 'shared' : 'own', `question ${i}, after an answer of ${last} s`);
    last = await after ?? last;
  }
  assert.equal(await number(page, 'position'), 1);
  assert.deepEqual(faults, []);
});

test('a lost connection is survived', async (t) => {
  const room = await startRoom(t);
  const inside = await fill(t, browser, room);
  const {context, page, faults} = await arrive(t, browser, room.url);
  await context.setOffline(true);
  await until('the page tries again', async () =>
    /Trying again/.test(await page.locator('#retry').textContent()));
  await context.setOffline(false);
  await until('the page is back', async () => await page.locator('#retry').textContent() === '');
  await inside[0].leave();
  await until('it is in', () => isInside(page));
  assert.deepEqual(faults, []);
});

test('a turn that comes to nothing is no loop', async (t) => {
  const room = await startRoom(t);
  await fill(t, browser, room);
  const {page} = await arrive(t, browser, room.url);
  let loads = 0;
  page.on('request', (request) => loads += request.isNavigationRequest());
  // A server that errs: it calls this visitor again and again, and lets nobody in.
  await page.route('**', async (route) => {
    if (!route.request().headers()['headgate-poll']) return route.continue();
    await route.fulfill({json: {headgate: {state: 'called', ahead: 0, position: 1, number: 1}}});
  });
  await until('it tried to go in', () => loads >= 1);
  await page.waitForTimeout(12_000);
  assert.ok(loads <= 5, `${loads} loads in 12 s`);
  await until('it shows the page', async () => // also while it loads again
    /It is your turn|You are next/.test(await page.title().catch(() => '')));
});

test('an origin that stops answering shows the error page, which asks again', async (t) => {
  const room = await startRoom(t);
  const [visitor] = await fill(t, browser, room, 1);
  await room.stopOrigin();
  const answer = await visitor.page.goto(`${room.url}/cart`);
  assert.equal(answer.status(), 502);
  assert.equal(await heading(visitor.page), 'The site does not answer');
  let reloads = 0;
  visitor.page.on('request', (request) => reloads += request.isNavigationRequest());
  await until('it asked again', () => reloads >= 1, patience);
  assert.deepEqual(visitor.faults, []);
});
