// The dashboard of a real cluster: two data centers, each of one node.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import {assertLooks, desktop, open} from './board.js';
import {openBrowser, startDatacenters, until} from './room.js';

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

// visit sends n newcomers, whose cookies come back: they are inside or wait from then on.
const visit = (url, n) => Promise.all(Array.from({length: n}, async () => {
  const headers = {Accept: 'application/json'}; // an application, not a part of a page
  const page = await fetch(url, {headers});
  await page.text();
  headers.Cookie = page.headers.get('set-cookie').split(';')[0];
  await (await fetch(url, {headers})).text();
}));

// figures reads a table of the page: what stands in each column, by the name of the row.
async function figures(page, name) {
  return page.getByRole('table', {name}).evaluate((table) => {
    const heads = [...table.tHead.rows[0].cells].map((c) => c.textContent);
    return Object.fromEntries([...table.tBodies[0].rows].map((row) =>
      [row.cells[0].textContent, Object.fromEntries([...row.cells].map((c, i) => [heads[i], c.textContent]))]));
  });
}

test('the cluster is shown: who holds and lends how many slots, and how old that is', async (t) => {
  const [sjc, lhr] = await startDatacenters(t, ['sjc', 'lhr'],
    {total_active_users: 90, new_users_per_minute: 6000, session_duration: '5m'});
  const room = async (at) => (await fetch(`${at.admin}/v1/rooms/main`)).json();
  const site = (r, name) => r.datacenters.datacenters.find((s) => s.name === name);
  await until('they know each other', async () => (await room(sjc)).datacenters.datacenters.every((s) => s.age_seconds >= 0));
  await Promise.all([visit(sjc.url, 60), visit(lhr.url, 50)]);
  await until('all slots are used, and that is known', async () => {
    const r = await room(sjc);
    return r.datacenters.datacenters.reduce((n, s) => n + s.active, 0) === 90 && r.datacenters.anywhere.free === 0;
  });
  const {page, faults, go} = await open(t, browser, sjc);
  await go('cluster');
  await page.getByRole('heading', {name: 'Slots by worker'}).waitFor();
  await until('the page says the same', async () => {
    const [r, shown] = [await room(sjc), await figures(page, 'Data centers of main')];
    return ['sjc', 'lhr'].every((name) => ['held', 'unused', 'active', 'waiting', 'new_last_minute', 'workers'].every((key, i) =>
      Number(shown[name][['Holds', 'Unused', 'Inside', 'Waiting', 'New in a minute', 'Workers'][i]]) === site(r, name)[key]));
  });
  const shown = await figures(page, 'Data centers of main');
  assert.equal(Number(shown.sjc.Holds) + Number(shown.lhr.Holds), 90, 'all slots are held, once');
  assert.equal(Number(shown.sjc.Waiting) + Number(shown.lhr.Waiting), 20);
  assert.equal(shown.sjc.State, 'here');
  assert.match(shown.lhr.State, /^known, .* old$/);
  assert.match(await page.locator('#main').innerText(), /Anywhere, .* is in sjc\. It has 0 of 90 slots free/);
  const counter = (await figures(page, 'Counters')).main;
  assert.equal(counter['Hosted by'], 'n1');
  assert.equal(Number(counter.Inside) + Number(counter.Lent), Number(shown.sjc.Holds));
  assert.equal((await figures(page, 'Slots by worker')).n1.State, 'active');
  assert.match((await figures(page, 'Nodes')).n1.Hosts, /main/);
  await assertLooks(page, 'the cluster');
  await page.setViewportSize(desktop);
  // A table that is too wide is scrolled by keyboard, and stays where it is when figures come.
  const wide = page.getByRole('group', {name: 'Counters'});
  await wide.focus();
  await wide.evaluate((e) => e.dataset.old = 'yes');
  await until('there are new figures', async () => !(await wide.getAttribute('data-old')));
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'Counters');
  await lhr.stop();
  await until('it is silent', async () => /^silent/.test((await figures(page, 'Data centers of main')).lhr.State));
  assert.equal((await figures(page, 'Data centers of main')).lhr.Holds, shown.lhr.Holds, 'what it holds is not taken from it');
  assert.deepEqual(faults, []);
});
