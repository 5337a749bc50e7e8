// The dashboard, driven as an operator does: by what stands on the page.
import assert from 'node:assert/strict';
import http from 'node:http';
import {after, before, describe, test} from 'node:test';
import {assertAccessible, assertFits, assertLooks, confirm, desktop, open, phone, signIn, tile} from './board.js';
import {insecureHost, openBrowser, startRoom, until} from './room.js';

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

// tabTo goes on by the tab key until something of that name has the focus, and shows it.
async function tabTo(page, name) {
  for (let i = 0; i < 120; i++) {
    await page.keyboard.press('Tab');
    const at = await page.evaluate(() => {
      const e = document.activeElement;
      return {name: e.getAttribute('aria-label') ?? (e.labels?.[0] ?? e).textContent, ring: getComputedStyle(e).outlineStyle};
    });
    if (at.name !== name) continue;
    assert.notEqual(at.ring, 'none', `${name} does not show its focus`);
    return;
  }
  assert.fail(`nobody comes to ${name} by keyboard`);
}

// agree says yes by keyboard to what is asked.
async function agree(page) {
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Shift+Tab');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor({state: 'detached'});
}

// seconds waits until so many have come by the stream, and are on the page.
async function seconds(page, n) {
  await page.evaluate((n) => new Promise((done) => {
    const source = new EventSource('live');
    source.onmessage = () => {
      if (n-- > 0) return;
      source.close();
      requestAnimationFrame(() => requestAnimationFrame(done));
    };
  }), n);
}

