// What the tests of challenges share: a room in which a newcomer needs a solution.
import assert from 'node:assert/strict';
import {arrive, fill, patience, startRoom, until} from './room.js';

// crowded is a room in which two are inside and one waits: the next newcomer needs a solution. The one
// that waits has its place without one, whatever it has computed.
export async function crowded(t, browser, room = {}) {
  const shop = await startRoom(t, {challenge: {kind: 'work'}, new_users_per_minute: 6000, ...room});
  const inside = await fill(t, browser, shop);
  const first = await arrive(t, browser, shop.url);
  shop.state = () => stateOf(shop);
  await until('one waits', async () => (await shop.state()).waiting_users == 1);
  if (!room.page) { // so that what is solved from now on is that of others
    await first.page.waitForResponse(async (answer) => answer.request().headers()['headgate-poll'] &&
      (await answer.json()).headgate.challenge === null);
  }
  return {...shop, inside, first, solved: (await shop.state()).challenges.solved};
}

export const stateOf = async (room) => (await (await fetch(`${room.admin}/v1/rooms`)).json()).rooms[0];

export const lane = (state) => state.lanes?.find((l) => l.name == 'unsolved')?.waiting ?? 0;

// solves lets newcomers come, one after the other, until one has solved its challenge in time, and returns
// that one. How many are needed depends on the machine and on luck; what is judged is where each waits.
export async function solves(room, visit, within = patience) {
  const end = Date.now() + within;
  for (let late = 0; ; late++) {
    assert.ok(Date.now() < end, `none of ${late} newcomers has solved its challenge`);
    const visitor = await visit();
    const ordinary = (state) => state.waiting_users - lane(state) == 2;
    let state;
    await until('it waits', async () => ordinary(state = await room.state()) || lane(state) > late, within);
    const {solved, refused} = state.challenges;
    assert.deepEqual([refused.foreign, refused.malformed, refused.wrong], [0, 0, 0]);
    if (ordinary(state)) {
      assert.ok(solved > room.solved, 'a place for nothing');
      return visitor;
    }
    await visitor.context.close();
  }
}
