// Parts of a room: events, its page, and what would have happened.
import {h, below, cells, clearWrong, count, duration, explain, failed, faulty, field, moment, say, seconds, span, sure, table, wrongAt} from './dom.js';
import {Problem, ask, live, maybe, read, session, write} from './net.js';
import {chart} from './charts.js';
import {undo} from './change.js';

// made finds the room of the management API by its name; file says that it is of the file.
export async function made(name) {
  const all = await read('/client/v4/accounts/all/waiting_rooms?per_page=1000');
  const found = all.result.find((r) => r.name === name);
  if (!found) throw new Problem(404, {code: 'gone'}); // the view says so
  return {...found, file: found.headgate.source === 'file', path: `/client/v4/zones/${encodeURIComponent(found.headgate.zone)}/waiting_rooms/${found.id}`};
}

export const ofFile = (key) => h('p.note', {}, `This room is of the configuration file. Its ${key} can be changed there alone; then reload.`);

export const undoable = (text, version, done) => version ? say(text, 'Undo', () => undo(version, done)) : say(text);

// versionOf is the newest change of a room.
export const versionOf = async (name) => (await maybe(`/v1/history?room=${encodeURIComponent(name)}&count=1`))?.changes?.[0]?.version;

export function events(name) {
  const list = h('div', {}), place = h('div', {});
  const node = h('section', {}, h('h2', {}, 'Events'), list, place);
  let room;
  async function refresh() {
    room = await made(name);
    const may = !room.file && session.may('write', name);
    const {result} = await read(`${room.path}/events?per_page=100`);
    list.replaceChildren(room.file ? ofFile('events') : '', result.length ? table('Events', ['Name', 'Prequeue', 'Start', 'End', 'Limits', 'Steer'], result.map((e) =>
      cells(e.name, e.prequeue_start_time ? moment(e.prequeue_start_time) : '—', moment(e.event_start_time), moment(e.event_end_time),
        (e.total_active_users ? `${count(e.total_active_users)} at once, ${count(e.new_users_per_minute)} a minute` : 'those of the room') + (e.shuffle_at_event_start ? ', drawn by lot' : '') + (e.headgate.every_seconds ? `, every ${span(e.headgate.every_seconds)}` : '') + (e.suspended ? ', off' : ''),
        may ? h('button', {type: 'button', 'aria-label': `Delete ${e.name}`, onclick: () => remove(e)}, 'Delete') : ''))) :
      h('p', {}, 'No event is planned.'));
    if (may && !place.firstChild) place.append(form);
  }
  async function remove(e) {
    if (!await sure(`Delete ${e.name}?`, [`From ${moment(e.event_start_time)} to ${moment(e.event_end_time)} the room then has its own limits.`], 'Delete it', true)) return;
    try {
      await write('DELETE', `${room.path}/events/${e.id}`);
      undoable(`Done: ${e.name} is deleted.`, await versionOf(name), refresh);
    } catch (problem) {
      failed(problem);
    }
    refresh();
  }
  const time = {type: 'datetime-local', required: true};
  const form = h('form.card', {novalidate: true, onsubmit: submit}, h('h3', {}, 'New event'),
    field('name', 'Name', {required: true}, 'Letters, digits, - and _'),
    h('div.pair', {}, field('event_start_time', 'Start', time, 'In your time zone'), field('event_end_time', 'End', time)),
    h('div.pair', {}, field('prequeue_start_time', 'Prequeue from', {type: 'datetime-local'}, 'Everybody waits from then on; 5 min before the start at least'),
      field('shuffle_at_event_start', 'At the start', {kind: 'select', options: [['false', 'In order'], ['true', 'Drawn by lot']]})),
    h('div.pair', {}, field('total_active_users', 'Users at once', {inputmode: 'numeric'}, 'Empty: those of the room'),
      field('new_users_per_minute', 'New users a minute', {inputmode: 'numeric'})),
    below(), h('button.main', {}, 'Plan the event'));
  async function submit(event) {
    event.preventDefault();
    clearWrong(form);
    const value = (key) => form.elements[key].value.trim();
    const at = (key) => value(key) ? new Date(value(key)).toISOString() : undefined;
    const number = (key) => /^\d+$/.test(value(key)) ? Number(value(key)) : value(key) || undefined;
    const body = {name: value('name') || undefined, event_start_time: at('event_start_time'), event_end_time: at('event_end_time'),
      prequeue_start_time: at('prequeue_start_time'), shuffle_at_event_start: value('shuffle_at_event_start') === 'true',
      total_active_users: number('total_active_users'), new_users_per_minute: number('new_users_per_minute')};
    const bad = ['name', 'event_start_time', 'event_end_time'].filter((key) => !body[key]);
    for (const key of bad) wrongAt(form, key, 'is missing. Fill it in');
    if (faulty(form, ...['total_active_users', 'new_users_per_minute'].filter(value))) return;
    const lines = [`From ${moment(body.event_start_time)} to ${moment(body.event_end_time)}.`];
    if (body.prequeue_start_time) lines.push(`From ${moment(body.prequeue_start_time)} on nobody new is let in; who comes waits${body.shuffle_at_event_start ? ' and is drawn by lot at the start' : ' in order'}.`);
    if (!await sure(`Plan ${body.name}?`, lines, 'Plan it')) return;
    try {
      await write('POST', `${room.path}/events`, body);
      form.reset();
      undoable(`Done: ${body.name} is planned.`, await versionOf(name), refresh);
      refresh();
    } catch (problem) {
      explain(form, problem);
    }
  }
  refresh().catch(failed);
  return {node};
}

