import {h, put, brief, count, faulty, field, formOf, limitFields, link, say, seconds, span, sure, table, wrongAt, signIn, uri} from './dom.js';
import {live, maybe, read, session, write} from './net.js';
import {undo} from './change.js';

export function state(r) {
  if (r.damaged) return ['damaged', 'bad', 0];
  if (!r.origin_up) return ['origin down', 'bad', 1];
  if (r.refuses) return ['disk error', 'bad', 2];
  if (r.closed) return ['closed', 'warn', 3];
  if (r.queue_all) return ['queue all', 'warn', 4];
  if (r.status === 'event_prequeueing') return ['prequeue', 'event', 5];
  if (r.status === 'queueing') return ['queueing', 'warn', 6];
  if (r.status === 'suspended') return ['suspended', 'off', 9];
  if (r.active >= r.limit * 0.9) return ['nearly full', 'event', 7];
  if (r.event) return ['event', 'event', 8];
  return ['not queueing', 'good', 10];
}

export const badge = () => h('span.badge');
export function setBadge(e, r) {
  const [word, tone] = state(r);
  put(e, word);
  e.className = `badge ${tone}`;
}

const heads = ['Inside', 'Waiting', 'Longest wait', 'New per minute', 'Origin'];
function line(name) {
  const e = {badge: badge(), active: h('b'), limit: h('span.dim'), waiting: h('b'), wait: h('span'),
    minute: h('b'), pace: h('span.dim'), origin: h('span'), where: h('span.dim'), fill: h('i')};
  const meter = h('span.bar', {'aria-hidden': 'true'}, e.fill);
  const row = h('tr', h('th', {scope: 'row'}, link('rooms', name), e.where),
    h('td', e.badge), [[e.active, e.limit, meter], e.waiting, e.wait, [e.minute, e.pace], e.origin].map((kids, i) => h('td.n', {'data-label': heads[i]}, kids)));
  return {
    row,
    show(r) {
      setBadge(e.badge, r);
      put(e.where, (r.host || 'all hosts') + (r.path === '/' ? '' : r.path));
      put(e.active, brief(r.active));
      put(e.limit, ` of ${brief(r.limit)}`);
      e.fill.style.width = `${Math.min(100, 100 * r.active / r.limit)}%`;
      meter.className = `bar${r.active >= r.limit * 0.9 ? ' high' : ''}`;
      put(e.waiting, brief(r.waiting));
      put(e.wait, r.waiting ? span(r.wait) : '—');
      put(e.minute, brief(r.minute));
      put(e.pace, ` of ${brief(r.per_minute)}`);
      put(e.origin, !r.origin_up ? 'down' : r.took ? `${span(r.took)}${r.errors ? `, ${r.errors} bad` : ''}` : '—');
    },
  };
}

export const tilesOf = (...labels) => labels.map((label) => {
  const value = h('b', '–'), rest = h('span.dim');
  return {value, rest, tile: h('div.tile', h('div', value, rest), h('span', label))};
});

export function rooms() {
  const lines = new Map();
  const sums = tilesOf('Inside', 'Waiting', 'New in the last minute', 'Need attention');
  let failing = []; // queues
  const look = async () => {
    if (!document.hidden) failing = ((await maybe('/v1/queues'))?.queues ?? []).filter((q) => q.failing);
    sums[3].rest.replaceChildren(...failing.slice(0, 3).flatMap((q) => [' ', link('queues', q.name)]));
  };
  look();
  const timer = setInterval(look, 5000);
  const search = h('input', {type: 'search', id: 'find', placeholder: 'Find a room', 'aria-label': 'Find a room'});
  const body = h('tbody');
  const none = h('p.note', {hidden: true}, 'There are no rooms yet. ', h('a', {href: '#/new'}, 'Create one'), ' with five fields.');
  const list = table('All rooms', ['Room', 'State', ...heads], []);
  list.querySelector('tbody').replaceWith(body);
  list.classList.add('rooms');
  const node = h('div', h('div.head', h('h1', 'Rooms'), search, h('a.button.main', {href: '#/new'}, 'New room')),
    h('div.tiles', sums.map((s) => s.tile)), list, none);
  let order = '';
  function update(all) {
    const words = search.value.trim().toLowerCase();
    const chosen = [...all.values()].filter((r) => !words || `${r.name} ${r.host}${r.path}`.toLowerCase().includes(words));
    chosen.sort((a, b) => state(a)[2] - state(b)[2] || a.name.localeCompare(b.name, 'en', {numeric: true}));
    for (const name of lines.keys()) if (!all.has(name)) lines.delete(name);
    for (const r of chosen) {
      if (!lines.has(r.name)) lines.set(r.name, line(r.name));
      lines.get(r.name).show(r);
    }
    const wanted = chosen.map((r) => r.name).join('\n');
    if (wanted !== order) {
      order = wanted;
      const focus = document.activeElement;
      body.replaceChildren(...chosen.map((r) => lines.get(r.name).row));
      if (body.contains(focus)) focus.focus();
    }
    const rows = [...all.values()];
    const sum = (f) => rows.reduce((n, r) => n + f(r), 0);
    [sum((r) => r.active), sum((r) => r.waiting), sum((r) => r.minute), failing.length + sum((r) => state(r)[2] < 5 ? 1 : 0)]
      .forEach((n, i) => put(sums[i].value, brief(n)));
    none.hidden = rows.length > 0;
    list.hidden = rows.length === 0;
    search.hidden = rows.length < 8;
  }
  search.addEventListener('input', () => update(live.rooms));
  return {title: 'Rooms', node, live: update, close: () => clearInterval(timer)};
}

