// The dashboard on a bad day: what it says when headgate stands still, when a token is revoked, and
// of what is too long or too wide for it.
import assert from 'node:assert/strict';
import {after, before, describe, test} from 'node:test';
import {assertFits, confirm, open, phone, signIn} from './board.js';
import {insecureHost, openBrowser, startRoom, until} from './room.js';

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

const zones = (origin) => ({zones: [{name: insecureHost, origin}]});

// make makes a room by the API.
async function make(room, token, body) {
  const answer = await fetch(`${room.admin}/client/v4/zones/${insecureHost}/waiting_rooms`, {
    method: 'POST', headers: {Authorization: `Bearer ${token}`},
    body: JSON.stringify({host: insecureHost, total_active_users: 10, new_users_per_minute: 10, ...body}),
  });
  assert.equal(answer.status, 200, await answer.clone().text());
  return (await answer.json()).result;
}

describe('the dashboard in trouble', {concurrency: 4}, () => {
  test('a headgate that stands still is not shown as live', async (t) => {
    const room = await startRoom(t);
    const {page, go, faults} = await open(t, browser, room);
    const pulse = (text) => until(`the page says ${text}`, async () => await page.locator('#pulse').innerText() === text);
    for (const view of ['rooms/main', '']) {
      await go(view);
      await pulse('live');
      room.signal('SIGSTOP'); // nothing is closed: the streams just say nothing more
      try {
        await pulse('reconnecting');
        await until('it is said aloud', async () => /lost/.test(await page.locator('#heard').textContent()));
      } finally {
        room.signal('SIGCONT');
      }
      await pulse('live');
    }
    assert.deepEqual(faults, []);
  });

  test('who reads without a token goes on when the one of a session is revoked', async (t) => {
    const room = await startRoom(t);
    const board = await open(t, browser, room);
    const {page, go, faults} = board;
    const token = await room.token('write');
    await signIn(board, token);
    await go('rooms/main');
    await until('it may write', async () => page.getByRole('button', {name: 'Change limits'}).isEnabled());
    await room.revoke('ops');
    await page.getByRole('link', {name: 'Sign in to change'}).waitFor(); // from this machine everybody may read
    await page.getByText('Read-only.').waitFor();
    assert.ok(await page.getByRole('button', {name: 'Change limits'}).isDisabled());
    await until('it goes on', async () => /of 2/.test(await page.locator('.tile', {hasText: 'Inside'}).innerText()));
    assert.deepEqual(faults, []);
  });

  test('a stream that opens after a session was revoked says so', async (t) => {
    const room = await startRoom(t);
    const board = await open(t, browser, room);
    const {page, go} = board;
    await signIn(board, await room.token('write'));
    let revoked;
    await page.route('**/live?room=main', async (route) => {
      await (revoked ??= room.revoke('ops'));
      await route.continue();
    });
    await go('rooms/main');
    await page.getByRole('link', {name: 'Sign in to change'}).waitFor();
  });

  test('the token of a zone sees the rooms of its zone, and changes them', async (t) => {
    const room = await startRoom(t, {host: 'elsewhere.test'}, zones);
    await make(room, await room.token('write'), {name: 'ours'});
    const board = await open(t, browser, room);
    const {page} = board;
    await signIn(board, await room.token(`write:zone/${insecureHost}`));
    const rows = page.locator('.rooms tbody tr');
    await until('there is that room alone', async () => (await rows.allInnerTexts()).join().includes('ours') && await rows.count() === 1);
    await page.getByRole('link', {name: 'ours'}).click();
    await page.getByRole('button', {name: 'Queue all visitors'}).click();
    await confirm(page, 'Queue all visitors');
    await until('all queue', async () => await page.locator('.head .badge').innerText() === 'queue all');
  });

  test('two rooms whose places read alike have two names', async (t) => {
    const room = await startRoom(t, {host: 'elsewhere.test'}, zones);
    const board = await open(t, browser, room);
    const {page, go} = board;
    await signIn(board, await room.token('write'));
    for (const [path, name] of [['/a/b', 'room-test-a-b'], ['/a-b', 'room-test-a-b-2']]) {
      await go('new');
      await until('the rooms are known', async () => await page.locator('#pulse').innerText() === 'live');
      for (const [label, value] of [['Host', insecureHost], ['Path', path], ['Users at once', '9'], ['New users per minute', '9']]) {
        await page.getByLabel(label, {exact: true}).fill(value);
      }
      await page.getByRole('button', {name: 'Create the room'}).click();
      await confirm(page, 'Create');
      await page.getByRole('heading', {name, level: 1, exact: true}).waitFor();
    }
  });

  test('a long name fits a phone, and a room that is gone is in no state', async (t) => {
    const room = await startRoom(t, {host: 'elsewhere.test'}, zones);
    const token = await room.token('write');
    const name = 'W'.repeat(64);
    const {id} = await make(room, token, {name, path: `/${'long-'.repeat(50)}`});
    const {page, go} = await open(t, browser, room, {viewport: phone});
    for (const part of ['', '/events', '/rules', '/page', '/past', '/whatif']) {
      await go(`rooms/${name}${part}`);
      await page.locator('.head .badge', {hasText: 'not queueing'}).waitFor();
      await assertFits(page, `a long name ${part}`);
    }
    await fetch(`${room.admin}/client/v4/zones/${insecureHost}/waiting_rooms/${id}`, {method: 'DELETE', headers: {Authorization: `Bearer ${token}`}});
    await page.getByText('This room does not exist').waitFor();
    assert.ok(await page.locator('.head .badge').isHidden());
  });

  test('an address that cannot be read shows the rooms', async (t) => {
    const room = await startRoom(t);
    const {page, faults, go} = await open(t, browser, room);
    for (const hash of ['rooms/%', '%', 'rooms/%ff/a']) {
      await go('rooms/main');
      await page.getByRole('heading', {name: 'main', level: 1}).waitFor();
      await page.evaluate((hash) => location.hash = `#/${hash}`, hash);
      await page.getByRole('heading', {name: 'main', level: 1}).waitFor({state: 'detached'});
      await page.getByRole('heading', {name: 'Rooms', level: 1}).waitFor();
      assert.match(await page.title(), /^Rooms/);
      assert.equal(await page.locator('nav [aria-current]').innerText(), 'Rooms');
    }
    assert.deepEqual(faults, []);
  });

  test('a table that was scrolled stays where it is', async (t) => {
    const room = await startRoom(t);
    const {page, go} = await open(t, browser, room, {viewport: {width: 700, height: 700}});
    await go('cluster');
    const far = () => page.evaluate(() => {
      const wide = [...document.querySelectorAll('.scroll')].find((e) => e.scrollWidth > e.clientWidth + 40);
      return wide && {left: wide.scrollLeft, old: 'old' in wide.dataset};
    });
    await until('a table is too wide', async () => await far());
    await page.evaluate(() => {
      const wide = [...document.querySelectorAll('.scroll')].find((e) => e.scrollWidth > e.clientWidth + 40);
      wide.scrollLeft = 30;
      wide.dataset.old = '';
    });
    await until('the table is made anew', async () => !(await far()).old);
    assert.equal((await far()).left, 30);
  });

  test('a chart of what was never measured says so', async (t) => {
    const room = await startRoom(t);
    const {page, go} = await open(t, browser, room);
    await go('rooms/main');
    const chart = page.locator('.chart', {hasText: 'Origin latency'});
    await until('it has a name', async () => await chart.locator('svg').getAttribute('aria-label') ?? '');
    assert.match(await chart.locator('svg').getAttribute('aria-label'), /mean unknown/);
    await chart.getByText('As a table').click();
    await until('the table is there', async () => await chart.locator('tbody td').count() > 0);
    assert.deepEqual([...new Set(await chart.locator('tbody td').allInnerTexts())], ['—']);
  });
});