export function page(name) {
  const frame = h('iframe', {title: 'Preview of the waiting page', sandbox: '', loading: 'lazy'});
  const look = h('form.row', {novalidate: true},
    field('state', 'State', {kind: 'select', options: ['waiting', 'full', 'queue_all', 'closed', 'opens_at', 'down', 'called', 'limited', 'left'].map((s) => [s, s.replaceAll('_', ' ')])}),
    field('language', 'Language', {value: 'en-US'}, 'such as de, ja, ar'), field('position', 'Position', {value: '1205', inputmode: 'numeric'}));
  const own = h('div', {});
  const node = h('section', {}, h('h2', {}, 'Waiting page'), look, frame, own);
  let room, preview = '', turns = 0;
  const query = () => new URLSearchParams(Object.entries(Object.fromEntries(new FormData(look))).filter(([, v]) => v)).toString();
  async function show() {
    clearWrong(look);
    const address = `${preview || `api/v1/rooms/${encodeURIComponent(name)}/preview`}?${query()}`;
    const turn = ++turns; // answers may overtake each other
    try { // a mistake in the parameters is an answer in words
      await ask('GET', address);
      if (turn === turns) frame.src = address;
    } catch (problem) {
      if (turn !== turns) return;
      const key = ['state', 'language', 'position'].find((k) => problem.message.startsWith(k)) ?? 'state';
      wrongAt(look, key, problem.message);
    }
  }
  look.addEventListener('change', show);
  look.addEventListener('submit', (event) => { event.preventDefault(); show(); });
  const form = h('form.card', {novalidate: true}, h('h3', {}, 'A page of its own'),
    field('custom_page_html', 'HTML with the tags of docs/pages.md; empty: the default page', {kind: 'textarea', rows: 12, spellcheck: 'false'}),
    below(), h('div.row', {}, h('button', {type: 'button', onclick: tryIt}, 'Preview it'), h('button.main', {}, 'Put it in force')));
  async function tryIt() {
    clearWrong(form);
    const html = form.elements.custom_page_html.value;
    try {
      preview = '';
      if (html.trim()) {
        const {result} = await write('POST', `${room.path.replace(/\/[^/]+$/, '')}/preview`, {custom_html: html});
        preview = new URL(result.preview_url).pathname;
      }
      await show();
      frame.scrollIntoView({block: 'nearest'});
    } catch (problem) {
      explain(form, problem, {'/custom_html': 'custom_page_html'});
    }
  }
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    clearWrong(form);
    const waiting = live.rooms.get(name)?.waiting ?? 0;
    if (!await sure('Put this page in force?', [`${count(waiting)} who wait see it with their next look; whoever comes sees it at once.`], 'Put it in force')) return;
    try {
      await write('PATCH', room.path, {custom_page_html: form.elements.custom_page_html.value});
      preview = '';
      undoable('Done: the page is in force.', await versionOf(name), load);
      show();
    } catch (problem) {
      explain(form, problem);
    }
  });
  async function load() {
    room = await made(name);
    if (room.file) return own.replaceChildren(ofFile('page'));
    form.elements.custom_page_html.value = room.custom_page_html;
    own.replaceChildren(session.may('write', name) ? form : '');
    show();
  }
  show();
  load().catch(failed);
  return {node};
}

