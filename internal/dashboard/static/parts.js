import {h, act, button, clearWrong, count, duration, explain, failed, faulty, field, formOf, limitFields, plural, seconds, span, table, wrongAt, uri} from './dom.js';
import {Problem, ask, live, maybe, read, session, write} from './net.js';
import {chart} from './charts.js';
import {undo} from './change.js';

// made finds a room of the management API by name; file: it is from the file.
export async function made(name) {
  const all = await read('/client/v4/accounts/all/waiting_rooms?per_page=1000');
  const found = all.result.find((r) => r.name === name);
  if (!found) throw new Problem(404, {code: 'gone'}); // the view shows it
  return {...found, file: found.headgate.source === 'file', path: `/client/v4/zones/${uri(found.headgate.zone)}/waiting_rooms/${found.id}`};
}

export const ofFile = (key) => h('p.note', `This room is defined in the configuration file. Change its ${key} there, then reload.`);

export function page(name) {
  const frame = h('iframe', {title: 'Preview of the waiting page', sandbox: ''});
  const look = formOf('.row', show,
    field('state', 'State', {kind: 'select', options: ['waiting', 'full', 'queue_all', 'closed', 'opens_at', 'down', 'called', 'limited', 'left'].map((s) => [s, s.replaceAll('_', ' ')])}),
    field('language', 'Language', {value: 'en-US'}, 'such as de, ja, ar'), field('position', 'Position', {value: '1205', inputmode: 'numeric'}));
  const own = h('div');
  const node = h('section', h('h2', 'Waiting page'), look, frame, own);
  let room, preview = '', turns = 0;
  const query = () => new URLSearchParams(Object.entries(Object.fromEntries(new FormData(look))).filter(([, v]) => v)).toString();
  async function show() {
    clearWrong(look);
    const address = `${preview || `api/v1/rooms/${uri(name)}/preview`}?${query()}`;
    const turn = ++turns; // answers can arrive out of order
    try { // invalid parameters give a problem
      await ask('GET', address);
      if (turn === turns) frame.src = address;
    } catch (problem) {
      if (turn !== turns) return;
      const key = ['state', 'language', 'position'].find((k) => problem.message.startsWith(k)) ?? 'state';
      wrongAt(look, key, problem.message);
    }
  }
  look.addEventListener('change', () => look.requestSubmit());
  const form = formOf('.card', () => act('Activate this page', [`${plural(live.rooms.get(name)?.waiting ?? 0, 'waiting visitor sees', 'waiting visitors see')} it at the next poll; newcomers see it at once.`], async () => {
    const {version} = await write('PATCH', room.path, {custom_page_html: form.elements.custom_page_html.value});
    preview = '';
    await load();
    return () => undo(version).then(load);
  }, {verb: 'Activate'}), h('h3', 'Your own page'),
    field('custom_page_html', 'HTML with the tags of docs/pages.md; empty: the default page', {kind: 'textarea', rows: 12, spellcheck: 'false'}),
    h('div.row', button('Preview', () => tryIt().catch((problem) => explain(form, problem))), h('button.main', 'Activate')));
  async function tryIt() {
    clearWrong(form);
    const html = form.elements.custom_page_html.value;
    preview = '';
    if (html.trim()) {
      const {result} = await write('POST', `${room.path.replace(/\/[^/]+$/, '')}/preview`, {custom_html: html});
      preview = new URL(result.preview_url).pathname;
    }
    await show();
    frame.scrollIntoView({block: 'nearest'});
  }
  async function load() {
    room = await made(name);
    if (room.file) return own.replaceChildren(ofFile('page'));
    form.elements.custom_page_html.value = room.custom_page_html;
    own.replaceChildren(session.may(name) ? form : '');
    show();
  }
  show();
  load().catch(failed);
  return {node};
}

