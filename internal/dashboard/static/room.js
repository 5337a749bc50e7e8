import {h, put, brief, button, clearWrong, count, different, duration, exact, faulty, field, formOf, limitFields, moment, seconds, span, table, takeBack, signIn, uri} from './dom.js';
import {ask, live, maybe, session} from './net.js';
import {chart} from './charts.js';
import {change, inverse, sentence} from './change.js';
import {badge, setBadge, state as shown, tilesOf} from './rooms.js';
import {page, past, whatIf} from './parts.js';
import {events, remove, rules} from './rules.js';

export function room(name, part = '') {
  const state = badge(), where = h('p.dim');
  const base = `#/rooms/${uri(name)}`;
  const tabs = [['', 'Live'], ['events', 'Events'], ['rules', 'Rules'], ['page', 'Waiting page'], ['past', 'Past'], ['whatif', 'What if']];
  const inner = {events, rules, page, past, whatif: whatIf}[part]?.(name) ?? liveRoom(name);
  const gone = h('p.note', {hidden: true}, 'This room does not exist, or your token may not read it. ', h('a', {href: '#/'}, 'All rooms'));
  const node = h('div', h('p.crumb', h('a', {href: '#/'}, 'Rooms'), ' / '),
    h('div.head', h('h1', name), state, where),
    h('nav.tabs', {'aria-label': 'About this room'}, tabs.map(([to, text]) =>
      h('a', {href: to ? `${base}/${to}` : base, 'aria-current': to === part ? 'page' : null}, text))), gone, inner.node);
  return {
    title: name, room: name, node,
    close: () => inner.close?.(),
    live(rooms) {
      const r = rooms.get(name);
      gone.hidden = Boolean(r);
      state.hidden = where.hidden = !r;
      inner.node.hidden = !r || inner.loading;
      if (!r) return;
      setBadge(state, r);
      put(where, `${r.host || 'all hosts'}${r.path === '/' ? '' : r.path} · ${r.method} · session ${duration(seconds(r.session))}${r.event ? ` · event ${r.event}` : ''}${r.shadow ? ' · shadow mode: no visitor has to wait' : ''}`);
      inner.live?.(r);
    },
  };
}

function why(r) {
  if (!r.waiting || shown(r)[0] !== 'queueing') return '';
  if (r.active >= r.limit) return ' all slots are in use';
  return r.minute >= r.per_minute ? ' the limit per minute is reached' : ' waiting for called visitors to return';
}

function liveRoom(name) {
  const tiles = tilesOf('Inside', 'Waiting', 'Longest wait', 'New in the last minute', 'Origin');
  const charts = [
    chart('Inside', [['active', 'users', 'area'], ['limit', 'limit', 'limit']]),
    chart('Waiting', [['waiting', 'in the line', 'area', 'warm']]),
    chart('New users in a minute', [['minute', 'admitted', 'area'], ['per_minute', 'limit', 'limit']]),
    chart('Origin latency', [['took', 'mean', 'line']], span),
    chart('Responses of the origin per second', [['answers', 'responses', 'area', 'calm'], ['errors', 'errors', 'bars', 'bad']]),
    chart('Found limit', [['limit', 'limit', 'area', 'calm'], ['found', 'found', 'limit'], ['knee', 'knee, requests/s', 'line'], ['signal', 'origin, % of target', 'line', 'warm']]),
  ];
  const found = charts.at(-1).node, search = found.appendChild(h('p.note'));
  const changed = h('div'), lines = h('div');
  const lone = h('p.note', {hidden: true}, 'Nearly all newcomers come from one address. If it is the address of a proxy, set trusted_proxies.');
  const steer = steering(name, refresh);
  const node = h('div', lone, h('div.tiles', tiles.map((t) => t.tile)), changed,
    h('div.split', h('section.charts', {'aria-label': 'Charts'}, charts.map((c) => c.node)), steer.node), lines);
  const keys = 'at active waiting minute limit per_minute answers errors took found knee signal'.split(' ');
  let past = Object.fromEntries(keys.map((k) => [k, []])), asked = '';
  const add = (r) => {
    if (past.at.at(-1) >= live.at) return;
    if (live.at - past.at.at(-1) > 3) asked = ''; // the page was hidden or disconnected
    past.at.push(live.at);
    for (const k of keys.slice(1)) past[k].push(k === 'took' && !r.answers ? null : r[k] ?? 0);
    if (past.at.length > 700) for (const k of keys) past[k].splice(0, 100);
  };
  async function load() {
    if (asked) return;
    asked = 'yes';
    try {
      const got = await ask('GET', `history?room=${uri(name)}`);
      got.took = got.took.map((t, i) => got.answers[i] ? t : null);
      past = got;
    } catch {
      asked = ''; // retry with the next update
    }
  }
  async function refresh() {
    const [about, log, history] = await Promise.all([maybe('/v1/status'), maybe('/v1/audit?count=400'),
      maybe(`/v1/history?room=${uri(name)}&count=1`)]);
    const of = about?.rooms.find((r) => r.name === name)?.live_changes;
    const made = history?.changes?.length;
    changed.replaceChildren(of ? h('p.note', h('b', 'Changed until the next reload: '),
      Object.entries(of.keys).map(([k, v]) => `${k} = ${v || '(none)'}`).join(', '), ` (by ${of.by}, ${moment(of.at)}). The file has other values: change the file to keep these.`) :
      made ? h('p.dim', 'Created by the management API: changes are permanent.') : '');
    const own = log?.entries.filter((e) => e.room === name).slice(0, 12);
    lines.replaceChildren(own?.length ? h('section', h('h2', 'Changes of this room'), auditTable(own, refresh)) : '');
  }
  const view = {
    node,
    loading: true, // avoids a layout shift
    live(r) {
      load();
      add(r);
      lone.hidden = !r.one_address;
      found.hidden = !r.search;
      put(search, r.search ?? '');
      const [inside, waiting, wait, fresh, origin] = tiles;
      put(inside.value, count(r.active));
      put(inside.rest, ` of ${brief(r.limit)}`);
      put(waiting.value, count(r.waiting));
      put(waiting.rest, why(r));
      put(wait.value, r.waiting ? span(r.wait) : '—');
      put(fresh.value, count(r.minute));
      put(fresh.rest, ` of ${brief(r.per_minute)}`);
      put(origin.value, !r.origin_up ? 'down' : r.answers ? span(r.took) : 'up');
      put(origin.rest, r.errors ? ` ${r.errors} bad` : '');
      for (const c of charts) c.draw(past);
      steer.live(r);
    },
  };
  refresh().finally(() => {
    view.loading = false;
    node.hidden = !live.rooms.has(name);
  });
  return view;
}