// past shows what headgate has kept of a room, and what it advises.
export function past(name) {
  const ranges = [['-2h', 'Two hours'], ['-24h', 'A day'], ['-7d', 'A week'], ['-30d', '30 days'], ['-365d', 'A year']];
  const form = h('form', {}, field('from', 'How far back', {kind: 'select', options: ranges, value: '-24h'}));
  const place = h('div', {}), advice = h('div', {});
  const node = h('section', {}, h('h2', {}, 'Past'), form, place, advice);
  const shows = [
    ['Inside', 0, ['totalActiveUsers', 'mean', 'area'], ['totalActiveUsersMax', 'most', 'line', 'calm'], ['totalActiveUsersConfig', 'limit', 'limit']],
    ['Waiting', 0, ['totalQueuedUsers', 'mean', 'area', 'warm'], ['totalQueuedUsersMax', 'most', 'line', 'calm']],
    ['New users in a minute', 0, ['newUsersPerMinute', 'let in', 'area'], ['newUsersPerMinuteConfig', 'limit', 'limit']],
    ['Wait of who was let in', 1, ['totalTimeWaitedP50', 'half', 'area', 'warm'], ['totalTimeWaitedP90', '9 of 10', 'line', 'calm']],
    ['Origin latency', 1, ['originLatencyP50', 'half', 'area'], ['originLatencyP95', '19 of 20', 'line', 'calm']],
  ];
  const metrics = [...shows.flatMap((s) => s.slice(2).map((m) => m[0])), 'admitted', 'abandoned', 'sessionsRevoked', 'requests', 'origin5xx', 'originUnanswered'];
  const query = (more) => `room=${encodeURIComponent(name)}&from=${form.elements.from.value}${more}`;
  let turns = 0;
  async function load() {
    const ask = query(`&metrics=${metrics.join(',')}`), turn = ++turns;
    try {
      const got = await read(`/v1/analytics?${ask}`);
      if (turn !== turns) return; // another range was chosen meanwhile
      const start = Date.parse(got.from) / 1000, end = Date.parse(got.to) / 1000;
      const data = {at: got.points.map((p) => Date.parse(p.at) / 1000)};
      for (const m of metrics) data[m] = got.points.map((p) => p[m] ?? null);
      const t = got.total ?? {};
      place.replaceChildren(h('p', {}, `${count(t.admitted ?? 0)} let in, ${count(t.abandoned ?? 0)} gave up, ${count(t.sessionsRevoked ?? 0)} stays ended by the origin; ${count(t.requests ?? 0)} requests to it, ${count((t.origin5xx ?? 0) + (t.originUnanswered ?? 0))} failed. A point is ${span(got.step_seconds)}. `,
        h('a', {href: `api/v1/analytics?${query('&format=csv')}`, download: `${name}.csv`}, 'All figures as CSV')),
      got.missing_nodes.length ? h('p.note', {}, `Without ${got.missing_nodes.join(', ')}: they did not answer.`) : '',
      h('div.charts', {}, shows.map(([title, time, ...series]) => {
        const c = chart(title, series.map(([key, label, kind, tone]) => ({key, label, kind, tone})), time ? span : undefined, 'the time that is shown', got.step_seconds * 2.5);
        c.draw(data, start, end);
        return c.node;
      })));
    } catch (problem) {
      place.replaceChildren(h('p.note', {}, `${problem.message}. ${problem.hint}`));
    }
    const got = await maybe(`/v1/analytics/advice?${query('')}`);
    advice.replaceChildren(got?.advice?.length ? h('section', {}, h('h2', {}, 'Advice'), got.advice.map((a) => h('p.note', {}, h('b', {}, a.says), ` ${a.do ?? ''}`))) : '');
  }
  form.addEventListener('change', load);
  load();
  return {node};
}

