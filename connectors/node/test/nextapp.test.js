// A real application of Next.js, as next build and next start make it.

import assert from 'node:assert/strict';
import {execFile, spawn} from 'node:child_process';
import {once} from 'node:events';
import {join} from 'node:path';
import {before, test} from 'node:test';
import {promisify} from 'node:util';

import {Judge} from './apps.js';
import {CROWDED, Headgate, Visitor, crowd, get, sleep, until} from './world.js';

const app = join(import.meta.dirname, 'next');
const next = join(import.meta.dirname, '..', 'node_modules', 'next', 'dist', 'bin', 'next');
const env = {...process.env, NEXT_TELEMETRY_DISABLED: '1'};
delete env.NODE_TEST_CONTEXT; // its workers are no tests

before(() => promisify(execFile)(process.execPath, [next, 'build', app], {env}), {timeout: 300_000});

/** Runs a test beside a headgate and the application, whose gate asks through the relay. */
function inside(name, room, body) {
  test(`${name} (next start)`, {timeout: 120_000}, async () => {
    const hg = await new Headgate(room).start();
    const server = spawn(process.execPath, [next, 'start', app, '-H', '127.0.0.1', '-p', '0'],
      {env: {...env, DECIDE: hg.url}, stdio: ['ignore', 'pipe', 'pipe']});
    let said = '';
    for (const out of [server.stdout, server.stderr]) out.on('data', (part) => { said += part; });
    try {
      const port = Number(await until('Next.js listens', () => /Ready in/.test(said) && /http:\/\/127\.0\.0\.1:(\d+)/.exec(said)?.[1]));
      await body({hg, port});
    } catch (error) {
      error.message += `\n${said.slice(-2000)}\n${hg.log.slice(-2000)}`;
      throw error;
    } finally {
      server.kill('SIGKILL');
      if (server.exitCode === null && server.signalCode === null) await once(server, 'exit');
      await hg.close();
    }
  });
}

const told = (answer) => JSON.parse(answer.body);
const claims = (pass) => JSON.parse(Buffer.from(pass.split('.')[1], 'base64url'));
const sub = (answer) => claims(told(answer).headers['headgate-pass']).sub;

/** A visitor whose answers are judged. */
class Judged extends Visitor {
  async ask(...args) {
    const answer = await super.ask(...args);
    if (answer.status === 200) {
      const {url, headers} = told(answer);
      const token = headers['headgate-pass'];
      this.judge.see({url, headers, rawHeaders: [], headgate: {token, session: token ? claims(token) : null}});
    }
    return answer;
  }
}

inside('a crowd is never too many', CROWDED.replace('users: 20', 'users: 4'), async ({port}) => {
  const judge = new Judge(4);
  await crowd(Array.from({length: 12}, (_, i) => Object.assign(new Judged(port, i + 1), {judge})), 500);
  assert.equal(judge.order.length, 12);
  assert.ok(judge.ends.size >= 12);
  assert.deepEqual(judge.wrong, []);
});

inside('visitors inside cost no message, and batches keep them inside',
  'total_active_users: 1, new_users_per_minute: 200, session_duration: 5s, checkout: {pass: true}', async ({hg, port}) => {
    const v = new Visitor(port, 1);
    const session = sub(await v.settle());
    await v.ask(); // with the last cookie
    const {connect} = hg.asked;
    const began = performance.now();
    for (let i = 0; i < 50; i++) assert.equal(sub(await v.ask(`/page/${i}?x=${i}`)), session);
    assert.ok(hg.asked.connect - connect <= (performance.now() - began) / 2000, `${hg.asked.connect - connect} questions`);
    hg.batchesOnly = true;
    const {batch} = hg.asked;
    for (const end = performance.now() + 12_000; performance.now() < end; await sleep(100)) {
      const got = await v.ask();
      assert.equal(got.status, 200, got.body);
      assert.equal(sub(got), session);
    }
    assert.ok(hg.asked.batch - batch <= 14, `${hg.asked.batch - batch} batches`);
    hg.batchesOnly = false;
    assert.equal((await new Visitor(port, 2).ask()).status, 503, 'its slot is free');
  });

inside('answers and requests go on as they are',
  'total_active_users: 1, new_users_per_minute: 200, session_duration: 1h, checkout: {pass: true}', async ({hg, port}) => {
    const v = new Visitor(port, 1);
    const first = await v.ask('/a?b=c');
    assert.deepEqual([told(first).method, told(first).url], ['GET', '/a?b=c']);
    for (const name of ['cache-control', 'cdn-cache-control', 'surrogate-control']) assert.equal(first.headers[name], 'no-store');
    assert.equal(first.headers['x-accel-expires'], '0');
    assert.match(first.headers['set-cookie'].join(), /own=1/);
    await v.settle();
    const later = await v.ask('/', {'Headgate-Pass': 'forged', Headgate_Pass: 'forged'});
    assert.equal(later.headers['cache-control'], 'public, max-age=60');
    assert.equal(told(later).headers.headgate_pass, undefined);
    assert.match(told(later).headers['headgate-pass'], /^eyJ/);
    const sent = await v.ask('/order', {'Content-Type': 'text/plain'}, 'POST', 'x'.repeat(300_000));
    assert.deepEqual([told(sent).method, told(sent).body.length], ['POST', 300_000]);
    assert.equal(sub(sent), claims(/pass=([^<]*)\./.exec((await v.ask('/page')).body)[1]).sub);

    const other = new Visitor(port, 2);
    const page = await other.ask('/', {'Headgate-Pass': told(later).headers['headgate-pass'],
      'x-middleware-subrequest': 'proxy:proxy:proxy:proxy:proxy'});
    assert.equal(page.status, 503);
    assert.match(page.body, /<html/);
    assert.equal(page.headers['headgate-admitted'], undefined);
    assert.ok((await other.ask('/_next/static/x.js')).status === 503);
    const poll = await other.ask('/', {'Headgate-Poll': '1', Accept: 'application/json'});
    assert.deepEqual([poll.status, JSON.parse(poll.body).cfWaitingRoom.inWaitingRoom], [200, true]);
    const head = await other.ask('/', {}, 'HEAD');
    assert.deepEqual([head.status, head.body], [503, '']);
    const zipped = await other.ask('/', {'Accept-Encoding': 'gzip'});
    assert.equal(zipped.headers['content-encoding'], 'gzip');
    const form = {'Content-Type': 'application/x-www-form-urlencoded', Origin: 'http://shop.example', 'Sec-Fetch-Site': 'same-origin'};
    const left = await other.ask('/.headgate/leave', form, 'POST', 'place=x');
    assert.deepEqual([left.status, left.headers.location], [303, '/.headgate/leave']);
    assert.equal((await other.ask('/.headgate/leave', form, 'POST', 'x'.repeat(70_000))).status, 413);
    const asks = {Origin: 'https://a.example', 'Access-Control-Request-Method': 'PUT'};
    const preflight = await get(port, '/', {...v.headers, ...asks, Cookie: v.cookie}, 'OPTIONS');
    assert.deepEqual([preflight.status, preflight.body], [204, '']);
    assert.equal((await get(port, '/', {Host: 'other.example'})).status, 404);

    await hg.kill();
    assert.equal((await v.ask()).status, 200);
    const down = await new Visitor(port, 3).ask();
    assert.deepEqual([down.status, down.headers['retry-after'], down.headers['cache-control']], [503, '5', 'no-store']);
  });
