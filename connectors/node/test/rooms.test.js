import assert from 'node:assert/strict';
import net from 'node:net';
import {test} from 'node:test';

import {Judge, names, start} from './apps.js';
import {Headgate, Visitor, get, sleep, until} from './world.js';

const SMALL = 'total_active_users: 1, new_users_per_minute: 200, session_duration: 1h, checkout: {pass: true}';

/** Runs a test beside a headgate and an application. */
function beside(name, kind, room, body, judge = new Judge(), options = {}) {
  test(`${name} (${kind})`, {timeout: 120_000}, async () => {
    const hg = await new Headgate(room).start();
    let app;
    try {
      app = await start(kind, hg, judge, options);
      await body({hg, app, judge, port: app.port});
      assert.deepEqual(judge.wrong, []);
    } catch (error) {
      error.message += `\n${hg.log.slice(-2000)}`;
      throw error;
    } finally {
      await app?.close();
      await hg.close();
    }
  });
}

for (const kind of names) {
  beside('a crowd comes in order, and never too many', kind,
    'total_active_users: 20, new_users_per_minute: 200, session_duration: 4s, hold: 30s, checkout: {pass: true}',
    async ({port, judge}) => {
      const visitors = Array.from({length: 60}, (_, i) => new Visitor(port, i + 1));
      for (const v of visitors) v.first = await v.ask(); // one after another
      assert.equal(visitors.filter((v) => v.first.status === 200).length, 20);
      await Promise.all(visitors.map(async (v) => {
        await v.settle();
        for (let i = 0; i < 5; i++) {
          await sleep(100);
          const again = await v.ask(`/page/${i}`);
          if (again.status !== 200) assert.equal(again.status, 503); // it was slower than its session
        }
      }));
      assert.equal(judge.order.length, 60);
      for (const [i, n] of judge.order.entries()) assert.ok(Math.abs(n - 1 - i) < 20, `${judge.order}`);
      assert.ok(judge.ends.size >= 60);
    }, new Judge(20));

  beside('visitors inside cost no message before their answer', kind, SMALL, async ({hg, app, port, judge}) => {
    const v = new Visitor(port);
    await v.settle();
    await v.ask(); // with the last cookie
    const {asked} = app.gate.stats;
    hg.stopped = true; // what is sent to headgate does not arrive
    const subs = new Set();
    const began = performance.now();
    for (let i = 0; i < 50; i++) {
      const got = await v.ask(`/page/${i}?x=${i}`);
      assert.equal(got.status, 200);
      subs.add(JSON.parse(got.body).sub);
    }
    hg.stopped = false;
    // Without batches a lease has two seconds.
    assert.ok(app.gate.stats.asked - asked <= (performance.now() - began) / 2000);
    assert.equal(subs.size, 1);
    assert.equal(app.gate.stats.local >= 50, true);
    const before = {...hg.asked};
    assert.ok(judge.seen.every((r) => r.session && r.headers['headgate-pass']));
    const asks = await v.ask('/robots.txt'); // excluded: it prolongs nothing
    assert.equal(asks.status, 200);
    assert.equal(hg.asked.connect, before.connect + 1);
  });

  beside('end() frees the slot', kind, SMALL, async ({hg, app, port}) => {
    const a = new Visitor(port, 1);
    const b = new Visitor(port, 2);
    await a.settle();
    assert.equal((await b.ask()).status, 503);
    assert.equal((await b.ask()).status, 503); // its cookie comes back
    const {sub} = JSON.parse((await a.ask()).body);
    const got = await a.ask('/buy/complete', {}, 'POST');
    assert.deepEqual([got.status, got.body], [200, '{"ended":true}']);
    const next = await a.ask();
    assert.equal(next.status, 503, `a session that was ended lets in: ${next.body}, ${sub}, ${JSON.stringify(app.gate.stats)}`);
    await b.settle();
    const again = await b.ask('/buy/abandon', {}, 'POST');
    assert.equal(again.body, '{"ended":true}');
    await a.settle();
    assert.equal(await hg.metric('headgate_completed_total'), 1);
    assert.equal(await hg.metric('headgate_abandoned_total'), 1);
  });

  beside('an answer keeps what the application sets', kind, SMALL, async ({port}) => {
    const v = new Visitor(port);
    const first = await v.ask('/');
    assert.equal(first.headers['cache-control'], 'no-store');
    assert.equal(first.headers['set-cookie'].length, 2);
    assert.match(first.headers['set-cookie'].join(), /own=1.*__cfwaitingroom_shop=|__cfwaitingroom_shop=.*own=1/);
    await v.ask();
    await v.ask();
    const later = await v.ask();
    assert.equal(later.headers['cache-control'], 'public, max-age=60');
    assert.equal(later.headers['set-cookie'].length, 1);
  });

  beside('forged headers do nothing', kind, SMALL, async ({port, judge}) => {
    const inside = new Visitor(port, 1);
    await inside.settle();
    const {session: {sub}, headers: {'headgate-pass': pass}} = judge.seen.at(-1);
    judge.seen.length = 0;
    const outside = new Visitor(port, 2);
    for (const headers of [{}, {'Headgate-Pass': pass}, {'Headgate-Admitted': 'session'}, {'Headgate-Local': '/'},
      {'X-Forwarded-Uri': '/robots.txt'}, {'X-Original-URL': '/robots.txt'}, {'X-Original-Method': 'OPTIONS'},
      {'X-Forwarded-Method': 'HEAD'}, {'X-Forwarded-Host': 'other.example'}, {'X-Rewrite-URL': '/robots.txt'},
      {'X-HTTP-Method-Override': 'OPTIONS'}, {Connection: 'X-Forwarded-Uri, Cookie, Host'},
      {Cookie: `Headgate-Pass=${pass}`}, {Cookie: `__cfwaitingroom_shop=${pass}`}, {'X_Forwarded_Uri': '/robots.txt'}]) {
      const got = await get(port, '/', {...outside.headers, ...headers});
      assert.equal(got.status, 503, JSON.stringify(headers));
      assert.match(got.body, /<html/);
    }
    for (const path of ['/..%2frobots.txt', '/x/../robots.txt', '//robots.txt/../', '/robots.txt%00', '/robots.txt;/..']) {
      assert.notEqual((await get(port, path, outside.headers)).status, 200, path);
    }
    assert.equal(judge.seen.length, 0, 'a visitor outside reached the application');
    const mine = await inside.ask('/', {'Headgate-Pass': 'x', Headgate_Pass: 'x', 'HEADGATE-PASS': 'y', 'X_Forwarded_Host': 'x'});
    assert.equal(JSON.parse(mine.body).sub, sub);
    const [seen] = judge.seen;
    assert.deepEqual(Object.keys(seen.headers).filter((n) => /pass|_/.test(n)), ['headgate-pass']);
    assert.equal(seen.raw.filter((x) => /headgate.pass/i.test(x)).length, 1);
    judge.seen.length = 0;
    const free = await get(port, '/robots.txt', {...outside.headers, 'Headgate-Pass': pass});
    assert.deepEqual([free.status, judge.seen[0].session, judge.seen[0].headers['headgate-pass']], [200, null, undefined]);
  });

  beside('headgate itself answers polls, its paths and forms', kind, `${SMALL}, queueing_status_code: 200`,
    async ({port, judge}) => {
      const a = new Visitor(port, 1);
      await a.settle();
      judge.seen.length = 0;
      const b = new Visitor(port, 2);
      const page = await b.ask();
      assert.match(page.body, /<html/);
      assert.equal(page.headers['headgate-admitted'], undefined);
      const poll = await b.ask('/', {'Headgate-Poll': '1', Accept: 'application/json'});
      assert.equal(poll.status, 200);
      assert.equal(JSON.parse(poll.body).cfWaitingRoom.inWaitingRoom, true);
      const zipped = await b.ask('/', {'Accept-Encoding': 'gzip'});
      assert.equal(zipped.headers['content-encoding'], 'gzip');
      const head = await b.ask('/', {}, 'HEAD');
      assert.deepEqual([head.status, head.body], [503, '']);
      assert.match((await b.ask('/.headgate/jwks.json')).body, /"keys"/);
      const form = {'Content-Type': 'application/x-www-form-urlencoded', Origin: 'http://shop.example',
        'Sec-Fetch-Site': 'same-origin'};
      assert.equal((await b.ask('/.headgate/leave', form, 'POST', 'place=x')).status, 303);
      assert.equal((await b.ask('/.headgate/leave', form, 'POST', 'x'.repeat(70_000))).status, 413);
      assert.equal((await get(port, '/', {Host: 'other.example'})).status, 404);
      assert.equal(judge.seen.length, 0);
    });
}

