// A room with a third party: the page shows its widget, whose script is a fake here, and sends its token.
import assert from 'node:assert/strict';
import {chmodSync, mkdtempSync, writeFileSync} from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import {after, before, test} from 'node:test';
import {assertLooks} from './board.js';
import {fill, isInside, openBrowser, startRoom, until} from './room.js';

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

// The script of a third party, by its documents: render shows a frame of its host, which says when its visitor
// has passed.
const script = `{
  const onload = new URL(document.currentScript.src).searchParams.get('onload');
  const api = {render(place, options) {
    const frame = document.createElement('iframe');
    frame.src = new URL('widget', api.src);
    addEventListener('message', (event) => event.source == frame.contentWindow && options.callback(event.data));
    place.append(frame);
    api.options = options;
    return 'id';
  }, reset() { api.resets = (api.resets ?? 0) + 1; }};
  api.src = document.currentScript.src;
  self.turnstile = self.hcaptcha = self.grecaptcha = api;
  self[onload]();
}`;

const hosts = {turnstile: 'https://challenges.cloudflare.com/**', hcaptcha: 'https://js.hcaptcha.com/**',
  recaptcha: 'https://www.google.com/recaptcha/**'};

// starts a room with a third party in which two are inside and one waits; asked are the tokens that it was
// asked about.
async function crowded(t, kind, room = {}) {
  const asked = [];
  const party = http.createServer(async (request, answer) => {
    let body = '';
    for await (const part of request) body += part;
    const token = new URLSearchParams(body).get('response');
    asked.push(token);
    const success = token.startsWith('good');
    answer.end(JSON.stringify({success, hostname: '127.0.0.1', 'error-codes': success ? [] : ['invalid-input-response']}));
  });
  await new Promise((done) => party.listen(0, '127.0.0.1', done));
  t.after(() => party.close());
  const secret = path.join(mkdtempSync(path.join(os.tmpdir(), 'headgate-secret-')), 'secret');
  writeFileSync(secret, 'secret');
  chmodSync(secret, 0o600);
  const {challenge, ...more} = room;
  const shop = await startRoom(t, {challenge: {kind, sitekey: 'a-key', secret_file: secret,
    verify_url: `http://127.0.0.1:${party.address().port}/siteverify`, ...challenge}, new_users_per_minute: 6000, ...more});
  const inside = await fill(t, browser, shop);
  shop.state = async () => (await (await fetch(`${shop.admin}/v1/rooms`)).json()).rooms[0];
  const visit = async (answers, fragment = '') => {
    const context = await browser.newContext();
    t.after(() => context.close());
    await context.route(hosts[kind], answers ?? ((route) => route.fulfill(route.request().resourceType() == 'script' ?
      {contentType: 'text/javascript', body: script} :
      {contentType: 'text/html', body: ['good', 'bad'].map((word) => `<button onclick="parent.postMessage('${word}' + Math.random(), '*')">` +
        `${{good: 'I am a person', bad: 'Guess'}[word]}</button>`).join('')})));
    const page = await context.newPage();
    const faults = [];
    page.on('pageerror', (error) => faults.push(error.message));
    page.on('console', (message) => /Content.Security/.test(message.text()) && faults.push(message.text()));
    await page.goto(shop.url + fragment);
    return {page, faults};
  };
  return {...shop, inside, asked, visit};
}

const lane = (state) => state.lanes?.find((l) => l.name == 'unsolved')?.waiting ?? 0;

// first has a first visitor, who has passed the widget.
async function first(room) {
  const visitor = await room.visit();
  await visitor.page.frameLocator('iframe').getByText('I am a person').click({timeout: 5000}).catch(() => {}); // it may need none
  await until('one waits', async () => (await room.state()).waiting_users >= 1);
  return visitor;
}

for (const kind of Object.keys(hosts)) {
  test(`the page shows the widget of ${kind}, and its token gives a place`, async (t) => {
    const room = await crowded(t, kind);
    const one = await first(room);
    const {page, faults} = await room.visit();
    const widget = page.frameLocator('iframe').getByText('I am a person');
    await widget.waitFor();
    await assertLooks(page, `the page with the widget of ${kind}`);
    await widget.click();
    await until('the widget is gone', async () => await page.locator('iframe').count() == 0);
    const state = await room.state();
    assert.deepEqual([state.waiting_users, lane(state), room.asked.length > 0], [2, 0, true], JSON.stringify(state));
    await room.inside[0].leave();
    await until('the first is in', () => isInside(one.page));
    await room.inside[1].leave();
    await until('the second is in', () => isInside(page));
    assert.deepEqual([...faults, ...one.faults], []);
  });
}

