import assert from 'node:assert/strict';
import {test} from 'node:test';

import {headgate} from 'headgate';
import {nextMiddleware} from 'headgate/next';
import {NextRequest} from 'next/server.js';

import {Headgate} from './world.js';

test('a middleware of Next.js', {timeout: 60_000}, async () => {
  const hg = await new Headgate('total_active_users: 1, new_users_per_minute: 200, session_duration: 1h, checkout: {pass: true}').start();
  const gate = headgate({decide: hg.url});
  const middleware = nextMiddleware(gate);
  const ask = (path, headers, init = {}) => middleware(new NextRequest(`http://shop.example${path}`, {...init,
    headers: {host: 'shop.example', accept: 'text/html', 'x-forwarded-for': '198.51.100.1', ...headers}}));
  try {
    const first = await ask('/a?b=1');
    assert.equal(first.headers.get('x-middleware-next'), '1');
    assert.equal(first.headers.get('cache-control'), 'no-store');
    const [cookie] = first.headers.getSetCookie()[0].split(';');
    const second = await ask('/a', {cookie, 'headgate-pass': 'forged', headgate_pass: 'forged'});
    assert.match(second.headers.get('x-middleware-request-headgate-pass'), /^eyJ/);
    assert.equal(second.headers.get('x-middleware-request-headgate_pass'), null);
    const asked = hg.asked.connect;
    for (let i = 0; i < 10; i++) {
      const later = await ask(`/page/${i}`, {cookie});
      assert.equal(later.headers.get('x-middleware-next'), '1');
      assert.match(later.headers.get('x-middleware-request-headgate-pass'), /^eyJ/);
    }
    assert.equal(hg.asked.connect, asked);
    const other = await ask('/', {'headgate-pass': second.headers.get('x-middleware-request-headgate-pass')});
    assert.equal(other.status, 503);
    assert.equal(other.headers.get('x-middleware-next'), null);
    assert.match(await other.text(), /<html/);
    const poll = await ask('/', {'headgate-poll': '1', accept: 'application/json'});
    assert.equal(poll.status, 200);
    assert.equal((await poll.json()).cfWaitingRoom.inWaitingRoom, true);
    const form = await ask('/.headgate/leave', {'content-type': 'application/x-www-form-urlencoded', 'content-length': '7',
      'sec-fetch-site': 'same-origin', origin: 'http://shop.example'}, {method: 'POST', body: 'place=x', duplex: 'half'});
    assert.equal(form.status, 303);
    const preflight = await ask('/', {origin: 'https://a.example', 'access-control-request-method': 'PUT', cookie}, {method: 'OPTIONS'});
    assert.deepEqual([preflight.status, preflight.headers.get('x-middleware-next')], [204, null]);
    await hg.kill();
    assert.equal((await ask('/', {cookie})).headers.get('x-middleware-next'), '1');
    const down = await ask('/');
    assert.deepEqual([down.status, down.headers.get('retry-after')], [503, '5']);
  } finally {
    await gate.close();
    await hg.close();
  }
});