beside('a session that is busy lives on, and an idle one ends', 'http',
  'total_active_users: 2, new_users_per_minute: 200, session_duration: 5s, checkout: {pass: true}',
  async ({hg, port}) => {
    const busy = new Visitor(port, 1);
    const idle = new Visitor(port, 2);
    const next = new Visitor(port, 3);
    await idle.settle();
    const {sub} = JSON.parse((await busy.settle()).body);
    assert.equal((await next.ask()).status, 503);
    const before = {...hg.asked};
    let requests = 0;
    const work = (async () => {
      for (const end = performance.now() + 16_000; performance.now() < end; requests++) {
        const got = await busy.ask();
        assert.equal(got.status, 200);
        assert.equal(JSON.parse(got.body).sub, sub, 'the session is another one');
        await sleep(50);
      }
    })();
    await next.enter(500);
    await work;
    assert.ok(hg.asked.connect - before.connect < requests / 4, `${hg.asked.connect - before.connect} questions`);
    assert.ok(hg.asked.batch - before.batch <= 18, `${hg.asked.batch - before.batch} batches`);
  }, new Judge(2));

beside('batches alone keep a session alive', 'http',
  'total_active_users: 1, new_users_per_minute: 200, session_duration: 5s, checkout: {pass: true}',
  async ({hg, port}) => {
    const v = new Visitor(port, 1);
    const {sub} = JSON.parse((await v.settle()).body);
    hg.batchesOnly = true;
    for (const end = performance.now() + 16_000; performance.now() < end; await sleep(100)) {
      const got = await v.ask();
      assert.equal(got.status, 200);
      assert.equal(JSON.parse(got.body).sub, sub);
    }
    hg.batchesOnly = false;
    assert.equal((await new Visitor(port, 2).ask()).status, 503, 'its slot is free');
  }, new Judge(1));

