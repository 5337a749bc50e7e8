// A place moves from one browser to another: the link, the question, and what the first one reads.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import AxeBuilder from '@axe-core/playwright';
import {arrive, fill, heading, openBrowser, startRoom, until} from './room.js';

const Axe = AxeBuilder.default ?? AxeBuilder;

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

async function assertGood(page, what) {
  const {violations} = await new Axe({page}).analyze();
  assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html)}`), [], what);
  await page.setViewportSize({width: 320, height: 640});
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= 320, `${what} is ${width} px wide on a screen of 320`);
}

test('a place moves', async (t) => {
  const room = await startRoom(t);
  await fill(t, browser, room);
  const first = await arrive(t, browser, room.url);
  await until('it waits', async () => /^You are (next|in line)$/.test(await heading(first.page)));
  await first.page.getByRole('link', {name: 'Continue on another device'}).click();
  await until('there is a link', async () => await first.page.locator('#link').count() == 1);
  await assertGood(first.page, 'the page with the link');
  const link = await first.page.locator('#link').textContent();
  await first.page.getByRole('button', {name: 'Copy the link'}).click();

  const second = await arrive(t, browser, link, {colorScheme: 'dark'});
  assert.equal(await heading(second.page), 'Move the place in line to this device?');
  await assertGood(second.page, 'the question');
  await second.page.getByRole('button', {name: 'Move it here'}).click();
  await until('it waits here', async () =>
    /^You are (next|in line)$/.test(await heading(second.page).catch(() => '')));
  assert.equal(second.page.url(), `${room.url}/`);
  await until('the first is told', async () =>
    await heading(first.page).catch(() => '') == 'Your place has moved to another device');
  await assertGood(first.page, 'what the first reads');

  const third = await arrive(t, browser, link);
  await until('the link is over', async () =>
    await heading(third.page) == 'Move the place in line to this device?');
  await third.page.getByRole('button', {name: 'Move it here'}).click();
  await until('it says so', async () =>
    await heading(third.page).catch(() => '') == 'This link has been used, or is too old');
  assert.deepEqual([first, second, third].flatMap((v) => v.faults), []);
});

test('the waiting page follows its place', async (t) => {
  const room = await startRoom(t);
  await fill(t, browser, room);
  const first = await arrive(t, browser, room.url);
  const tab = await arrive(t, browser, `${room.url}/.headgate/move`, {context: first.context});
  const second = await arrive(t, browser, await tab.page.locator('#link').textContent());
  await second.page.getByRole('button', {name: 'Move it here'}).click();
  await until('the first is told', async () =>
    await heading(first.page).catch(() => '') == 'Your place has moved to another device');
});
