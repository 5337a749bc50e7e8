import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import net from 'node:net';
import {test} from 'node:test';

import {Judge, names, start} from './apps.js';
import {CROWDED, Headgate, Visitor, crowd, get, sleep, until} from './world.js';

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
  beside('a crowd comes in order, and never too many', kind, CROWDED, async ({port, judge}) => {
    await crowd(Array.from({length: 60}, (_, i) => new Visitor(port, i + 1)));
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

  beside('visitors who come at once have a session each', kind, SMALL.replace('users: 1', 'users: 9'), async ({port}) => {
    const got = await Promise.all(Array.from({length: 9}, (_, i) => new Visitor(port, i + 1).ask()));
    assert.equal(new Set(got.map((a) => JSON.parse(a.body).sub ?? '')).size, 9);
    assert.ok(got.every((a) => JSON.parse(a.body).sub));
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

/** A session ends at one application, while another may let its visitor in. */
function endsElsewhere(batches) {
  beside(`a session that ends elsewhere is over with its lease: ${batches}`, 'http', SMALL, async ({hg, port}) => {
    const other = await start('http', hg.direct);
    try {
      const again = new Visitor(other.port, 1);
      const next = new Visitor(other.port, 2);
      await until('a pass for more than a probation', async () => {
        await again.enter();
        return other.judge.seen.at(-1).session.exp - Date.now() / 1000 > 60;
      });
      assert.equal((await next.ask()).status, 503);
      const cookies = [...again.jar];
      const oldIsInside = async () => {
        const old = new Visitor(port, 1);
        old.jar = new Map(cookies); // with the pass: no place in the line
        return (await old.ask()).status === 200;
      };
      if (batches !== 'no batches') await until('a batch with a lease', async () => await oldIsInside() && hg.leases > 0);
      hg.noBatches = batches !== 'batches';
      assert.ok(await oldIsInside());
      if (batches === 'batches') { // the visitor is silent from now on: a question about it would be answered too
        const {leases} = hg;
        await until('batches without the visitor', () => hg.leases > leases + 1);
      }
      assert.equal((await again.ask('/buy/complete', {}, 'POST')).body, '{"ended":true}');
      await until('the next one comes in', async () => {
        if (batches !== 'batches') await oldIsInside();
        return (await next.ask()).status === 200;
      });
      const {batch} = hg.asked;
      for (let i = 0; i < 5 || hg.asked.batch === batch; i++) { // one fails, or comes
        assert.equal(await oldIsInside(), false, 'both are inside');
        assert.equal((await next.ask()).status, 200);
      }
    } finally {
      hg.noBatches = false;
      for (const s of hg.sockets) s.destroy();
      await other.close();
    }
  }, new Judge(), {timeout: 10_000});
}
for (const batches of ['no batches', 'batches', 'no more batches']) endsElsewhere(batches);

beside('a crowd at two applications is never too many', 'http',
  'total_active_users: 5, new_users_per_minute: 6000, session_duration: 1h, checkout: {pass: true}',
  async ({hg, port}) => {
    const other = await start('http', hg.direct);
    try {
      const before = new Visitor(port, 1);
      await until('a batch with a lease', async () => (await before.ask()).status === 200 && hg.leases > 0);
      await before.ask('/buy/complete', {}, 'POST');
      const sessions = new Map(); // surely inside from the first answer until the last request is sent
      const ask = async (tab) => {
        const sent = performance.now();
        const answer = await tab.ask();
        const sub = answer.status === 200 ? JSON.parse(answer.body).sub : null;
        if (sub) {
          const was = sessions.get(sub) ?? {first: performance.now(), last: sent};
          sessions.set(sub, {first: was.first, last: Math.max(was.last, sent)});
        }
        return sub;
      };
      await Promise.all(Array.from({length: 20}, async (_, i) => {
        const tab = new Visitor(port, i + 10);
        const second = new Visitor(other.port, i + 10);
        second.jar = tab.jar;
        const sub = await until(`${i} comes in`, () => ask(tab));
        for (let k = 0; k < 5; k++) assert.deepEqual([await ask(tab), await ask(second)], [sub, sub]);
        const ends = second.ask('/buy/complete', {}, 'POST');
        let now = sub;
        while (now === sub) {
          await sleep(10);
          now = await ask(tab);
        }
        await ends;
        if (now) await tab.ask('/buy/complete', {}, 'POST'); // a new session: nobody waited
      }));
      assert.ok(sessions.size >= 20);
      const moments = [...sessions.values()].filter((x) => x.first < x.last)
        .flatMap((x) => [[x.first, 1], [x.last, -1]]).sort((a, b) => a[0] - b[0]);
      let inside = 0;
      for (const [, change] of moments) {
        inside += change;
        assert.ok(inside <= 5, `${inside} are inside`);
      }
    } finally {
      await other.close();
    }
  });

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

// A flood takes the last file descriptor of the application: that says nothing of headgate.
test('the last file opens nothing', {timeout: 120_000}, async () => {
  const script = `
    import {once} from 'node:events';
    import {closeSync, openSync} from 'node:fs';
    import http from 'node:http';
    import {headgate} from 'headgate';
    const gate = headgate({decide: 'http://127.0.0.1:9', failOpen: true});
    const server = http.createServer(gate.listener((req, res) => res.end(req.headgate.admitted)));
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const agent = new http.Agent({keepAlive: true, maxSockets: 1});
    const ask = async () => {
      const req = http.get({agent, port: server.address().port, headers: {host: 'shop.example'}});
      const [res] = await once(req, 'response');
      let body = '';
      for await (const part of res) body += part;
      return res.statusCode + ' ' + body;
    };
    const said = [await ask()], files = [];
    for (;;) try { files.push(openSync('/dev/null')); } catch { break; }
    said.push(await ask());
    for (const file of files) closeSync(file);
    said.push(await ask());
    console.log(JSON.stringify(said));
    process.exit();`;
  const child = spawn('bash', ['-c', 'ulimit -n 120; exec "$0" --input-type=module -e "$1"', process.execPath, script],
    {stdio: ['ignore', 'pipe', 'inherit']});
  let out = '';
  for await (const part of child.stdout) out += part;
  const [down, full, again] = JSON.parse(out);
  assert.equal(down, '200 open'); // nobody listens
  assert.match(full, /^503 /);
  assert.equal(again, '200 open');
});