// They wait for each other's servers more than they compute: side by side.
describe('the dashboard', {concurrency: 4}, () => {
  test('a proxy that is not trusted is told on the page of the room', async (t) => {
    const room = await startRoom(t, {join_limit: {amount: 100000, window: '1s'}});
    const board = await open(t, browser, room);
    await board.go('rooms/main');
    const note = board.page.getByText('Nearly all newcomers come from one address.');
    await board.page.locator('.tile').first().waitFor();
    assert.equal(await note.isVisible(), false);
    const newcomer = () => new Promise((done, fail) => http.get(room.url, {headers: {accept: 'text/html'}}, (answer) =>
      answer.resume().on('end', done)).on('error', fail));
    await until('the note', async () => {
      await Promise.all(Array.from({length: 60}, newcomer));
      return note.isVisible();
    });
    assert.match(await note.innerText(), /set trusted_proxies/);
  });

  test('a rush, from five fields to an empty line, through the dashboard alone', async (t) => {
    const room = await startRoom(t, {host: 'elsewhere.test'}, (origin) => ({zones: [{name: insecureHost, origin}]}));
    const board = await open(t, browser, room);
    const {page, faults} = board;
    await signIn(board, await room.token('write'));
    await page.getByRole('link', {name: 'New room'}).click();
    await page.getByLabel('Host').fill(insecureHost);
    await page.getByLabel('Users at once').fill('4');
    await page.getByLabel('New users per minute').fill('600');
    await page.getByLabel('Session duration').fill('5s');
    await page.getByRole('button', {name: 'Create the room'}).click();
    assert.match(await confirm(page, 'Create'), /room\.test\/: at most 4 at once, at most 600 new/);
    await page.getByRole('heading', {name: 'room-test', level: 1}).waitFor();

    const crowd = room.command('crowd', `${room.url}/`, '--host', insecureHost, '--n', '60', '--arrive', '2s', '--stay', '2s..5s');
    crowd.catch(() => {}); // heard below, unless the test ends before
    t.after(() => crowd.child.kill());
    await until('people wait', async () => await tile(page, 'Waiting') > 10);
    assert.equal(await page.locator('.head .badge').innerText(), 'queueing');
    assert.ok(await tile(page, 'Inside') <= 4);
    await until('why they wait', async () => /all slots are in use/.test(await page.locator('.tile', {hasText: 'Waiting'}).innerText()));

    await page.getByLabel('Message', {exact: true}).fill('Shoes are sold out, shirts are there.');
    await page.getByRole('button', {name: 'Send message'}).click();
    assert.match(await confirm(page, 'Send message'), /\d+ waiting visitors see within seconds/);
    await page.getByText('Done: Send message.').waitFor();
    await page.getByRole('button', {name: 'Queue all visitors'}).click();
    assert.match(await confirm(page, 'Queue all visitors'), /No new visitors are admitted/);
    await until('all queue', async () => await page.locator('.head .badge').innerText() === 'queue all');
    await page.locator('#said').getByRole('button', {name: 'Undo'}).click(); // one click
    await until('it queues again', async () => await page.locator('.head .badge').innerText() === 'queueing');

    await page.getByLabel('Users at once').fill('100');
    await page.getByRole('button', {name: 'Change limits'}).click();
    assert.match(await confirm(page, 'Change limits'), /Users at once: 4 → 100\.[^]*slots? (is|are) then free for the \d+ waiting/);
    await until('the line is empty', async () => await tile(page, 'Waiting') === 0, 90_000);
    await until('the badge says so', async () => /not queueing/.test(await page.locator('.head .badge').innerText()));
    assert.match(await crowd, /admitted +60,[^]*order +0 overtaken[^]*errors +none/);

    const row = page.getByRole('row', {name: /total_active_users|headgate|new_users/}).first();
    await row.waitFor();
    await page.locator('#said').getByRole('button', {name: 'Undo'}).click();
    await until('the limit is as before', async () => (await page.locator('.tile', {hasText: 'Inside'}).innerText()).includes('of 4'));
    // What was seen is played again with other limits.
    await page.getByRole('link', {name: 'What if'}).click();
    await page.getByLabel('Users at once').fill('1');
    await until('there is a stretch of time to play', async () => {
      await page.getByRole('button', {name: 'What would have happened?'}).click();
      return await page.getByText(/Visitors would have waited/).waitFor({timeout: 5000}).then(() => true, () => false);
    }, 60_000);
    assert.match(await page.locator('[aria-live] p').first().innerText(), /waited longer/);
    assert.deepEqual(faults, []);
  });

  test('a hundred rooms fit a page, and one of them is found', async (t) => {
    const room = await startRoom(t, {}, (origin) => ({
      rooms: Array.from({length: 99}, (_, i) => ({name: `room-${i + 1}`, host: `r${i + 1}.${insecureHost}`, origin,
        total_active_users: 200, new_users_per_minute: 100, session_duration: '5m'})),
    }));
    const {page, faults} = await open(t, browser, room, {viewport: phone});
    const rows = page.locator('.rooms tbody tr');
    await until('a hundred rooms', async () => await rows.count() === 100);
    await assertFits(page, 'a hundred rooms');
    await page.getByLabel('Find a room').fill('room-77');
    await until('one is found', async () => await rows.count() === 1);
    assert.deepEqual(faults, []);
  });

  test('every view is accessible, fits, does not move, and what is steered goes back', async (t) => {
    const room = await startRoom(t, {
      limits: ['api'], rules: [{action: 'bypass', expression: 'http.request.uri.path eq "/health"', description: 'probes'},
        {action: 'lane', lane: 'members', share: 30, expression: 'http.request.cookies["member"][0] eq "1"'}],
      events: [{name: 'sale', start: '2030-05-01T10:00:00Z', end: '2030-05-01T12:00:00Z', every: '168h', suspended: true}],
    }, (origin) => ({
      zones: [{name: insecureHost, origin}],
      limits: [{name: 'api', algorithm: 'sliding_log', amount: 100, window: '60s', key: ['header:x-client']}],
      queues: [{name: 'orders', target: {url: `${origin}/orders`}, limits: ['api']}],
    }));
    const use = () => fetch(room.url, {headers: {'X-Client': 'big'}}); // forgotten after a minute
    await use();
    const board = await open(t, browser, room);
    const {page, faults, go} = board;
    await signIn(board, await room.token('write'));
    const views = ['', 'new', 'rooms/main', 'rooms/main/events', 'rooms/main/rules', 'rooms/main/page', 'rooms/main/past', 'rooms/main/whatif', 'limits', 'limits/api', 'queues',
      'cluster', 'audit', 'signin'];
    for (const view of views) {
      await go(view);
      await until(`${view} has come`, async () => await page.locator('#main h1').count() === 1);
      await assertLooks(page, `#/${view}`);
    }
    await page.setViewportSize(desktop);
    // Nothing moves by itself, neither at the load nor with the seconds.
    for (const view of ['', 'rooms/main']) {
      await go(view);
      await page.reload();
      await page.evaluate(() => {
        self.moved = 0;
        new PerformanceObserver((list) => {
          for (const e of list.getEntries()) self.moved += e.value;
        }).observe({type: 'layout-shift', buffered: true});
      });
      await page.locator('.tile').first().waitFor();
      await seconds(page, 2);
      const moved = await page.evaluate(() => self.moved);
      assert.ok(moved < 0.02, `#/${view} moves by ${moved}`);
    }
    await go('queues');
    await page.getByRole('button', {name: 'Pause orders'}).click();
    assert.match(await confirm(page, 'Pause orders'), /0 jobs wait and stay/);
    await page.getByRole('row', {name: /^orders paused/}).waitFor();
    await page.locator('#said').getByRole('button', {name: 'Undo'}).click();
    await page.getByRole('row', {name: /^orders running/}).waitFor();
    await use();
    await go('limits/api');
    await page.getByRole('row', {name: /^big/}).waitFor();
    await go('rooms/main/past');
    await page.getByText(/\d+ admitted, 0 gave up/).waitFor();
    await page.getByLabel('Time range').selectOption('A week');
    await until('a week is shown', async () => /Each point covers (30 min|1 h)/.test(await page.locator('#main').innerText()));
    // Rules and events of the file are shown, and not to be changed here.
    const own = page.locator('#main section');
    await go('rooms/main/rules');
    const rows = own.getByRole('listitem');
    await until('rules are listed', async () => await rows.count() === 2);
    assert.match(await rows.first().innerText(), /^Bypass\s+probes\s+http\.request\.uri\.path eq "\/health"$/);
    assert.match(await rows.last().innerText(), /^Lane members, 30 %/);
    assert.match(await own.innerText(), /defined in the configuration file/);
    assert.equal(await own.getByRole('button').count(), 0);
    await go('rooms/main/events');
    await own.getByRole('row', {name: /^sale .* limits of the room*, every 7 days suspended/}).waitFor();
    assert.match(await own.innerText(), /defined in the configuration file/);
    assert.equal(await own.getByRole('button').count(), 0);
    // A room of the file says what differs from it, and its line of the audit log takes that back.
    await go('rooms/main');
    await page.getByLabel('Users at once').fill('3');
    await page.getByRole('button', {name: 'Change limits'}).click();
    await confirm(page, 'Change limits');
    await page.getByText('Changed until the next reload: total_active_users = 3').waitFor();
    await page.setViewportSize(phone);
    const back = page.getByRole('button', {name: /^Undo Room main changed/}).first();
    const {x, width} = await back.boundingBox();
    assert.ok(x + width <= phone.width, `on a phone the way back is at ${x}, outside of the window`);
    await page.locator('#said').getByRole('button', {name: 'Close'}).click();
    await back.click();
    await page.setViewportSize(desktop);
    await page.getByText('Undone.').waitFor();
    await page.getByText('Changed until the next reload').waitFor({state: 'detached'});
    // By keyboard: past the head, and out of a dialog without doing anything.
    await go('rooms/main');
    await page.reload();
    await page.getByRole('button', {name: 'Close the room'}).waitFor();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
    await page.getByRole('button', {name: 'Close the room'}).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Cancel');
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({state: 'detached'});
    await until('the focus is where it was', () => page.evaluate(() => document.activeElement.textContent === 'Close the room'));
    assert.deepEqual(faults, []);
  });

  test('what is wrong stands at its field, and who only reads changes nothing', async (t) => {
    const room = await startRoom(t, {host: 'elsewhere.test'}, (origin) => ({zones: [{name: insecureHost, origin}]}));
    const board = await open(t, browser, room);
    const {page, go, faults} = board;
    const wrong = async (label, text) => {
      const field = page.locator('.field', {has: page.getByLabel(label, {exact: true})});
      await until(`${label} says ${text}`, async () => text.test(await field.locator('.wrong').innerText()));
      assert.equal(await page.getByLabel(label, {exact: true}).getAttribute('aria-invalid'), 'true');
    };
    await go('signin');
    await page.getByLabel('Token').fill('hg_nonsense');
    await page.getByRole('button', {name: 'Sign in'}).click();
    await wrong('Token', /unknown/);
    await page.getByLabel('Token').fill(await room.token('read'));
    await page.getByRole('button', {name: 'Sign in'}).click();
    await page.getByRole('button', {name: 'Sign out'}).waitFor();
    await go('rooms/main');
    await page.getByText('Read-only.').waitFor();
    assert.ok(await page.getByRole('button', {name: 'Change limits'}).isDisabled());
    await page.getByRole('button', {name: 'Sign out'}).click();
    await page.getByRole('link', {name: 'Sign in to change'}).waitFor();
    assert.deepEqual(await board.context.cookies(), []);
    await signIn(board, await room.token('write'));

    await go('new');
    await page.getByRole('button', {name: 'Create the room'}).click();
    await wrong('Host', /missing/);
    await wrong('Users at once', /missing/);
    for (const [label, value] of [['Host', 'https://x/'], ['Path', 'no'], ['Users at once', '0'], ['New users per minute', 'many']]) {
      await page.getByLabel(label, {exact: true}).fill(value);
    }
    await page.getByLabel('Session duration').fill('long');
    await page.getByRole('button', {name: 'Create the room'}).click(); // no dialog says what cannot be
    await wrong('Session duration', /not a time/);
    await wrong('Users at once', /not a whole number/);
    await wrong('New users per minute', /not a whole number/);
    await page.getByLabel('Session duration').fill('5m');
    await page.getByLabel('Users at once').fill('100');
    await page.getByLabel('New users per minute').fill('50');
    await page.getByRole('button', {name: 'Create the room'}).click();
    await confirm(page, 'Create');
    await wrong('Host', /./);
    await wrong('Path', /./);
    await page.getByLabel('Host').fill(insecureHost);
    await page.getByLabel('Path').fill('/tickets');
    await page.getByRole('button', {name: 'Create the room'}).click();
    await confirm(page, 'Create');
    await page.getByRole('heading', {name: 'room-test-tickets', level: 1}).waitFor();

    await page.getByLabel('Users at once').fill('abc');
    await page.getByRole('button', {name: 'Change limits'}).click();
    await wrong('Users at once', /not a whole number/);
    await page.getByLabel('Users at once').fill('3000000000'); // more than the API takes
    await page.getByRole('button', {name: 'Change limits'}).click();
    await confirm(page, 'Change limits');
    await wrong('Users at once', /2147483647/);

    await page.getByRole('link', {name: 'Events'}).click();
    await page.getByRole('button', {name: 'Save the event'}).click();
    await wrong('Name', /missing/);
    await page.getByLabel('Name', {exact: true}).fill('sale');
    await page.getByLabel('Start', {exact: true}).fill('2030-05-01T10:00');
    await page.getByLabel('End', {exact: true}).fill('2030-05-01T09:00');
    await page.getByRole('button', {name: 'Save the event'}).click();
    await confirm(page, 'Plan');
    await wrong('End', /./);
    await page.getByLabel('End', {exact: true}).fill('2030-05-01T12:00');
    await page.getByRole('button', {name: 'Save the event'}).click();
    await confirm(page, 'Plan');
    await page.getByRole('row', {name: /sale/}).waitFor();
    await page.locator('#said').getByRole('button', {name: 'Undo'}).click();
    await page.getByText('No events are planned.').waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.id), 'main'); // Undo is gone

    await page.getByRole('link', {name: 'Waiting page'}).click();
    await page.getByLabel('Position').fill('0');
    await page.getByLabel('Position').blur();
    await wrong('Position', /position/);
    const html = page.getByLabel(/^HTML/);
    await html.fill('<h1>{{#waitTimeKnown}}</h1>');
    await page.getByRole('button', {name: 'Preview'}).click();
    await until('the template is explained', async () => (await page.locator('form.card .wrong').allInnerTexts()).join('').length > 10);
    // The answer of an earlier look comes after that of a later one, and is not shown.
    let late;
    const held = new Promise((done) => late = done);
    await page.route('**/preview?*position=7', async (route) => {
      await held;
      await route.continue();
    }, {times: 1});
    await page.getByLabel('Position').fill('7');
    await html.fill('<!doctype html><title>Ours</title><h1>Our own page</h1>');
    await page.getByRole('button', {name: 'Preview'}).click();
    const ours = page.frameLocator('iframe').getByRole('heading', {name: 'Our own page'});
    await ours.waitFor();
    const answered = page.waitForResponse(/\/v1\/.*preview.*position=7/);
    late();
    await (await answered).finished();
    await page.evaluate(() => new Promise((done) => setTimeout(done))); // the page has read it
    await ours.waitFor();
    await page.getByRole('button', {name: 'Activate'}).click();
    await confirm(page, 'Activate');
    await page.getByText('Done: Activate this page.').waitFor();
    const kept = async () => (await (await fetch(`${room.admin}/client/v4/zones/${insecureHost}/waiting_rooms`)).json()).result[0].custom_page_html;
    assert.match(await kept(), /Our own page/);
    await page.locator('#said').getByRole('button', {name: 'Undo'}).click();
    await page.getByText('Undone.').waitFor();
    assert.equal(await kept(), '');
    await until('the form says so', async () => await html.inputValue() === '');

    await page.getByRole('link', {name: 'What if'}).click();
    await page.getByLabel('Users at once').fill('x');
    await page.getByRole('button', {name: 'What would have happened?'}).click();
    await wrong('Users at once', /whole number/);
    assert.deepEqual(faults, []);
  });

  test('an event is changed, suspended and resumed, and each goes back', async (t) => {
    const room = await startRoom(t, {host: 'elsewhere.test'}, (origin) => ({zones: [{name: insecureHost, origin}]}));
    const token = await room.token('write');
    const api = async (method, path, body) => (await fetch(`${room.admin}/client/v4/zones/${insecureHost}/waiting_rooms${path}`,
      {method, headers: {Authorization: `Bearer ${token}`}, body: JSON.stringify(body)})).json();
    const {result: {id}} = await api('POST', '', {name: 'shop', host: insecureHost, total_active_users: 50, new_users_per_minute: 600});
    const event = {name: 'sale', event_start_time: '2030-05-01T10:00:30Z', event_end_time: '2030-05-01T12:00:00Z', description: 'kept'};
    await api('POST', `/${id}/events`, event);
    await api('POST', `/${id}/events`, {...event, name: 'now', event_start_time: '2020-05-01T10:00:00Z', event_end_time: '2040-05-01T12:00:00Z'});
    const kept = async () => {
      const e = (await api('GET', `/${id}/events`)).result.find((e) => e.event_end_time !== '2040-05-01T12:00:00Z');
      return [e.name, e.event_start_time, e.event_end_time, e.prequeue_start_time, e.shuffle_at_event_start, e.total_active_users, e.new_users_per_minute, e.suspended, e.description];
    };
    const was = await kept();
    const board = await open(t, browser, room, {timezoneId: 'America/New_York'}); // 4 h behind, in May
    const {page, faults, go} = board;
    await signIn(board, token);
    await go('rooms/shop/events');
    const focus = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent);
    const row = page.getByRole('row', {name: /^sale /});
    const save = page.getByRole('button', {name: 'Save the event'});
    const undo = page.locator('#said').getByRole('button', {name: 'Undo'});
    await row.waitFor();
    // By keyboard: what is not touched stays to the second, and what there is not is not sent.
    await tabTo(page, 'Edit: sale');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.value), 'sale');
    assert.equal(await page.getByLabel('Start', {exact: true}).inputValue(), '2030-05-01T06:00');
    await page.keyboard.press('Control+A');
    await page.keyboard.type('sale-of-may');
    await page.keyboard.press('Enter');
    await agree(page);
    await page.getByText('Done: Change sale.').waitFor();
    assert.deepEqual(await kept(), ['sale-of-may', ...was.slice(1)]);
    assert.ok(await page.evaluate(() => document.activeElement.closest('form')), 'the focus is not in the form');
    await undo.click();
    await row.waitFor();
    assert.deepEqual(await kept(), was);

    // Each field, and nothing but what differs.
    await page.getByRole('button', {name: 'Edit: sale'}).click();
    await save.click();
    await page.getByText('Nothing is different').waitFor();
    for (const [label, value] of [['Start', '2030-05-01T07:00'], ['End', '2030-05-01T09:00'], ['Prequeue from', '2030-05-01T06:30'],
      ['Users at once', '7'], ['New users per minute', '9']]) await page.getByLabel(label, {exact: true}).fill(value);
    await page.getByLabel('At the start').selectOption('Random draw');
    await assertLooks(page, 'a form with an event');
    await page.setViewportSize(desktop);
    await save.click();
    const text = await confirm(page, 'Change');
    assert.match(text, /Start: 1 May 2030, 06:00 → 1 May 2030, 07:00\./);
    assert.match(text, /Prequeue from: \(none\) → 1 May 2030, 06:30\.[^]*At the start: In order → Random draw\.[^]*Users at once: \(none\) → 7\./);
    assert.doesNotMatch(text, /Name:|It is on/);
    await page.getByRole('row', {name: /^sale 1 May 2030, 06:30 1 May 2030, 07:00 1 May 2030, 09:00 7 at once, 9 per minute, random draw/}).waitFor();
    assert.deepEqual(await kept(), ['sale', '2030-05-01T11:00:00.000Z', '2030-05-01T13:00:00.000Z', '2030-05-01T10:30:00.000Z', true, 7, 9, false, 'kept']);
    // Taken away again: empty is none.
    await page.getByRole('button', {name: 'Edit: sale'}).click();
    for (const label of ['Prequeue from', 'Users at once']) await page.getByLabel(label, {exact: true}).fill('');
    await page.getByLabel('At the start').selectOption('In order');
    await save.click();
    await confirm(page, 'Change');
    const field = page.locator('.field', {has: page.getByLabel('Users at once', {exact: true})});
    await until('both limits or none', async () => /must be set together\. Set both, or neither/.test(await field.locator('.wrong').innerText()));
    await page.getByLabel('New users per minute').fill('');
    await save.click();
    await confirm(page, 'Change');
    await page.getByRole('row', {name: /^sale — 1 May 2030, 07:00 1 May 2030, 09:00 limits of the room/}).waitFor();
    assert.deepEqual((await kept()).slice(3, 7), [null, false, null, null]);

    // Off and on, of one to come and of one that is on.
    await tabTo(page, 'Suspend: sale');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({state: 'detached'});
    await until('the focus is where it was', async () => await focus() === 'Suspend: sale');
    await page.keyboard.press('Enter');
    await agree(page);
    await page.getByRole('button', {name: 'Resume: sale'}).waitFor();
    await until('the focus is on the way back', async () => await focus() === 'Resume: sale' || await focus() === 'Edit: sale');
    assert.equal((await kept())[7], true);
    await undo.click();
    await page.getByRole('button', {name: 'Suspend: sale'}).waitFor();
    assert.equal((await kept())[7], false);
    await page.getByRole('button', {name: 'Suspend: now'}).click();
    assert.match(await confirm(page, 'Suspend'), /The event is on: the room returns to its own limits at once/);
    await page.getByRole('row', {name: /^now .*suspended/}).waitFor();
    await page.getByRole('button', {name: 'Resume: now'}).click();
    await confirm(page, 'Resume');
    await page.getByRole('button', {name: 'Suspend: now'}).waitFor();
    await page.getByRole('button', {name: 'Delete: sale'}).click();
    await confirm(page, 'Delete');
    await row.waitFor({state: 'detached'});
    await undo.click();
    await row.waitFor();
    // Later, from the audit log.
    await go('audit');
    const line = page.getByRole('row', {name: /suspended false → suspended true/});
    await line.first().getByRole('button', {name: /^Undo Event of room shop changed/}).waitFor();
    assert.equal(await line.count(), 2);
    assert.deepEqual(faults, []);
  });

  test('a queue that fails is red, its jobs are found, and a tenant is paused', async (t) => {
    const room = await startRoom(t, {}, {queues: [{name: 'pulled', pull: {lease: '30s'}, max_attempts: 1}]});
    const token = await room.token('write');
    const ask = async (method, path, body) => {
      const answer = await fetch(`${room.admin}/v1/queues/${path}`, {method, body: body && JSON.stringify(body), headers: {Authorization: `Bearer ${token}`, 'Content-Type': 'application/json'}});
      assert.ok(answer.ok, `${method} ${path}: ${answer.status}`);
      return answer.json();
    };
    // Twelve jobs of two tenants die: their worker gives them back.
    for (let i = 0; i < 12; i++) await ask('POST', 'pulled/jobs', {key: `k${i}`, tenant: i % 2 ? 'acme' : 'beta', text: 'x'});
    for (let n = 0; n < 12;) {
      const {jobs} = await ask('POST', 'pulled/claim', {max: 12, wait: '30s'});
      n += jobs.length;
      if (jobs.length) await ask('POST', 'pulled/nack', {receipts: jobs.map((j) => j.receipt), why: 'no table'});
    }
    const board = await open(t, browser, room);
    const {page, faults, go} = board;
    await signIn(board, token);
    await go('');
    const tile = page.locator('.tile', {hasText: 'Need attention'});
    await until('the queue needs attention', async () => /^1 pulled/.test(await tile.innerText()));
    await tile.getByRole('link', {name: 'pulled'}).click();
    const badge = page.locator('.badge', {hasText: 'failing'});
    await badge.waitFor();
    assert.match(await badge.getAttribute('class'), /bad/);
    await page.getByText(/^12 tries failed in a row since .*: no table$/).waitFor();

    // A part is redriven: the dead jobs of one tenant.
    const dead = page.getByRole('group', {name: 'Dead jobs'}).locator('tbody tr');
    await until('twelve are shown', async () => await dead.count() === 12);
    const form = page.locator('form', {hasText: 'Find jobs'});
    const find = async (values) => {
      for (const label of ['ID or key', 'Tenant', 'HTTP status']) await form.getByLabel(label).fill(values[label] ?? '');
      await form.getByRole('button', {name: 'Find'}).click();
    };
    await find({'HTTP status': '503'});
    await page.getByText('None.', {exact: true}).waitFor();
    await find({Tenant: 'acme'});
    await until('six are shown', async () => await dead.count() === 6);
    await page.getByText(/^0 in line, 6 dead\./).waitFor();
    await assertLooks(page, 'a tenant of a queue');
    await page.setViewportSize(desktop);
    await page.getByRole('button', {name: 'Pause tenant acme'}).click();
    assert.match(await confirm(page, 'Pause tenant acme'), /those of other tenants go on/);
    await page.getByRole('button', {name: 'Resume tenant acme'}).waitFor();
    assert.deepEqual((await ask('GET', 'pulled')).paused_tenants, ['acme']);
    await page.getByRole('button', {name: 'Retry all dead jobs of pulled with tenant=acme'}).click();
    assert.match(await confirm(page, 'Retry all'), /6 jobs are delivered again/);
    await page.getByText(/^6 in line, 0 dead\./).waitFor();
    assert.equal((await ask('GET', 'pulled')).dead, 6);
    assert.equal((await ask('POST', 'pulled/claim', {max: 12})).jobs.length, 0);

    // One job is found by its key, and canceled; one that is not there says so.
    await find({'ID or key': 'k1'});
    const one = page.getByRole('group', {name: 'The job'}).locator('tbody tr');
    await until('it waits', async () => /waiting, paused\tnumber 1 of its tenant\t0\tk1\tacme/.test(await one.innerText()));
    await one.getByRole('button', {name: /^Cancel job/}).click();
    assert.match(await confirm(page, 'Cancel it'), /never sent/);
    await until('it is canceled', async () => /canceled/.test(await one.innerText()));
    await find({'ID or key': 'none'});
    await page.getByText(/^The queue does not know this job/).waitFor();

    // Resumed, and undone.
    await page.getByRole('button', {name: 'Resume tenant acme'}).click();
    await confirm(page, 'Resume tenant acme');
    await until('it goes on', async () => (await ask('GET', 'pulled')).paused_tenants.length === 0);
    await page.locator('#said').getByRole('button', {name: 'Undo'}).click();
    await until('it is paused again', async () => (await ask('GET', 'pulled')).paused_tenants.length === 1);

    // The jobs without a tenant are paused and resumed, and not the queue, which is both red and paused.
    await ask('POST', 'pulled/pause');
    await ask('POST', 'pulled/pause?tenant=');
    await page.locator('.badge', {hasText: 'failing, paused'}).waitFor();
    await page.getByRole('button', {name: 'Resume tenant —'}).click();
    await confirm(page, 'Resume tenant —');
    await until('only they go on', async () => (await ask('GET', 'pulled')).paused_tenants.join() === 'acme');
    assert.ok((await ask('GET', 'pulled')).paused, 'the queue stays paused');
    assert.deepEqual(faults.filter((f) => !/404/.test(f)), []);
  });

  test('dead jobs of a queue are seen, let go again and forgotten', async (t) => {
    let broken = true;
    const done = [];
    const target = http.createServer((request, response) => {
      response.statusCode = broken ? 410 : 204;
      if (!broken) done.push(request.headers['idempotency-key']);
      response.end();
    }).listen(0, '127.0.0.1');
    await new Promise((ready) => target.once('listening', ready));
    t.after(() => target.close());
    const room = await startRoom(t, {}, {
      limits: [{name: 'db', algorithm: 'sliding_log', amount: 1000, window: '1s'}, {name: 'idle', algorithm: 'sliding_log', amount: 10, window: '60s'}],
      queues: [{name: 'orders', target: {url: `http://127.0.0.1:${target.address().port}/`}, limits: ['db']}],
    });
    const token = await room.token('write');
    const headers = {Authorization: `Bearer ${token}`, 'Content-Type': 'application/x-ndjson'};
    const put = (...keys) => fetch(`${room.admin}/v1/queues/orders/jobs`, {method: 'POST', headers, body: keys.map((key) => JSON.stringify({key, body: {key}})).join('\n')});
    const dead = async () => (await (await fetch(`${room.admin}/v1/queues/orders/dead`, {headers})).json()).jobs.map((j) => j.key);
    assert.equal((await put('a', 'b', 'c', 'd')).status, 200);
    await until('four are dead', async () => (await dead()).length === 4);
    const board = await open(t, browser, room);
    const {page, faults, go} = board;
    // Who only reads sees them.
    await go('queues');
    await page.getByRole('row', {name: /^orders running .* 4$/}).waitFor();
    await page.getByRole('link', {name: 'orders'}).click();
    await page.getByText(/^Last failure: job \S+, .*: .*410/).waitFor();
    const rows = page.locator('table', {hasText: 'Dead jobs'}).locator('tbody tr');
    await until('four are shown', async () => await rows.count() === 4);
    assert.match(await rows.first().innerText(), /410.*\t1\t[a-d]\t—/);
    assert.equal(await page.getByRole('button', {name: /^(Retry|Delete)/}).count(), 0);
    await signIn(board, token);
    await go('queues/orders');
    await page.getByRole('button', {name: 'Retry all dead jobs of orders'}).waitFor();
    await assertLooks(page, 'a queue');
    await page.setViewportSize(desktop);

    const job = (key) => page.getByRole('row', {name: new RegExp(`1 ${key} —`)});
    const focus = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.id);
    const forget = job('b').getByRole('button', {name: /^Delete job/});
    // No, by keyboard: the view was made anew behind the question, and the focus is where it was.
    const name = await forget.getAttribute('aria-label');
    await forget.focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await assertAccessible(page, 'the question about a dead job');
    await page.evaluate(() => { // this one is gone when the view has been made anew
      for (const e of document.querySelectorAll('.cards table')) e.dataset.old = 'yes';
    });
    await until('the view is made anew', async () => await page.locator('table[data-old]').count() === 0);
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({state: 'detached'});
    await until('the focus is where it was', async () => await focus() === name); // a moment after
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').getByText('You cannot undo this.').waitFor();
    await agree(page);
    await page.getByText(`Done: ${name}.`).waitFor();
    assert.deepEqual((await dead()).sort(), ['a', 'c', 'd']);
    assert.equal(await page.locator('#said').getByRole('button', {name: 'Undo'}).count(), 0);
    await until('the focus is in the view', async () => await page.evaluate(() => document.querySelector('main').contains(document.activeElement)));

    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', {name: 'Save all 3 as a file'}).click()]);
    assert.equal(file.suggestedFilename(), 'orders.ndjson');
    let saved = '';
    for await (const part of await file.createReadStream()) saved += part;
    assert.deepEqual(saved.trim().split('\n').map((line) => JSON.parse(line).key), ['a', 'c', 'd']);

    broken = false;
    await job('c').getByRole('button', {name: /^Retry job/}).click();
    assert.match(await confirm(page, 'Retry it'), /The job is delivered again/);
    await until('c is done', () => done.includes('c'));
    await until('two are left', async () => await rows.count() === 2);
    assert.deepEqual(done, ['c']);
    await page.getByRole('button', {name: 'Retry all dead jobs of orders'}).click();
    assert.match(await confirm(page, 'Retry all'), /2 jobs are delivered again, as if never sent before/);
    await page.getByText('None.', {exact: true}).waitFor();
    await until('they are done', () => done.length === 3);
    assert.deepEqual([...done].sort(), ['a', 'c', 'd']);
    // All are forgotten by who types the name of the queue.
    broken = true;
    await put('e', 'f');
    await page.getByRole('button', {name: 'Delete all dead jobs of orders'}).click();
    const yes = page.getByRole('dialog').getByRole('button', {name: 'Delete all'});
    assert.ok(await yes.isDisabled());
    await page.getByLabel('Type orders to confirm').fill('orders');
    await yes.click();
    await page.getByText('None.', {exact: true}).waitFor();
    await until('all are forgotten', async () => (await dead()).length === 0);
    await page.reload();
    await page.getByText(/^6 jobs put, 3 delivered, 6 died/).waitFor();

    // The audit log says it in sentences.
    await go('audit');
    await page.getByRole('row', {name: /Dead jobs of queue orders deleted/}).first().waitFor();
    assert.equal(await page.getByRole('row', {name: /Dead jobs of queue orders retried/}).count(), 2);
    assert.doesNotMatch(await page.locator('#main').innerText(), /\/v1\//);
    // A limit that nobody has called says so.
    let first;
    await page.route('**/v1/limits/idle', (r) => { first = () => r.continue(); }, {times: 1});
    await go('limits/idle');
    await page.getByText('No calls yet.').waitFor();
    assert.equal(await page.getByLabel('Amount').isVisible(), false); // the first answer would overwrite it
    await first();
    await page.locator('.plot').getByText('No data').waitFor();
    const amount = async () => (await (await fetch(`${room.admin}/v1/limits/idle`, {headers})).json()).amount;
    for (const [value, question] of [['many', null], ['12', /10 → 12/]]) {
      await page.getByLabel('Amount').fill(value);
      await page.getByRole('button', {name: 'Change the amount'}).click();
      if (question) assert.match(await confirm(page, 'Change the amount'), question);
      else await page.getByText(/^is not a whole number/).waitFor();
    }
    await page.getByText('Done: Change the amount.').waitFor();
    assert.equal(await amount(), 12);
    await page.locator('#said').getByRole('button', {name: 'Undo'}).click();
    await page.getByText('Undone.').waitFor();
    assert.equal(await amount(), 10);
    await go('limits/nonsense');
    await page.getByText('There is no such limit. GET /v1/limits or headgate limit list lists them').waitFor();
    assert.deepEqual(faults, []);
  });

  test('rules, lanes and the end of a room, by keyboard alone', async (t) => {
    const room = await startRoom(t, {host: 'elsewhere.test'}, (origin) => ({zones: [{name: insecureHost, origin}]}));
    const token = await room.token('write');
    const api = async (method, path, body) => (await fetch(`${room.admin}/client/v4/zones/${insecureHost}/waiting_rooms${path}`,
      {method, headers: {Authorization: `Bearer ${token}`}, body: JSON.stringify(body)})).json();
    const {result: {id}} = await api('POST', '', {name: 'shop', host: insecureHost, total_active_users: 50, new_users_per_minute: 600});
    const kept = async () => (await api('GET', `/${id}/rules`)).result.map((r) => `${r.action} ${r.enabled} ${r.expression} ${r.headgate.lane} ${r.headgate.share}`);
    const visitor = async (path) => new Promise((done, fail) => http.get(room.url + path, {headers: {Host: insecureHost}},
      (answer) => done(answer.resume().statusCode)).on('error', fail));
    const board = await open(t, browser, room);
    const {page, faults, go} = board;
    await signIn(board, token);
    await go('rooms/shop');
    await page.getByRole('button', {name: 'Delete the room'}).waitFor();
    await tabTo(page, 'Rules');
    await page.keyboard.press('Enter');
    await page.getByText('There are no rules.').waitFor();

    // What is wrong is shown where it is.
    await tabTo(page, 'Expression');
    await page.keyboard.type('ssl or http.hots eq "x"');
    await tabTo(page, 'Save the rule');
    await page.keyboard.press('Enter');
    await agree(page);
    const wrong = page.locator('.field', {has: page.getByLabel('Expression', {exact: true})}).locator('.wrong');
    await until('the fault is explained', async () => /^line 1, column 8: .*http\.hots/.test(await wrong.innerText()));
    assert.equal(await wrong.locator('code').textContent(), 'ssl or http.hots eq "x"\n       ^');
    assert.deepEqual(await page.evaluate(() => [document.activeElement.name, document.activeElement.selectionStart]), ['expression', 7]);
    await page.keyboard.press('Control+A');
    await page.keyboard.type('starts_with(http.request.uri.path, "/private")');
    await page.keyboard.press('Shift+Tab');
    await page.keyboard.type('D');
    await tabTo(page, 'Description');
    await page.keyboard.type('keep out');
    await page.keyboard.press('Enter');
    await agree(page);
    await page.getByText('Done: Add this rule').waitFor();
    assert.deepEqual(await kept(), ['deny true starts_with(http.request.uri.path, "/private")  0']);
    await until('it is refused', async () => await visitor('/private/a') === 403);

    // A lane, behind it; its share has bounds.
    await go('rooms/shop/rules');
    await page.reload();
    await page.getByRole('button', {name: 'Edit: keep out'}).waitFor();
    await tabTo(page, 'Action');
    await page.keyboard.type('Lan');
    await tabTo(page, 'Lane');
    await page.keyboard.type('members');
    await tabTo(page, 'Share');
    await page.keyboard.type('100');
    await tabTo(page, 'Expression');
    await page.keyboard.type('http.request.cookies["member"][0] eq "1"');
    await tabTo(page, 'Save the rule');
    await page.keyboard.press('Enter');
    await agree(page);
    await until('the share is wrong', async () => await page.evaluate(() => document.activeElement.name) === 'share');
    await page.keyboard.press('Control+A');
    await page.keyboard.type('30');
    await page.keyboard.press('Enter');
    await agree(page);
    await page.getByRole('listitem').filter({hasText: 'Lane members, 30 %'}).waitFor();

    // Order, on and off, and back; the focus stays with the rule.
    const lane = 'http.request.cookies["member"][0] eq "1"';
    await page.reload();
    await page.getByRole('button', {name: `Up: ${lane}`}).waitFor();
    await tabTo(page, `Up: ${lane}`);
    await page.keyboard.press('Enter');
    await agree(page);
    await until('the lane is first', async () => /^lane/.test((await kept())[0]));
    await until('the focus is beside', async () => (await page.evaluate(() => document.activeElement.getAttribute('aria-label'))) === `Edit: ${lane}`);
    await tabTo(page, 'Disable: keep out');
    await page.keyboard.press('Enter');
    await agree(page);
    await until('nobody is refused', async () => await visitor('/private/a') === 200);
    await page.getByText('Deny, off').waitFor();
    await tabTo(page, 'Undo');
    await page.keyboard.press('Enter');
    await until('it is refused again', async () => await visitor('/private/a') === 403);
    await assertLooks(page, 'rules');
    await page.setViewportSize(desktop);
    await page.reload();
    await page.getByRole('button', {name: `Delete: ${lane}`}).waitFor();
    await tabTo(page, `Edit: ${lane}`);
    await page.keyboard.press('Enter');
    await page.keyboard.press('Control+A');
    await page.keyboard.type('ssl');
    await tabTo(page, 'Save the rule');
    await page.keyboard.press('Enter');
    await agree(page);
    await page.getByRole('button', {name: 'Delete: ssl'}).waitFor();
    assert.equal((await kept())[0], 'lane true ssl members 30');
    await tabTo(page, 'Delete: ssl');
    await page.keyboard.press('Enter');
    await agree(page);
    await page.getByRole('button', {name: 'Delete: ssl'}).waitFor({state: 'detached'});
    await go('audit');
    await page.getByText(/rule 1 lane members, 30 %: ssl/).first().waitFor();

    // The room: only who types its name deletes it, and it comes back as it was.
    await go('rooms/shop');
    await page.getByRole('button', {name: 'Delete the room'}).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await assertAccessible(page, 'the question');
    const yes = page.getByRole('dialog').getByRole('button', {name: 'Delete the room'});
    assert.ok(await yes.isDisabled());
    await page.keyboard.type('shopp');
    await page.keyboard.press('Enter');
    assert.ok(await yes.isDisabled());
    await page.keyboard.press('Backspace');
    await page.keyboard.press('Enter');
    await page.getByText('Done: Delete shop.').waitFor();
    await page.getByRole('link', {name: 'shop'}).waitFor({state: 'detached'});
    await until('it is not there', async () => await visitor('/') === 404);
    await tabTo(page, 'Undo');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', {name: 'shop', level: 1}).waitFor();
    await until('it is back', async () => await visitor('/') === 200 && await visitor('/private/a') === 403);
    // A room of the file is not deleted here.
    await go('rooms/main');
    await page.getByRole('button', {name: 'Delete the room'}).click();
    await page.getByText(/this room is defined in the configuration file/).waitFor();
    assert.deepEqual(faults, []);
  });
});
