import assert from 'node:assert/strict';
import {once} from 'node:events';
import {readFileSync} from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import {test} from 'node:test';

import {headgate} from 'headgate';

const file = process.env.VECTORS ?? new URL('../../vectors.json', import.meta.url);
const vectors = JSON.parse(readFileSync(file, 'utf8'));
const bytes = (s) => Buffer.from(s, 'latin1').toString('latin1');

/** A place that records the questions and answers them. */
async function recorder(answer) {
  const asked = [];
  const server = http.createServer(async (req, res) => {
    const parts = [];
    for await (const part of req) parts.push(part);
    asked.push({method: req.method, url: req.url, raw: req.rawHeaders, body: Buffer.concat(parts).toString('latin1')});
    answer(req, res, asked.at(-1).body);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {asked, url: `http://127.0.0.1:${server.address().port}`,
    close: () => { server.close(); server.closeAllConnections(); }};
}

test('tokens', async (t) => {
  t.mock.timers.enable({apis: ['Date'], now: vectors.now * 1000});
  const at = await recorder((req, res) => { res.end(JSON.stringify(vectors.jwks)); });
  const gate = headgate({decide: at.url, rooms: vectors.rooms});
  let valid = 0;
  for (const x of vectors.tokens) {
    const claims = await gate.open(x.token);
    assert.equal(claims !== null, x.valid, x.name);
    valid += x.valid;
  }
  assert.ok(valid >= 3);
  assert.equal(at.asked.length, 1, 'the keys are fetched once');
  const any = headgate({decide: at.url});
  assert.equal((await any.open(vectors.tokens.find((x) => x.name === 'of another room').token)).aud, 'other');
  await gate.close();
  await any.close();
  at.close();
});

test('requests', async () => {
  const at = await recorder((_, res) => { res.statusCode = 418; res.end('answered'); });
  const gate = headgate({decide: at.url, proto: (req) => (req.socket.vector.tls ? 'https' : 'http')});
  let vector;
  const server = http.createServer(gate.listener(() => assert.fail('a request passes')));
  server.on('connection', (socket) => {
    const now = vector;
    Object.defineProperty(socket, 'vector', {value: now});
    Object.defineProperty(socket, 'remoteAddress', {value: now.peer || undefined});
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const low = (lines) => lines.map(([name, value]) => [name.toLowerCase(), value]);
  const sorted = (lines) => low(lines).sort(([a], [b]) => (a < b ? -1 : Number(a > b))); // stable
  for (vector of vectors.requests) {
    at.asked.length = 0;
    const socket = net.connect(server.address().port, '127.0.0.1');
    let text = '';
    socket.on('data', (part) => { text += part; });
    socket.write(vector.raw, 'latin1');
    while (!/^HTTP[^]*\r\n\r\n/.test(text)) await once(socket, 'data');
    socket.destroy();
    const status = Number(text.split(' ')[1]);
    if (!vector.question) {
      assert.deepEqual([status, at.asked.length], [vector.status, 0], vector.name);
      continue;
    }
    assert.equal(status, 418, `${vector.name}: ${text}`);
    const [q] = at.asked;
    const lines = [];
    for (let i = 0; i < q.raw.length; i += 2) lines.push([q.raw[i], q.raw[i + 1]]);
    const own = (name) => ['host', 'connection'].includes(name) || (name === 'content-length' && !vector.question.body) ||
      (name === 'content-length' && vector.question.body);
    assert.deepEqual(sorted(lines).filter(([name]) => !own(name)), sorted(vector.question.headers.map(([n, v]) => [n, bytes(v)])),
      vector.name);
    assert.deepEqual([q.method, q.url, q.body], [vector.question.method, '/connect', vector.question.body], vector.name);
  }
  server.close();
  await gate.close();
  at.close();
});

test('local and cookies', async () => {
  const {ownCookies, cookiesAfter, passesLocally} = await import(new URL('./question.js', import.meta.resolve('headgate')));
  for (const x of vectors.local) {
    assert.equal(passesLocally(x.folder, {method: x.method, uri: x.target, lines: x.headers}), x.local, JSON.stringify(x));
  }
  for (const x of vectors.cookies) {
    const found = ownCookies(x.lines.map((line) => ['Cookie', line]));
    assert.deepEqual(found, x.cookies);
    if (x.set_cookie) assert.deepEqual(cookiesAfter(found, x.set_cookie), x.after);
  }
  assert.equal(ownCookies([['Cookie', `__cfwaitingroom=${'x'.repeat(5000)}`]]), null);
});