// pasts has, for each kind, the charts, the summed metrics, and the summary text.
const pasts = {
  room: [[
    ['Inside', 0, ['totalActiveUsers', 'mean', 'area'], ['totalActiveUsersMax', 'maximum', 'line', 'calm'], ['totalActiveUsersConfig', 'limit', 'limit']],
    ['Waiting', 0, ['totalQueuedUsers', 'mean', 'area', 'warm'], ['totalQueuedUsersMax', 'maximum', 'line', 'calm']],
    ['New users in a minute', 0, ['newUsersPerMinute', 'admitted', 'area'], ['newUsersPerMinuteConfig', 'limit', 'limit']],
    ['Wait of admitted visitors', 1, ['totalTimeWaitedP50', 'median', 'area', 'warm'], ['totalTimeWaitedP90', '90 %', 'line', 'calm']],
    ['Origin latency', 1, ['originLatencyP50', 'median', 'area'], ['originLatencyP95', '95 %', 'line', 'calm']],
  ], ['admitted', 'abandoned', 'sessionsRevoked', 'requests', 'origin5xx', 'originUnanswered'],
  (n) => `${n('admitted')} admitted, ${n('abandoned')} gave up, ${n('sessionsRevoked')} sessions ended by the origin; ${n('requests')} requests to it, ${n('origin5xx', 'originUnanswered')} failed.`],
  limit: [[['Calls', 0, ['allowed', 'allowed', 'area'], ['refused', 'refused', 'bars', 'bad']]], [], (n) => n('allowed', 'refused') === '0' ? 'No calls yet.' : `${n('allowed')} calls were allowed, ${n('refused')} were refused.`],
  queue: [[['Jobs', 0, ['depth', 'waiting', 'area', 'warm'], ['dead', 'dead', 'line', 'calm']], ['Deliveries', 0, ['delivered', 'delivered', 'area'], ['died', 'died', 'bars', 'bad']]],
    ['put'], (n) => `${n('put')} jobs put, ${n('delivered')} delivered, ${n('died')} died.`],
};

export function past(name, kind = 'room') {
  const ranges = [['-2h', 'Two hours'], ['-24h', 'A day'], ['-7d', 'A week'], ['-30d', '30 days'], ['-365d', 'A year']];
  const form = h('form', field('from', 'Time range', {kind: 'select', options: ranges, value: '-24h'}));
  const place = h('div'), advice = h('div');
  const node = h('section', h('h2', 'Past'), form, place, advice);
  const [shows, sums, words] = pasts[kind];
  const metrics = [...shows.flatMap((s) => s.slice(2).map((m) => m[0])), ...sums];
  const query = (more) => `${kind}=${uri(name)}&from=${form.elements.from.value}${more}`;
  let turns = 0;
  async function load() {
    const ask = query(`&metrics=${metrics.join(',')}`), turn = ++turns;
    try {
      const got = await read(`/v1/analytics?${ask}`);
      if (turn !== turns) return; // another range was chosen meanwhile
      const start = Date.parse(got.from) / 1000, end = Date.parse(got.to) / 1000;
      const data = {at: got.points.map((p) => Date.parse(p.at) / 1000)};
      for (const m of metrics) data[m] = got.points.map((p) => p[m] ?? null);
      place.replaceChildren(h('p', words((...keys) => count(keys.reduce((n, key) => n + (got.total?.[key] ?? 0), 0))), ` Each point covers ${span(got.step_seconds)}. `,
        h('a', {href: `api/v1/analytics?${query('&format=csv')}`, download: `${name}.csv`}, 'All figures as CSV')),
      got.missing_nodes.length ? h('p.note', `Data of these nodes is missing, because they did not answer: ${got.missing_nodes.join(', ')}.`) : '',
      h('div.charts', shows.map(([title, time, ...series]) => {
        const c = chart(title, series, time ? span : undefined, 'this period', got.step_seconds * 2.5);
        c.draw(data, start, end);
        return c.node;
      })));
    } catch (problem) {
      place.replaceChildren(h('p.note', problem.says));
    }
    const got = kind === 'room' && await maybe(`/v1/analytics/advice?${query('')}`);
    advice.replaceChildren(got?.advice?.length ? h('section', h('h2', 'Advice'), got.advice.map((a) => h('p.note', h('b', a.says), ` ${a.do ?? ''}`))) : '');
  }
  form.addEventListener('change', load);
  load();
  return {node};
}