export function auditTable(entries, done) {
  const text = (pairs) => Object.entries(pairs ?? {}).filter(([k]) => !['version', 'limit', 'id'].includes(k)).map(([k, v]) => `${k} ${v === '' ? '(none)' : v}`).join(', ');
  const all = table('Audit log', ['When', 'Who', 'What', 'Change', 'Result', 'Undo'], entries.map((e) => {
    const back = session.may(e.room) && inverse(e);
    return [exact(e.at), e.name || e.who || '—', h('span', {title: e.what}, sentence(e)), [text(e.before) || '', e.before || e.after ? ' → ' : '', text(e.after) || text(e.asked)],
      e.result === 'ok' ? 'done' : e.result.replaceAll('_', ' '),
      back && button('Undo', () => takeBack(back).then(done), {'aria-label': `Undo ${sentence(e)} of ${exact(e.at)}`})];
  }));
  all.classList.add('log');
  return all;
}

function steering(name, done) {
  const may = session.may(name);
  const off = may ? {} : {disabled: true};
  const form = formOf('', limits, h('h3', 'Limits'),
    limitFields(off), field('session_duration', 'Session duration', off), h('button', off, 'Change limits'));
  const words = formOf('', (value) => change(name, value('message') ? 'Send message' : 'Remove the message', {message: value('message')}, after),
    h('h3', 'Message to waiting visitors'),
    field('message', 'Message', {kind: 'textarea', rows: 2, maxlength: 500, ...off}, 'Plain text; empty removes it'), h('button', off, 'Send message'));
  const buttons = {
    queue_all: ['Queue all visitors', 'Admit visitors again'], closed: ['Close the room', 'Open the room'],
    suspended: ['Suspend the room', 'Resume the room'],
  };
  const switches = Object.keys(buttons).map((key) => button('',
    () => change(name, switches[key].textContent, {[key]: !on[key]}, done), {name: key, ...off}));
  switches.forEach((b) => switches[b.name] = b);
  const on = {};
  let now, touched = new Set();
  const shownAs = (r) => ({total_active_users: String(r.limit), new_users_per_minute: String(r.per_minute),
    session_duration: duration(seconds(r.session))});
  for (const f of [form, words]) f.addEventListener('input', (event) => touched.add(event.target.name));
  const after = () => {
    touched = new Set();
    clearWrong(form);
    clearWrong(words);
    done();
  };
  function limits(value) {
    const pairs = different(shownAs(now), value);
    return faulty(form, ...Object.keys(pairs)) || change(name, 'Change limits', pairs, after);
  }
  const node = h('section.steer.card', {'aria-label': 'Change this room'}, h('h2', 'Change this room'),
    may ? '' : signIn('Read-only. '),
    form, h('div.stack', h('h3', 'Switches'), switches), words,
    h('div', button('Delete the room', () => remove(name), {class: 'danger', ...off})));
  return {
    node,
    live(r) {
      now = r;
      for (const [key, value] of Object.entries({...shownAs(r), message: r.message})) {
        const input = form.elements[key] ?? words.elements[key];
        if (!touched.has(key) && input.value !== value) input.value = value;
      }
      Object.assign(on, {queue_all: r.queue_all, closed: r.closed, suspended: r.status === 'suspended'});
      for (const key of Object.keys(buttons)) {
        put(switches[key], buttons[key][on[key] ? 1 : 0]);
        switches[key].classList.toggle('danger', !on[key]);
      }
    },
  };
}
