// Changes of a room: what will happen, in figures; doing it; taking it back.
import {act, count, duration, plural, seconds, span, upper} from './dom.js';
import {live, read, write} from './net.js';

const path = (name) => `/v1/rooms/${encodeURIComponent(name)}`;

// drain says how long a line of n takes at a pace.
const drain = (n, perMinute) => span(60 * n / perMinute);

// effects say what a change will do to a room as it is now.
export function effects(room, pairs) {
  const lines = [];
  const {active, waiting, limit, per_minute: pace} = room;
  const moves = `${count(waiting)} wait, up to ${count(pace)} a minute come in`;
  const perMinute = Number(pairs.new_users_per_minute ?? pace);
  const most = Number(pairs.total_active_users ?? limit);
  if ('total_active_users' in pairs) {
    lines.push(`Users at once: ${count(limit)} → ${pairs.total_active_users}.`);
    if (most < active) {
      lines.push(`${plural(active, 'visitor is', 'visitors are')} inside and stay. Nobody new comes in until ${count(active - most)} of them have left.`);
    } else if (waiting) {
      const free = Math.min(waiting, most - active);
      lines.push(`${plural(free, 'slot is', 'slots are')} then free for the ${count(waiting)} who wait: at ${count(perMinute)} a minute filled in ${drain(free, perMinute)}.`);
    } else {
      lines.push(`${plural(active, 'visitor is', 'visitors are')} inside, nobody waits: nobody notices.`);
    }
  }
  if ('new_users_per_minute' in pairs) {
    lines.push(`New users a minute: ${count(pace)} → ${pairs.new_users_per_minute}.`);
    if (waiting) {
      lines.push(`The ${count(waiting)} who wait need at least ${drain(waiting, perMinute)} to come in, instead of ${drain(waiting, pace)}.`);
    }
  }
  if ('session_duration' in pairs) {
    lines.push(`A visit ends ${pairs.session_duration} after its last request, instead of ${duration(seconds(room.session))}. It holds for visits from their next request on.`);
  }
  if (pairs.queue_all === true) {
    lines.push(`Nobody new is let in. ${plural(active, 'visitor')} inside stay, ${count(waiting)} who wait keep their places, and whoever comes joins the line.`);
  }
  if (pairs.queue_all === false) lines.push(`The line moves again: ${moves}, while fewer than ${count(limit)} are inside.`);
  if (pairs.closed === true) lines.push(`The room is shut: nobody new gets a place or is called. ${count(waiting)} who wait read your message; ${count(active)} inside stay until they leave.`);
  if (pairs.closed === false) lines.push(`The room opens: ${moves}.`);
  if (pairs.suspended === true) lines.push(`The room is off: ${count(waiting)} who wait and everybody who comes pass at once, without any limit. Only do this when the origin bears it: when the room is on again they wait again.`);
  if (pairs.suspended === false) lines.push(`The room is on again: at most ${count(limit)} at once and ${count(pace)} new a minute.`);
  if ('message' in pairs) {
    lines.push(pairs.message ? `${plural(waiting, 'visitor')} who wait read within seconds: “${pairs.message}”` : `The message is taken away for ${plural(waiting, 'visitor')} who wait.`);
  }
  return lines;
}

// change asks, does, and offers the inverse. done is called when it is in force, and when it is taken back.
export const change = (name, title, pairs, done) => act(title, effects(live.rooms.get(name), pairs), async () => {
  const before = await read(path(name));
  before.suspended = before.status === 'suspended';
  await write('PATCH', path(name), pairs);
  done();
  return () => putBack(name, Object.fromEntries(Object.keys(pairs).map((k) => [k, before[k]]))).then(done);
}, {danger: pairs.closed || pairs.queue_all || pairs.suspended});

// putBack sets keys to what they were; undo takes a change of the API back by its version.
const putBack = (name, pairs) => write('PATCH', path(name), pairs);
export const undo = (version) => write('POST', `/v1/history/${version}/undo`);

// inverse is what takes a line of the audit log back, or undefined.
export function inverse({result, what, before, after}) {
  if (result !== 'ok') return;
  const room = what.match(/^PATCH \/v1\/rooms\/([^/]+)$/);
  if (room && before) return () => putBack(room[1], before);
  if (after?.version && what.includes('/client/v4/')) return () => undo(after.version);
}

// sentence says in words what a line of the audit log has as method and path; a command stands as it is.
const verbs = {POST: 'made', PUT: 'set', PATCH: 'changed', DELETE: 'deleted', pause: 'paused', resume: 'resumed', redrive: 'let go again', undo: 'taken back', test: 'tested',
  reload: 'read again', rotate: 'replaced', anywhere: 'made the home', off: 'given up', preview: 'tried'};
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
