// A visit's page warns before it ends, and who waits can give the place up.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import AxeBuilder from '@axe-core/playwright';
import {arrive, fill, heading, isInside, number, openBrowser, startRoom, until} from './room.js';

const Axe = AxeBuilder.default ?? AxeBuilder;
const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

async function assertAccessible(page, what) {
  const {violations} = await new Axe({page}).withTags(rules).analyze();
  const faults = violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(' ')}`);
  assert.deepEqual(faults, [], what);
}

test('a visit that renews warns, is prolonged by the button, and ends', async (t) => {
  const room = await startRoom(t, {checkout: {warn: '7s'}});
  const {page, faults, answer} = await arrive(t, browser, `${room.url}/warn`, {locale: 'de-DE'});
  assert.match(answer.headers()['headgate-ends-in'], /^(9|10)$/);
  const bar = page.locator('#headgate-warning');
  assert.equal(await bar.count(), 0, 'nothing is said too early');
  await until('it warns', () => bar.isVisible());
  assert.match(await bar.innerText(), /^Ihr Besuch endet in 0:0[0-7]\./);
  assert.equal(await bar.getAttribute('lang'), 'de-DE');
  assert.match(await page.getByRole('status').textContent(), /Ihr Besuch endet/);
  const first = await bar.innerText();
  await until('it counts down', async () => await bar.innerText() !== first);
  await page.getByRole('button', {name: 'Länger bleiben'}).click();
  await until('it is prolonged', async () => !await bar.isVisible());
  await until('it warns again', () => bar.isVisible());
  await assertAccessible(page, 'the warning');
  await until('the visit is over', async () => /Ihr Besuch ist zu Ende/.test(await bar.innerText()));
  assert.equal(await page.getByRole('button').isVisible(), false, 'nothing to prolong any more');
  assert.deepEqual(faults, []);
});

test('a fixed session warns and cannot be prolonged; a page shows it itself', async (t) => {
  const room = await startRoom(t, {session_renewal: false, checkout: {warn: '9s'}});
  const {page, context, faults} = await arrive(t, browser, `${room.url}/warn`);
  const bar = page.locator('#headgate-warning');
  await until('it warns', () => bar.isVisible());
  assert.match(await bar.innerText(), /^Your visit ends in 0:0\d\./);
  assert.equal(await page.getByRole('button').isVisible(), false);
  const own = await context.newPage();
  await own.addInitScript(() => document.addEventListener('headgate:session', (event) => {
    event.preventDefault();
    self.told = event.detail;
  }));
  await own.goto(`${room.url}/warn`);
  await until('the page is told', () => own.evaluate(() => self.told?.ends_in_seconds >= 0));
  assert.equal(await own.locator('#headgate-warning').count(), 0);
  assert.deepEqual(faults, []);
});

for (const javaScriptEnabled of [true, false]) {
  test(`a place is given up ${javaScriptEnabled ? 'with' : 'without'} JavaScript`, async (t) => {
    const room = await startRoom(t);
    await fill(t, browser, room);
    await arrive(t, browser, room.url);
    const {page, context, faults} = await arrive(t, browser, `${room.url}/buy?x=1`, {javaScriptEnabled});
    const third = await arrive(t, browser, room.url);
    assert.equal(await number(third.page, 'position'), 3);
    await page.getByRole('button', {name: 'Give up my place'}).click();
    await page.waitForURL(`${room.url}/.headgate/leave`);
    assert.equal(await heading(page), 'You have given up your place');
    assert.doesNotMatch(await page.locator('main').innerText(), /position|Give up|Notify me/i);
    if (javaScriptEnabled) await assertAccessible(page, 'the page of who has left');
    await until('who is behind moves up', async () => await number(third.page, 'position') < 3);
    await page.reload();
    assert.equal(await heading(page), 'You have given up your place');
    await page.getByRole('link', {name: 'Join the line again'}).click();
    await page.waitForURL(`${room.url}/`);
    await until('it waits again, or is in', async () => await isInside(page) ||
      /You are (next|in line)/.test(await heading(page)));
    assert.equal((await context.cookies()).length, 1);
    assert.deepEqual(faults, []);
  });
}
