import {act, count, duration, plural, seconds, span, upper, uri} from './dom.js';
import {live, read, write} from './net.js';

const path = (name) => `/v1/rooms/${uri(name)}`;

const drain = (n, perMinute) => span(60 * n / perMinute);

export function effects(room, pairs) {
  const lines = [];
  const {active, waiting, limit, per_minute: pace} = room;
  const moves = `${plural(waiting, 'visitor waits', 'visitors wait')}, up to ${count(pace)} are admitted per minute`;
  const perMinute = Number(pairs.new_users_per_minute ?? pace);
  const most = Number(pairs.total_active_users ?? limit);
  if ('total_active_users' in pairs) {
    lines.push(`Users at once: ${count(limit)} → ${pairs.total_active_users}.`);
    if (most < active) {
      lines.push(`${plural(active, 'visitor is', 'visitors are')} inside and stay. No new visitors are admitted until ${count(active - most)} of them have left.`);
    } else if (waiting) {
      const free = Math.min(waiting, most - active);
      lines.push(`${plural(free, 'slot is', 'slots are')} then free for the ${count(waiting)} waiting: at ${count(perMinute)} per minute, they fill in ${drain(free, perMinute)}.`);
    } else {
      lines.push(`${plural(active, 'visitor is', 'visitors are')} inside, none wait: visitors notice nothing.`);
    }
  }
  if ('new_users_per_minute' in pairs) {
    lines.push(`New users per minute: ${count(pace)} → ${pairs.new_users_per_minute}.`);
    if (waiting) {
      lines.push(`Admitting the ${count(waiting)} waiting takes at least ${drain(waiting, perMinute)}, instead of ${drain(waiting, pace)}.`);
    }
  }
  if ('session_duration' in pairs) {
    lines.push(`A session ends ${pairs.session_duration} after its last request, instead of ${duration(seconds(room.session))}. It applies to each session from its next request on.`);
  }
  if (pairs.queue_all === true) {
    lines.push(`No new visitors are admitted. ${plural(active, 'visitor')} inside stay, ${count(waiting)} waiting keep their places, and newcomers join the line.`);
  }
  if (pairs.queue_all === false) lines.push(`The line moves again: ${moves}, while fewer than ${count(limit)} are inside.`);
  if (pairs.closed === true) lines.push(`The room is closed: newcomers get no place and no visitors are called. ${count(waiting)} waiting see your message; ${count(active)} inside stay until they leave.`);
  if (pairs.closed === false) lines.push(`The room opens: ${moves}.`);
  if (pairs.suspended === true) lines.push(`The room is off: ${count(waiting)} waiting and all newcomers pass at once, without any limit. Do this only if the origin can handle it. When you resume the room, visitors wait again.`);
  if (pairs.suspended === false) lines.push(`The room is on again: at most ${count(limit)} at once and ${count(pace)} new per minute.`);
  if ('message' in pairs) {
    lines.push(pairs.message ? `${plural(waiting, 'waiting visitor sees', 'waiting visitors see')} within seconds: “${pairs.message}”` : `The message is removed for ${plural(waiting, 'waiting visitor')}.`);
  }
  return lines;
}

// change confirms and applies a change, and offers undo. It calls done after both.
export const change = (name, title, pairs, done) => act(title, effects(live.rooms.get(name), pairs), async () => {
  const before = await read(path(name));
  before.suspended = before.status === 'suspended';
  await write('PATCH', path(name), pairs);
  done();
  return () => putBack(name, Object.fromEntries(Object.keys(pairs).map((k) => [k, before[k]]))).then(done);
}, {danger: pairs.closed || pairs.queue_all || pairs.suspended});

const putBack = (name, pairs) => write('PATCH', path(name), pairs);
export const undo = (version) => write('POST', `/v1/history/${version}/undo`);

export function inverse({result, what, before, after}) {
  if (result !== 'ok') return;
  const room = what.match(/^PATCH \/v1\/rooms\/([^/]+)$/);
  if (room && before) return () => putBack(room[1], before);
  if (after?.version && what.includes('/client/v4/')) return () => undo(after.version);
}

const verbs = {POST: 'created', PUT: 'set', PATCH: 'changed', DELETE: 'deleted', pause: 'paused', resume: 'resumed', redrive: 'retried', undo: 'undone', test: 'tested',
  reload: 'reloaded', rotate: 'rotated', anywhere: 'made the home', off: 'declared off', preview: 'previewed'};
const parts = {events: 'event of', rules: 'rule of', keys: 'key of', jobs: 'jobs of', dead: 'dead jobs of', redrive: 'dead jobs of'};
const kinds = {history: 'change', reload: 'file', cluster: 'data center'};
export function sentence({what, room}) {
  const [method, , api, ...path] = what.split(/[ /]/);
  if (!['v1', 'client'].includes(api)) return what;
  let [kind, name = '', part] = path;
  if (api === 'client') [kind, name, part] = verbs[path[4]] ? ['page', '', path[4]] : path[4] === 'settings' ? ['settings of zone', path[2]] : ['room', room, path[5]];
  const own = ['keys', 'cluster'].includes(kind) && verbs[name];
  return upper([parts[part], kinds[kind] ?? kind.replace(/s$/, ''), own ? '' : name, own || verbs[part] || verbs[kind] || verbs[method]].filter(Boolean).join(' '));
}