beside('closed when headgate is down, and visitors inside go on', 'http',
  'total_active_users: 9, new_users_per_minute: 200, session_duration: 8s, checkout: {pass: true}',
  async ({hg, app, port}) => {
    const v = new Visitor(port, 1);
    const {sub} = JSON.parse((await v.settle()).body);
    await v.ask();
    const open = await start('http', hg, new Judge(), {failOpen: true});
    await hg.kill();
    for (let i = 0; i < 5; i++) assert.equal(JSON.parse((await v.ask()).body).sub, sub);
    const no = await new Visitor(port, 2).ask();
    assert.deepEqual([no.status, no.headers['retry-after'], no.headers['cache-control']], [503, '5', 'no-store']);
    const yes = await new Visitor(open.port, 3).ask('/', {'Headgate-Pass': 'x'});
    assert.deepEqual([yes.status, JSON.parse(yes.body).sub], [200, null]);
    assert.equal(open.judge.seen[0].headers['headgate-pass'], undefined);
    await open.close();
    await until('the pass expires', async () => (await v.ask()).status === 503);
    assert.equal(app.judge.wrong.length, 0);
    await hg.start();
    await new Visitor(port, 4).settle();
  });

beside('a flood opens nothing while headgate answers', 'http', 'total_active_users: 9, new_users_per_minute: 200, closed: true',
  async ({hg, app, port, judge}) => {
    hg.slow = 50;
    const got = await Promise.all(Array.from({length: 60}, (_, i) => new Visitor(port, i + 1).ask()));
    assert.deepEqual([...new Set(got.map((a) => a.status))], [503]);
    assert.equal(judge.seen.length, 0, 'requests that waited for a connection have passed');
    assert.ok(app.gate.stats.down > 0);
  }, new Judge(), {failOpen: true, connections: 1, timeout: 1000});

beside('a room that limits is asked each time', 'http',
  'total_active_users: 9, new_users_per_minute: 200, checkout: {pass: true, grace_paths: [/pay]}',
  async ({hg, port}) => {
    const v = new Visitor(port);
    await v.settle();
    const before = hg.asked.connect;
    for (let i = 0; i < 5; i++) await v.ask();
    assert.equal(hg.asked.connect, before + 5);
  });

beside('a preflight passes bare', 'http', SMALL, async ({port, judge}) => {
  const v = new Visitor(port);
  await v.settle();
  judge.seen.length = 0;
  const asks = {Origin: 'https://a.example', 'Access-Control-Request-Method': 'PUT', Authorization: 'x'};
  const got = await v.ask('/a', asks, 'OPTIONS');
  assert.deepEqual([got.status, got.body, got.headers['set-cookie']], [200, '', undefined]);
  assert.deepEqual([judge.seen[0].headers.cookie, judge.seen[0].headers.authorization, judge.seen[0].admitted],
    [undefined, undefined, 'bare']);
  assert.ok(!judge.seen[0].raw.includes('Cookie'));
  assert.equal(judge.seen.length, 1);
});

beside('upgrades pass only inside', 'http', SMALL, async ({app, port, judge}) => {
  app.server.on('upgrade', app.gate.upgrade((req, socket) => {
    judge.see(req);
    socket.end('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello');
  }));
  const v = new Visitor(port, 1);
  await v.settle();
  const open = (path, cookie) => new Promise((resolve, reject) => {
    const s = net.connect(port, '127.0.0.1', () => {
      s.write(`GET ${path} HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
        `Sec-WebSocket-Key: x\r\nAccept: text/html\r\n${cookie ? `Cookie: ${cookie}\r\n` : ''}\r\n`);
    });
    let text = '';
    s.on('data', (part) => { text += part; });
    s.on('end', () => { s.end(); resolve(text); });
    s.on('error', reject);
  });
  assert.match(await open('/ws', v.cookie), /^HTTP\/1\.1 101 [^]*hello$/);
  assert.match(await open('/ws', ''), /^HTTP\/1\.1 503 [^]*<html/);
  assert.match(await open('/robots.txt', ''), /^HTTP\/1\.1 503 /);
});

beside('memory is bounded', 'http', SMALL.replace('users: 1', 'users: 9'), async ({app, port}) => {
  const visitors = Array.from({length: 5}, (_, i) => new Visitor(port, i + 1));
  for (const v of visitors) await v.settle();
  for (let i = 0; i < 20; i++) await visitors[0].ask('/', {Cookie: `${visitors[0].cookie}; __cfwaitingroom_x=${i}`});
  assert.ok(app.gate.memory.all.size <= 3);
  for (const v of visitors) assert.equal((await v.ask()).status, 200);
}, new Judge(), {memory: 3});