export function whatIf(name) {
  const out = h('div', {}), result = h('div', {'aria-live': 'polite'});
  const cancel = h('button', {type: 'button', hidden: true, onclick: () => stop?.abort()}, 'Cancel');
  const form = h('form.card', {novalidate: true, onsubmit: submit},
    h('p', {}, 'The visitors of the last hour, as far as this process has seen them, played again by the simulator with other limits.'),
    h('div.pair', {}, field('total_active_users', 'Users at once', {inputmode: 'numeric'}), field('new_users_per_minute', 'New users a minute', {inputmode: 'numeric'})),
    field('session_seconds', 'Session duration', {}, '5m, 90s, 1h'), below(),
    h('div.row', {}, h('button.main', {}, 'What would have happened?'), cancel));
  const node = h('section', {}, h('h2', {}, 'What if'), form, result, out);
  let filled = false, stop;
  async function submit(event) {
    event.preventDefault();
    clearWrong(form);
    const value = (key) => form.elements[key].value.trim();
    const body = {room: name, total_active_users: Number(value('total_active_users')), new_users_per_minute: Number(value('new_users_per_minute')),
      session_seconds: seconds(value('session_seconds'))};
    if (faulty(form, 'total_active_users', 'new_users_per_minute', 'session_seconds')) return;
    body.session_seconds = Math.round(body.session_seconds);
    stop?.abort();
    stop = new AbortController();
    cancel.hidden = false;
    result.replaceChildren(h('p', {}, 'Playing…'));
    try {
      answer(await ask('POST', 'whatif', body, stop.signal), body);
    } catch (problem) {
      result.replaceChildren();
      if (problem.name === 'AbortError') result.replaceChildren(h('p', {}, 'Cancelled.'));
      else explain(form, problem);
    }
    cancel.hidden = true;
  }
  function answer(a, asked) {
    const percent = (x) => `${Math.round(x * 1000) / 10} %`;
    const rows = [['Visitors', (o) => count(o.visitors)], ['Let in', (o) => count(o.admitted)], ['Had to wait', (o) => percent(o.waited_share)],
      ['Waited in all', (o) => span(o.waited_seconds)], ['Wait of who was let in, half of them', (o) => span(o.wait_p50_seconds)], ['9 of 10', (o) => span(o.wait_p90_seconds)], ['The longest', (o) => span(o.wait_max_seconds)], ['Still waiting at the end', (o) => count(o.still_waiting)],
      ['Most inside', (o) => count(o.peak_active)], ['Most waiting', (o) => count(o.peak_waiting)]];
    const [now, other] = [a.now.waited_seconds, a.other.waited_seconds];
    result.replaceChildren(h('p', {}, other < now ? 'People would have waited less: ' : other > now ? 'People would have waited longer: ' : 'No longer and no shorter: ',
      h('b', {}, span(other)), ` in all instead of ${span(now)}; at most ${count(a.other.peak_active)} inside instead of ${count(a.now.peak_active)}.`));
    const at = a.seen.active.map((_, i) => a.from + 10 * (i + 1));
    const draw = (title, key) => {
      const c = chart(title, [{key: 'other', label: 'with these limits', kind: 'area'}, {key: 'now', label: 'with those of now', kind: 'line', tone: 'warm'},
        {key: 'seen', label: 'as it was', kind: 'limit'}], undefined, 'the time that was played', 15);
      c.draw({at, other: a.other[key], now: a.now[key], seen: a.seen[key]}, at[0], at.at(-1));
      return c.node;
    };
    out.replaceChildren(table('Both runs', ['Figure', 'Limits of now', `${count(asked.total_active_users)} at once, ${count(asked.new_users_per_minute)} a minute, ${duration(asked.session_seconds)}`],
      rows.map(([label, f]) => cells(label, f(a.now), f(a.other)))),
    h('div.charts', {}, draw('Inside', 'active'), draw('Waiting', 'waiting')),
    h('p.dim', {}, `Played: ${span(a.seconds)}. A model: who comes is what was counted; a stay is taken to last ${span(a.stay_seconds)} and a session on average, as the figures say. Nobody gives up, and who was inside at the beginning comes in before it.`));
  }
  return {
    node,
    close: () => stop?.abort(),
    live(r) {
      if (filled) return;
      filled = true;
      form.elements.total_active_users.value = r.limit;
      form.elements.new_users_per_minute.value = r.per_minute;
      form.elements.session_seconds.value = duration(seconds(r.session));
    },
  };
}