const made = new Set(); // created here, perhaps not in the stream yet

function nameOf(place, n = 1) {
  const name = (place.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-+|-+$/g, '').slice(0, 60) || 'room') + (n > 1 ? `-${n}` : '');
  return live.rooms.has(name) || made.has(name) ? nameOf(place, n + 1) : name;
}

export function create() {
  const form = formOf('.card', submit, h('h1', 'New room'),
    h('p', 'Five fields. The room takes effect when you confirm it, and you can undo it.'),
    field('host', 'Host', {placeholder: 'shop.example.com', required: true}, 'As in the address of the site, without https://'),
    field('path', 'Path', {value: '/', required: true}, 'This path and all below it'),
    h('div.pair', limitFields({required: true}, 'About 75 % of what your site can handle', 'At most this many in any 60 s')),
    field('session_duration', 'Session duration', {value: '5m', required: true}, 'Visitors idle this long are treated as gone: 5m, 90s, 1h'),
    h('details', h('summary', 'Use a different origin'),
      field('origin', 'Origin', {placeholder: 'http://127.0.0.1:3000'}, 'The site behind the room; empty: the origin of its zone')),
    h('div.row', h('button.main', 'Create the room'), h('a.button', {href: '#/'}, 'Cancel')));
  if (!session.may()) {
    form.prepend(signIn());
  }
  async function submit(value) {
    if (!value('host')) wrongAt(form, 'host', 'is missing. Write, for example, shop.example.com');
    if (faulty(form, 'total_active_users', 'new_users_per_minute', 'session_duration')) return;
    const body = {
      name: nameOf(value('host') + value('path')), host: value('host') || undefined, path: value('path') || '/',
      total_active_users: Number(value('total_active_users')), new_users_per_minute: Number(value('new_users_per_minute')),
      headgate: {session_seconds: seconds(value('session_duration'))},
    };
    if (value('origin')) body.headgate.origin = value('origin');
    const {total_active_users: most, new_users_per_minute: pace} = body;
    const ok = await sure('Create this room?', [
      `${body.host}${body.path}: at most ${count(most)} at once, at most ${count(pace)} new in any minute.`,
      `In a rush, an empty site is full after ${span(60 * most / pace)}; after that, one visitor is admitted for each that leaves.`,
      `Visitors idle for ${value('session_duration')} are treated as gone. Visitors above the limits wait in line, in order.`], 'Create');
    if (!ok) return;
    const {zones} = await read('/v1/zones');
    const zone = zones.filter((z) => body.host === z.name || body.host.endsWith(`.${z.name}`))
      .sort((a, b) => b.name.length - a.name.length)[0] ?? {id: 'default'};
    const {result} = await write('POST', `/client/v4/zones/${uri(zone.id)}/waiting_rooms`, body);
    made.add(result.name);
    location.hash = `#/rooms/${uri(result.name)}`;
    say(`Done: ${result.name} is created.${result.headgate.in_force ? '' : ` Not in force: ${result.headgate.problem}`}`,
      () => undo(result.headgate.version).then(() => location.hash = '#/'));
  }
  return {title: 'New room', node: form};
}