export function whatIf(name) {
  const out = h('div'), result = h('div', {'aria-live': 'polite'});
  const cancel = button('Cancel', () => stop?.abort(), {hidden: true});
  const form = formOf('.card', submit,
    h('p', 'The simulator replays the visitors of the last hour, as counted by this process, with other limits.'),
    h('div.pair', limitFields()),
    field('session_seconds', 'Session duration', {}, '5m, 90s, 1h'),
    h('div.row', h('button.main', 'What would have happened?'), cancel));
  const node = h('section', h('h2', 'What if'), form, result, out);
  let filled = false, stop;
  async function submit(value) {
    const body = {room: name, total_active_users: Number(value('total_active_users')), new_users_per_minute: Number(value('new_users_per_minute')),
      session_seconds: seconds(value('session_seconds'))};
    if (faulty(form, 'total_active_users', 'new_users_per_minute', 'session_seconds')) return;
    body.session_seconds = Math.round(body.session_seconds);
    stop?.abort();
    stop = new AbortController();
    cancel.hidden = false;
    result.replaceChildren(h('p', 'Simulating…'));
    try {
      answer(await ask('POST', 'whatif', body, stop.signal), body);
    } catch (problem) {
      result.replaceChildren(problem.name === 'AbortError' ? 'Canceled.' : '');
      if (problem.name !== 'AbortError') throw problem;
    } finally {
      cancel.hidden = true;
    }
  }
  function answer(a, asked) {
    const rows = [['Visitors', (o) => count(o.visitors)], ['Admitted', (o) => count(o.admitted)], ['Had to wait', (o) => `${Math.round(o.waited_share * 1000) / 10} %`],
      ['Total wait', (o) => span(o.waited_seconds)], ['Wait of admitted visitors, median', (o) => span(o.wait_p50_seconds)], ['90th percentile', (o) => span(o.wait_p90_seconds)], ['Longest', (o) => span(o.wait_max_seconds)], ['Still waiting at the end', (o) => count(o.still_waiting)],
      ['Most inside', (o) => count(o.peak_active)], ['Most waiting', (o) => count(o.peak_waiting)]];
    const [now, other] = [a.now.waited_seconds, a.other.waited_seconds];
    result.replaceChildren(h('p', other < now ? 'Visitors would have waited less: ' : other > now ? 'Visitors would have waited longer: ' : 'Visitors would have waited as long: ',
      h('b', span(other)), ` in total instead of ${span(now)}; at most ${count(a.other.peak_active)} inside instead of ${count(a.now.peak_active)}.`));
    const at = a.seen.active.map((_, i) => a.from + 10 * (i + 1));
    const draw = (title, key) => {
      const c = chart(title, [['other', 'with these limits', 'area'], ['now', 'with the current limits', 'line', 'warm'], ['seen', 'observed', 'limit']], undefined, 'the simulated time', 15);
      c.draw({at, other: a.other[key], now: a.now[key], seen: a.seen[key]}, at[0], at.at(-1));
      return c.node;
    };
    out.replaceChildren(table('Both runs', ['Figure', 'Current limits', `${count(asked.total_active_users)} at once, ${count(asked.new_users_per_minute)} per minute, ${duration(asked.session_seconds)}`],
      rows.map(([label, f]) => [label, f(a.now), f(a.other)])),
    h('div.charts', draw('Inside', 'active'), draw('Waiting', 'waiting')),
    h('p.dim', `Simulated: ${span(a.seconds)}. This is a model. It uses the counted arrivals. A visitor is active for ${span(a.session_seconds)} on average, estimated from the figures, and the session ends one session duration later. No visitor gives up. Visitors inside at the beginning are admitted before it.`));
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
