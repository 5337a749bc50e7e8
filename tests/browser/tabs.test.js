// Tabs of one browser share one place, and one of them asks for all.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import {
  arrive, fill, insecureHost, isInside, number, openBrowser, startRoom, until,
} from './room.js';

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

test('three tabs are one place with one poller', async (t) => {
  const room = await startRoom(t);
  const inside = await fill(t, browser, room);
  const {context, page, faults} = await arrive(t, browser, `${room.url}/a`);
  const tabs = [page];
  for (const path of ['/b', '/c']) {
    tabs.push((await arrive(t, browser, room.url + path, {context})).page);
  }
  const tickets = await Promise.all(tabs.map((tab) => tab.locator('#ticket').textContent()));
  assert.equal(new Set(tickets).size, 1, `tickets ${tickets}`);
  for (const tab of tabs) assert.equal(await number(tab, 'position'), 1);

  const polls = tabs.map(() => 0);
  tabs.forEach((tab, i) => tab.on('request', (request) => {
    if (request.headers()['headgate-poll']) polls[i]++;
  }));
  await until('five polls', () => polls[0] + polls[1] + polls[2] >= 5);
  assert.equal(polls.filter(Boolean).length, 1, `polls by tab: ${polls}`);
  // All tabs show the answer that one of them got.
  const updated = () => Promise.all(tabs.map((tab) => tab.locator('#updated').textContent()));
  await until('all tabs are up to date', async () => new Set(await updated()).size === 1);

  // The one that asks is closed: another takes over.
  const leader = polls.findIndex(Boolean);
  await tabs[leader].close();
  const left = tabs.filter((_, i) => i !== leader);
  polls.fill(0);
  await until('another tab asks', () => polls.some(Boolean));

  // The turn comes for all of them, each where it wanted to go.
  await inside[0].leave();
  for (const tab of left) {
    const address = tab.url();
    await until(`${address} is in`, () => isInside(tab));
    assert.equal(tab.url(), address);
  }
  assert.deepEqual(faults, []);
});

test('the tab that is looked at is the one that asks', async (t) => {
  const room = await startRoom(t);
  await fill(t, browser, room);
  const {context, page} = await arrive(t, browser, room.url);
  const other = (await arrive(t, browser, room.url, {context})).page;
  const polls = {page: 0, other: 0};
  page.on('request', (r) => polls.page += Boolean(r.headers()['headgate-poll']));
  other.on('request', (r) => polls.other += Boolean(r.headers()['headgate-poll']));
  await until('the newer tab asks', () => polls.other >= 2);
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await until('the tab that came to the front asks', () => polls.page >= 2);
  const before = polls.other;
  await until('it goes on', () => polls.page >= 6);
  assert.ok(polls.other <= before + 1, `the other went on: ${polls.other - before} polls`);
});

test('without a secure context each tab asks for itself', async (t) => {
  const room = await startRoom(t);
  const inside = await fill(t, browser, room);
  const address = room.url.replace('127.0.0.1', insecureHost);
  const {context, page, faults} = await arrive(t, browser, address);
  assert.equal(await page.evaluate(() => isSecureContext), false);
  const other = (await arrive(t, browser, address, {context})).page;
  const polls = {page: 0, other: 0};
  page.on('request', (r) => polls.page += Boolean(r.headers()['headgate-poll']));
  other.on('request', (r) => polls.other += Boolean(r.headers()['headgate-poll']));
  await until('both ask', () => polls.page >= 2 && polls.other >= 2);
  assert.equal(await page.locator('#retry').textContent(), '');
  await inside[0].leave();
  await until('the first tab is in', () => isInside(page));
  await until('the other tab is in', () => isInside(other));
  assert.deepEqual(faults, []);
});
