// The page in languages of four scripts, on a phone, light and dark; and a page of the room's own.
import assert from 'node:assert/strict';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {after, before, test} from 'node:test';
import {isDeepStrictEqual} from 'node:util';
import AxeBuilder from '@axe-core/playwright';
import {arrive, fill, heading, isInside, openBrowser, startRoom, until} from './room.js';

const Axe = AxeBuilder.default ?? AxeBuilder;
const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
const languages = {
  'en-US': {dir: 'ltr', waits: 'You are in line', paused: 'The line is paused'},
  'de-DE': {dir: 'ltr', waits: 'Sie stehen in der Schlange', paused: 'Die Schlange steht still'},
  'ja-JP': {dir: 'ltr', waits: '順番をお待ちいただいています', paused: '待ち列は一時停止中です'},
  'ar-EG': {dir: 'rtl', waits: 'أنت في طابور الانتظار', paused: 'الطابور متوقف مؤقتًا'},
};
const phone = {viewport: {width: 360, height: 740}, timezoneId: 'UTC'};

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

for (const [locale, {dir, waits, paused}] of Object.entries(languages)) {
  test(`${locale} on a phone`, async (t) => {
    const room = await startRoom(t, {message: 'Saturday'});
    await fill(t, browser, room);
    await arrive(t, browser, room.url); // stands before all of the others
    for (const colorScheme of ['light', 'dark']) {
      const {page, answer, faults} = await arrive(t, browser, room.url, {...phone, locale, colorScheme});
      assert.equal(await heading(page), waits);
      assert.equal(answer.headers()['content-language'], locale);
      assert.equal(answer.headers()['content-encoding'], 'gzip');
      const html = await page.evaluate(() => [document.documentElement.lang, document.dir]);
      assert.deepEqual(html, [locale, dir]);
      const {violations} = await new Axe({page}).withTags(rules).analyze();
      assert.deepEqual(violations.map((v) => `${v.id}: ${v.help}`), [], `${locale} in ${colorScheme}`);
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(width <= 360, `${locale} is ${width} px wide on a screen of 360`);
      assert.deepEqual(faults, []);
    }
  });

  // What the server wrote must not change its look when the script writes it a moment later.
  test(`${locale} is the same with and without the script`, async (t) => {
    const opens_at = new Date(Date.now() + 30 * 3600_000).toISOString();
    const room = await startRoom(t, {opens_at});
    const [plain, scripted] = await Promise.all([false, true].map(async (javaScriptEnabled) => {
      const {page} = await arrive(t, browser, room.url, {...phone, locale, javaScriptEnabled});
      const texts = {};
      for (const id of ['head', 'what', 'lead', 'eta', 'method', 'position']) {
        texts[id] = await page.locator(`#${id}`).textContent();
      }
      return texts;
    }));
    scripted.position = plain.position; // they are two visitors
    plain.lead = plain.lead.replace(' UTC', '');
    assert.deepEqual(scripted, plain);
  });

  test(`${locale} says that the line is paused`, async (t) => {
    const room = await startRoom(t, {queue_all: true});
    const {page} = await arrive(t, browser, room.url, {...phone, locale});
    await until('the script has written', async () => await heading(page) == paused);
  });
}

test('a page of the room\'s own reloads by itself, and lets its visitor in', async (t) => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'headgate-page-'));
  t.after(() => rmSync(folder, {recursive: true, force: true}));
  const html_file = path.join(folder, 'page.html');
  writeFileSync(html_file, `<!doctype html><html lang="{{language}}"><title>{{title}}</title>
    <style>body { background: rgb(1, 2, 3) }</style><h1>Own page</h1><img src="{{assets}}/dot.svg">
    <script>document.title = 'waits ' + ({{waitTime}} >= 0 && {{inWaitingRoom}})</script></html>`);
  const assets = mkdtempSync(path.join(folder, 'files-'));
  writeFileSync(path.join(assets, 'dot.svg'),
    '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>');
  const room = await startRoom(t, {page: {html_file, assets}});
  const inside = await fill(t, browser, room);
  const {page, answer, faults} = await arrive(t, browser, room.url);
  let shown; // in one step, and more than once: the page reloads meanwhile
  await until('the page is whole', async () => {
    shown = await page.evaluate(() => [document.title, document.querySelector('h1').textContent,
      document.querySelector('img').naturalWidth, getComputedStyle(document.body).backgroundColor]).catch(String);
    return isDeepStrictEqual(shown, ['waits true', 'Own page', 9, 'rgb(1, 2, 3)']);
  }).catch((error) => assert.fail(`${error.message}: ${shown}`));
  assert.ok(Number(answer.headers().refresh) > 0);
  assert.deepEqual(faults, []);
  await inside[0].leave();
  await until('the page has reloaded into the site', () => isInside(page));
});
