// What a proof of work costs a desktop and a phone, in a real Chromium: processor time, the time until it is
// solved, and the longest task of the page beside it. docs/challenge.md has its table: make solving
import os from 'node:os';
import {crowded, phone, traced} from './challenged.js';
import {fill, openBrowser, startRoom} from './room.js';

const visits = Number(process.argv[2] ?? 15);
const keys = 256; // that a solution takes on average

const ends = [];
const t = {after: (end) => ends.push(end)};
const people = await openBrowser();
// visit is one in a browser of its own: nothing is left of the last one.
const visit = async (room, slower, works) => {
  const browser = await openBrowser();
  try {
    return await traced(t, browser, room, slower, works);
  } finally {
    await browser.close();
  }
};
const median = (all) => all.toSorted((a, b) => a - b)[all.length >> 1];
try {
  const plain = await startRoom(t);
  await fill(t, people, plain);
  const rooms = {
    1000: await crowded(t, people, {join_limit: {amount: 0}}),
    // Two newcomers are a minute of admissions, and one of this network is its limit.
    4000: await crowded(t, people, {new_users_per_minute: 2, join_limit: {amount: 1}}),
  };
  console.log('| | iterations of a key | processor time | solved after | longest task of the page | without a challenge |');
  console.log('|---|---:|---:|---:|---:|---:|');
  for (const slower of [1, phone]) {
    const without = [];
    for (let i = 0; i < visits; i++) without.push((await visit(plain, slower, false)).longest);
    for (const [cost, room] of Object.entries(rooms)) {
      const all = [];
      for (let i = 0; i < visits; ) {
        const one = await visit(room, slower, true);
        if (!one.derived || one.cost != cost) continue; // too late, or the first of a rush
        all.push(one);
        i++;
      }
      // By luck a solution takes a few keys or a thousand: each figure is for the average.
      const derived = all.reduce((sum, v) => sum + v.derived, 0);
      const per = (of) => (all.reduce((sum, v) => sum + of(v), 0) / derived * keys).toFixed(2);
      console.log(`| ${slower > 1 ? `a phone, ${slower} times slower` : 'this machine'} | ` +
        `${Number(cost).toLocaleString('en')} | ${per((v) => v.computed)} s | ${per((v) => v.waited)} s | ` +
        `${median(all.map((v) => v.longest)).toFixed(0)} ms | ${median(without).toFixed(0)} ms |`);
    }
  }
  console.log(`\nMedians of ${visits} visits for tasks, on ${os.availableParallelism()} cores (${os.cpus()[0].model.trim()}).`);
} finally {
  for (const end of ends.reverse()) await Promise.resolve(end()).catch(() => {});
  await people.close();
}