test('a page of its own is not reloaded while it shows the widget', async (t) => {
  const html = path.join(mkdtempSync(path.join(os.tmpdir(), 'headgate-own-')), 'own.html');
  writeFileSync(html, '<!doctype html><title>Own</title><p>{{waitTimeFormatted}}{{{turnstile}}}');
  const room = await crowded(t, 'turnstile', {page: {html_file: html}, poll_min: '1s', poll_max: '2s'});
  await first(room);
  const {page, faults} = await room.visit(undefined, '#tickets');
  let loads = 0;
  page.on('load', () => loads++);
  const widget = page.frameLocator('iframe').getByText('I am a person');
  await widget.waitFor();
  let polls = 0;
  page.on('request', (request) => request.headers()['headgate-poll'] && polls++);
  await until('it has polled', () => polls >= 3); // two tickets lapse meanwhile
  assert.equal(loads, 0);
  await widget.click();
  await until('it has its place, and goes on', async () => loads > 0 && await page.locator('iframe').count() == 0);
  assert.equal((await room.state()).waiting_users, 2);
  assert.deepEqual(faults, []);
});

test('where nobody comes in without a token, a wrong one looks like a place and is none', async (t) => {
  const room = await crowded(t, 'turnstile', {challenge: {action: 'infinite_queue'}});
  const one = await first(room);
  const [bad, blocked] = [await room.visit(), await room.visit((route) => route.abort())];
  await bad.page.frameLocator('iframe').getByText('Guess').click();
  await until('the widget is gone', async () => await bad.page.locator('iframe').count() == 0);
  const text = (page, id) => page.locator(id).textContent();
  await until('its page shows its place', async () => await text(bad.page, '#head') == 'You are in line');
  const ticket = await text(bad.page, '#ticket');
  await until('a browser without the script has tried', () => room.asked.some((token) => token.startsWith('unavailable-')));
  for (const person of room.inside) await person.leave();
  await until('the first is in', () => isInside(one.page));
  await bad.page.reload();
  let polls = 0;
  bad.page.on('request', (request) => request.headers()['headgate-poll'] && polls++);
  await until('it has polled since', () => polls >= 2);
  assert.equal(await text(bad.page, '#ticket'), ticket);
  assert.equal(await isInside(bad.page) || await isInside(blocked.page), false);
  const state = await room.state();
  assert.deepEqual([state.waiting_users, lane(state)], [0, 0], JSON.stringify(state));
  assert.deepEqual([...one.faults, ...bad.faults], []);
});

test('a phone that slept does not send the token that it kept', async (t) => {
  const room = await crowded(t, 'turnstile', {challenge: {action: 'infinite_queue'}});
  await first(room);
  const {page, faults} = await room.visit();
  const widget = page.frameLocator('iframe').getByText('Guess'); // the third party calls old tokens wrong, too
  await widget.waitFor();
  const held = [];
  let awake = false;
  await page.route('**/*', (route) => {
    if (awake || !route.request().headers()['headgate-poll']) return route.fallback();
    held.push(route);
  });
  await until('polls of the page and of the widget are under way', () => held.length > 1);
  await page.evaluate(() => {
    self.made = new Promise((done) => addEventListener('message', () => done()));
  });
  await widget.click();
  await page.evaluate(async () => {
    await self.made;
    const now = Date.now;
    Date.now = () => now() + 200_000;
  });
  awake = true;
  for (const route of held) await route.fallback();
  await until('the widget makes another one', () => page.evaluate(() => (self.turnstile.resets ?? 0) > 0));
  assert.deepEqual(room.asked.filter((token) => token.startsWith('bad')), []);
  assert.equal(await page.locator('iframe').count(), 1);
  assert.deepEqual(faults, []);
});

test('where the third party does not load, the line is slower, and has an end', async (t) => {
  const room = await crowded(t, 'turnstile');
  await first(room);
  const {page} = await room.visit((route) => route.abort());
  await until('it waits in the lane', async () => lane(await room.state()) == 1);
  assert.ok(room.asked.some((token) => token.startsWith('unavailable-')));
  for (const one of room.inside) await one.leave();
  await until('it is in', () => isInside(page));
});
