// A site within a page of another one, in a browser that keeps no cookies of third parties: the
// visitor waits there, keeps the place and is let in.
import assert from 'node:assert/strict';
import {once} from 'node:events';
import http from 'node:http';
import {after, before, test} from 'node:test';
import {arrive, fill, insecureHost, openBrowser, startRoom, until} from './room.js';

let browser;
before(async () => browser = await openBrowser('--test-third-party-cookie-phaseout'));
after(() => browser?.close());

// framed serves a page of another site that has the address in a frame.
async function framed(t, address) {
  const server = http.createServer((_, response) => {
    response.setHeader('Content-Type', 'text/html; charset=utf-8');
    response.end(`<!doctype html><html lang="en"><title>Outer</title><iframe src="${address}" title="Shop"></iframe>`);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.closeAllConnections() ?? server.close());
  return `http://${insecureHost}:${server.address().port}/`;
}

test('in a frame of another site', async (t) => {
  const room = await startRoom(t, {cookie_samesite: 'none', cookie_secure: 'always'});
  const inside = await fill(t, browser, room);
  const visitor = await arrive(t, browser, await framed(t, room.url));
  const frame = visitor.page.frameLocator('iframe');
  const says = () => frame.locator('h1').textContent({timeout: 1000}).catch(() => '');
  await until('it waits in the frame', async () => await says() == 'You are next');
  const ticket = await frame.locator('#ticket').textContent();
  await visitor.page.reload();
  await until('it waits again', async () => await says() == 'You are next');
  assert.equal(await frame.locator('#ticket').textContent(), ticket, 'another place after a reload');
  await inside[0].leave();
  await until('it is inside', async () => await says() == 'Inside');
  assert.deepEqual(visitor.faults, []);
});
