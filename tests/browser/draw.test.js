// A draw as those see it who wait for it: the page that is open shows the hash before the start and
// what the order can be checked by after it. It is checked by what docs/events.md says, and no more.
import assert from 'node:assert/strict';
import {createHash} from 'node:crypto';
import {after, before, test} from 'node:test';
import {arrive, fill, heading, number, openBrowser, startRoom, until} from './room.js';

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

const sha256 = (...parts) => createHash('sha256').update(Buffer.concat(parts)).digest();

// rank is the place that a ticket was drawn, from 0.
function rank(seed, first, end, ticket) {
  const n = end - first;
  let width = Math.max(8, n > 1 ? Math.floor(Math.log2(n - 1)) + 1 : 0);
  width += width % 2;
  const half = BigInt(width / 2), mask = (1n << half) - 1n;
  let x = BigInt(ticket - first);
  do {
    let [left, right] = [x >> half, x & mask];
    for (let i = 0; i < 10; i++) {
      const block = Buffer.alloc(8);
      block.writeBigUInt64BE(right);
      const f = sha256(seed, Buffer.of(i), block).readBigUInt64BE();
      [left, right] = [right, (left ^ f) & mask];
    }
    x = left << half | right;
  } while (x >= n);
  return Number(x);
}

test('everybody can check their place on the page', async (t) => {
  const begins = Date.now() + 25_000; // by then the room is full, on a busy machine too
  const at = (ms) => new Date(ms).toISOString();
  const room = await startRoom(t, {events: [{name: 'sale', shuffle: true,
    prequeue_start: at(begins), start: at(begins + 30_000), end: at(begins + 600_000)}]});
  await fill(t, browser, room);
  await until('the prequeue', () => Date.now() > begins + 1000);
  const all = await Promise.all([...Array(5)].map(() => arrive(t, browser, room.url)));
  const draw = (v) => v.page.locator('#draw').textContent();
  const hash = await draw(all[0]);
  for (const v of all) {
    assert.equal(await heading(v.page), 'Not open yet');
    assert.equal(await draw(v), hash);
    assert.match(hash, /^[0-9a-f]{64}$/);
  }
  await Promise.all(all.map((v) => until('it is drawn', async () => (await draw(v)).includes('/'), 60_000)));
  const places = [];
  for (const v of all) {
    const [, seed, first, end, ticket] = /^(\w{64})\/(\d+)\/(\d+) #(\d+)$/.exec(await draw(v));
    assert.equal(sha256(Buffer.from(seed, 'hex')).toString('hex'), hash, 'another seed than was promised');
    assert.equal(end - first, all.length);
    await until('the place of the draw', async () =>
      await number(v.page, 'position') == rank(Buffer.from(seed, 'hex'), +first, +end, +ticket) + 1);
    places.push(await number(v.page, 'position'));
  }
  assert.deepEqual(places.sort(), [1, 2, 3, 4, 5]);
  assert.deepEqual(all.flatMap((v) => v.faults), []);
});
