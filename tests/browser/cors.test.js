// An app of another origin whose room is full: what its script can read, and what it cannot.
import assert from 'node:assert/strict';
import {once} from 'node:events';
import http from 'node:http';
import {after, before, test} from 'node:test';
import {arrive, fill, openBrowser, startRoom} from './room.js';

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

// app serves an empty page of an origin of its own.
async function app(t) {
  const server = http.createServer((_, response) => {
    response.setHeader('Content-Type', 'text/html; charset=utf-8');
    response.end('<!doctype html><html lang="en"><title>App</title>');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.closeAllConnections() ?? server.close());
  return `http://127.0.0.1:${server.address().port}`;
}

// ask fetches as the script of the page does, and says what it can read.
const ask = (page, url, method, headers) => page.evaluate(async ([url, method, headers]) => {
  try {
    const r = await fetch(url, {method, headers, credentials: 'include'});
    const {status, headers: h} = r;
    return {status, state: h.get('Headgate-State'), after: h.get('Retry-After'), ...(await r.json()).headgate};
  } catch (fault) {
    return fault.message;
  }
}, [url, method, headers]);

test('the app of another origin reads that it must wait', async (t) => {
  const listed = await app(t), other = await app(t);
  const room = await startRoom(t, {cors: {
    origins: [listed], methods: ['GET', 'PUT'], headers: ['x-member', 'headgate-poll'], credentials: true,
  }});
  await fill(t, browser, room);
  const {page} = await arrive(t, browser, listed);
  const json = {'Accept': 'application/json'};
  const tickets = new Set();
  for (const [method, headers] of [
    ['GET', json], ['PUT', {...json, 'X-Member': '1'}], ['GET', {...json, 'X-Member': '1'}],
  ]) {
    const got = await ask(page, room.url, method, headers);
    assert.deepEqual([got.status, got.state, Number(got.after) > 0], [503, 'waiting', true], `${method}: ${got}`);
    tickets.add(got.ticket);
  }
  assert.equal(tickets.size, 1, 'one place for all of them');
  assert.equal((await ask(page, room.url, 'GET', {'Headgate-Poll': '1'})).status, 200);
  const refused = 'Failed to fetch';
  assert.equal(await ask(page, room.url, 'DELETE', json), refused, 'a method that is not listed');
  assert.equal(await ask(page, room.url, 'GET', {...json, 'X-Other': '1'}), refused, 'a header that is not listed');
  const stranger = await arrive(t, browser, other);
  assert.equal(await ask(stranger.page, room.url, 'GET', json), refused, 'an origin that is not listed');
});
