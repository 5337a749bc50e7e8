// What the tests of the dashboard share: somebody who looks at it, and what each view must be.
import assert from 'node:assert/strict';
import AxeBuilder from '@axe-core/playwright';

const Axe = AxeBuilder.default ?? AxeBuilder;
const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
export const desktop = {width: 1280, height: 860}, phone = {width: 360, height: 740};

// open shows the dashboard to somebody new. Errors of scripts and what the policy blocks are
// collected in faults; the waiting page in its frame has no scripts, and says so.
export async function open(t, browser, room, options = {}) {
  const context = await browser.newContext({viewport: desktop, ...options});
  t.after(() => context.close());
  const page = await context.newPage();
  const faults = [];
  context.on('weberror', (fault) => faults.push(fault.error().message));
  page.on('console', (message) => {
    if (/Content.Security.Policy/i.test(message.text())) faults.push(message.text());
  });
  const go = async (hash) => {
    await page.goto(`${room.admin}/dashboard/#/${hash}`);
    await page.locator('#main > *').first().waitFor();
  };
  await go('');
  return {page, context, faults, go};
}

export async function signIn({page}, token) {
  await page.getByRole('link', {name: /Sign in/}).click();
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', {name: 'Sign in'}).click();
  await page.getByRole('button', {name: 'Sign out'}).waitFor();
}

// confirm says yes to what is asked, and gives the text.
export async function confirm(page, verb) {
  const dialog = page.getByRole('dialog');
  await dialog.waitFor();
  const text = await dialog.innerText();
  await dialog.getByRole('button', {name: verb}).click();
  await dialog.waitFor({state: 'detached'});
  return text;
}

// tile reads the first figure of a tile of the room.
export async function tile(page, label) {
  const text = await page.locator('.tile', {hasText: label}).locator('b').innerText();
  return Number(text.replaceAll(',', ''));
}

export async function assertAccessible(page, what) {
  const {violations} = await new Axe({page}).setLegacyMode(true).exclude('iframe').withTags(rules).analyze();
  const faults = violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(' ')}`);
  assert.deepEqual(faults, [], what);
  await assertFits(page, what);
}

export async function assertFits(page, what) {
  const {inner, whole} = await page.evaluate(() => ({inner: innerWidth, whole: document.documentElement.scrollWidth}));
  assert.ok(whole <= inner, `${what} is ${whole} px wide, the window ${inner}`);
}

// assertLooks holds a view to both at once: light on a desktop, and dark on a phone.
export async function assertLooks(page, what) {
  for (const [colorScheme, size] of [['light', desktop], ['dark', phone]]) {
    await page.emulateMedia({colorScheme, reducedMotion: 'reduce'});
    await page.setViewportSize(size);
    await assertAccessible(page, `${what} ${colorScheme}`);
  }
}
