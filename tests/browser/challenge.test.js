// A room with proof of work: the page solves it in a worker while its visitor waits, and whoever cannot
// waits in a slower line, and comes in too.
import assert from 'node:assert/strict';
import {writeFileSync} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {after, before, test} from 'node:test';
import {solveChallenge} from 'altcha-lib';
import {deriveKey} from 'altcha-lib/algorithms/pbkdf2';
import {crowded, lane, solves, stateOf} from './challenged.js';
import {arrive, fill, insecureHost, isInside, openBrowser, patience, startRoom, until} from './room.js';

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

test('the page solves its challenge in a worker', async (t) => {
  const room = await crowded(t, browser);
  const {page, faults} = await solves(room, async () => {
    const context = await browser.newContext();
    t.after(() => context.close());
    await context.addInitScript(() => { // in pages, not in workers
      self.derived = 0;
      const derive = SubtleCrypto.prototype.deriveBits;
      SubtleCrypto.prototype.deriveBits = function (...how) {
        self.derived++;
        return derive.apply(this, how);
      };
    });
    const page = await context.newPage();
    const faults = [];
    page.on('pageerror', (error) => faults.push(error.message));
    page.on('console', (message) => /Content.Security/.test(message.text()) && faults.push(message.text()));
    const worker = page.waitForEvent('worker');
    const policy = (await page.goto(room.url)).headers()['content-security-policy'];
    assert.match(policy, /^worker-src 'self'; default-src 'none';/);
    assert.match((await worker).url(), /\/\.headgate\/work\.js$/);
    return {context, page, faults};
  });
  const derived = () => page.evaluate(() => self.derived);
  assert.equal(await derived(), 0, 'the page stands still while it computes');
  await page.evaluate(() => crypto.subtle.deriveBits({}, null, 8).catch(() => {}));
  assert.equal(await derived(), 1, 'nothing counts what the page derives');
  await room.inside[0].leave();
  await until('the first is in', () => isInside(room.first.page));
  await room.inside[1].leave();
  await until('the second is in', () => isInside(page));
  assert.deepEqual(faults, []);
});

for (const [name, options, address] of [
  ['without JavaScript', {javaScriptEnabled: false}, (url) => url],
  ['without WebCrypto', {}, (url) => url.replace('127.0.0.1', insecureHost)],
]) {
  test(`${name} the line is slower, and has an end`, async (t) => {
    const room = await crowded(t, browser);
    const {page, faults} = await arrive(t, browser, address(room.url), options);
    await until('it waits in the lane', async () => lane(await room.state()) == 1);
    await room.inside[0].leave();
    await until('who came first is in', () => isInside(room.first.page));
    await room.inside[1].leave();
    await until('who has not solved is in', () => isInside(page));
    assert.deepEqual(faults.filter((fault) => !/subtle|importKey/.test(fault)), []);
  });
}

// Whoever has solved it when a slot is free goes first, also before somebody who came earlier and has not.
test('the page solves the challenge of its turn', async (t) => {
  const room = await startRoom(t, {challenge: {kind: 'work', on: 'claim'}, new_users_per_minute: 6000});
  const inside = await fill(t, browser, room);
  const none = await arrive(t, browser, room.url, {javaScriptEnabled: false});
  await until('one waits', async () => (await stateOf(room)).waiting_users == 1);
  const {page, faults} = await arrive(t, browser, room.url);
  await until('the second has solved it', async () => (await stateOf(room)).challenges.solved > 0);
  const {waiting_users: waiting, lanes} = await stateOf(room);
  assert.deepEqual([waiting, lane({lanes})], [2, 0]);
  await inside[0].leave();
  await until('who has solved it is in', () => isInside(page));
  assert.equal(await isInside(none.page), false, 'a slot for nothing');
  await inside[1].leave();
  await until('who has not is in', () => isInside(none.page));
  assert.deepEqual(faults, []);
});

test('the page solves the challenge of a draw', async (t) => {
  const room = await startRoom(t, {challenge: {kind: 'work', on: 'draw'}, method: 'random', new_users_per_minute: 6000});
  const inside = await fill(t, browser, room);
  const {page, faults} = await arrive(t, browser, room.url);
  await until('it has solved it', async () => (await stateOf(room)).challenges.solved > 0);
  await inside[0].leave();
  await until('it is in', () => isInside(page));
  assert.deepEqual(faults, []);
});

test('a page of its own includes the script', async (t) => {
  const html = path.join(os.tmpdir(), `headgate-own-${process.pid}.html`);
  writeFileSync(html, '<!doctype html><meta http-equiv=refresh content={{refreshIntervalSeconds}}><title>Own</title>' +
    '<p>{{waitTimeFormatted}}<script src="/.headgate/work.js" defer></script>');
  const room = await crowded(t, browser, {page: {html_file: html}});
  const {faults} = await solves(room, () => arrive(t, browser, room.url));
  assert.deepEqual(faults, []);
});

// The public client of ALTCHA, from npm, in an app that keeps its cookie.
test('altcha-lib solves a challenge', async (t) => {
  const room = await crowded(t, browser);
  let cookie = '';
  const ask = async (solution) => {
    const headers = {accept: 'application/json', 'headgate-poll': cookie && '1', cookie};
    if (!cookie) delete headers['headgate-poll'];
    if (solution) headers['headgate-solution'] = solution;
    const answer = await fetch(room.url, {headers});
    cookie = answer.headers.getSetCookie()[0]?.split(';')[0] ?? cookie;
    return (await answer.json()).headgate;
  };
  // tries solves the challenge of a newcomer and sends it, changed or not: after a wrong solution nothing
  // more of its ticket is checked.
  const tries = async (change) => {
    cookie = '';
    const {challenge} = await ask();
    const solution = change(await solveChallenge({challenge, deriveKey}));
    return ask(btoa(JSON.stringify({challenge, solution})));
  };
  const end = Date.now() + patience;
  const inTime = async (change, done) => {
    for (let answer; ; ) {
      assert.ok(Date.now() < end, 'no solution comes in time');
      answer = await tries(change);
      if (await done(answer)) return answer;
    }
  };
  const wrong = await inTime((solution) => ({...solution, counter: solution.counter + 1}),
    async () => (await room.state()).challenges.refused.wrong > 0);
  assert.ok(wrong.challenge, 'a wrong solution is accepted');
  const right = await inTime((solution) => solution, (answer) => answer.challenge === null);
  assert.equal(right.position, 2);
  const {solved, refused} = (await room.state()).challenges;
  assert.ok(solved > room.solved);
  assert.deepEqual([refused.foreign, refused.malformed], [0, 0]);
});
