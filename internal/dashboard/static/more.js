// Limits, queues, the cluster and the audit log.
import {h, act, bar, brief, button, count, duration, exact, faulty, field, formOf, keepFocus, link, moment, plural, seconds, span, table, upper, uri} from './dom.js';
import {maybe, read, session, write} from './net.js';
import {auditTable} from './room.js';
import {past} from './parts.js';

// again returns a view that reloads while the page is visible. load returns the content, and gets a
// function that reloads now. rest is shown below.
function again(title, load, {every = 3000, up, rest} = {}) {
  const place = h('div'), wrong = h('p.note', {hidden: true});
  const node = h('div', up && h('p.crumb', h('a', {href: `#/${up}`}, upper(up)), ' / '), h('h1', title), wrong, place, rest);
  let timer, over = false;
  const now = async () => {
    keepFocus(place, await load(now));
    wrong.hidden = true;
  };
  const step = async () => {
    if (!document.hidden) await now().catch((problem) => Object.assign(wrong, {hidden: false, textContent: problem.says ?? problem}));
    if (!over) timer = setTimeout(step, every);
  };
  step();
  return {title, node, close: () => { over = true; clearTimeout(timer); }};
}

function metric(text, name, label) {
  const all = new Map();
  for (const line of text.split('\n')) {
    if (!line.startsWith(`${name}{`)) continue;
    const key = line.match(new RegExp(`[{,]${label}="([^"]*)"`))?.[1];
    all.set(key, (all.get(key) ?? 0) + Number(line.slice(line.lastIndexOf(' '))));
  }
  return all;
}

const rule = (l) => l.algorithm === 'concurrency' ? `${count(l.amount)} at once` : `${count(l.amount)} ${l.unit} in ${l.window ? duration(seconds(l.window)) : l.align ?? '—'}`;

export function limits() {
  let before, at;
  return again('Limits', async () => {
    const [{limits: all}, text] = await Promise.all([read('/v1/limits'), maybe('/metrics')]);
    const metrics = text ?? '', now = Date.now();
    const refused = metric(metrics, 'headgate_limit_refused_total', 'limit');
    const passed = metric(metrics, 'headgate_limit_passed_total', 'limit');
    const keys = metric(metrics, 'headgate_limit_keys', 'limit');
    const rate = (name) => before && now > at ? (refused.get(name) - before.get(name)) * 1000 / (now - at) : 0;
    const shown = all.length ? table('Limits', ['Limit', 'Rule', 'Algorithm', 'Allowed', 'Refused', 'Refused per second', 'Keys'], all.map((l) =>
      [link('limits', l.name), rule(l), `${l.algorithm.replaceAll('_', ' ')}${l.soft ? ', soft' : l.shadow ? ', shadow' : ''}`,
        brief(passed.get(l.name) ?? 0), brief(refused.get(l.name) ?? 0), (rate(l.name) || 0).toFixed(1),
        [`${brief(keys.get(l.name) ?? 0)} of ${brief(l.max_keys)}`, bar(keys.get(l.name) ?? 0, l.max_keys)]])) :
      h('p.note', 'There are no limits. Add them under limits in the configuration file, or with headgate limit create.');
    [before, at] = [refused, now];
    return shown;
  });
}

export function limit(name) {
  const form = formOf('.card', (value) => {
    const amount = value('amount'), was = String(now.amount);
    const set = async (value) => {
      await write('PATCH', at, {amount: value});
      form.elements.amount.value = value;
    };
    return faulty(form, 'amount') || act('Change the amount', [`${was} → ${amount}. It takes effect at once.`], async () => {
      await set(amount);
      return () => set(was);
    });
  }, h('h2', 'Change this limit'), field('amount', 'Amount', {inputmode: 'numeric'}), h('button', 'Change the amount'));
  const at = `/v1/limits/${uri(name)}`;
  let now;
  form.hidden = true; // until it is filled once; typed values stay
  return again(name, async () => {
    const [l, {keys, next}] = await Promise.all([read(at), read(`${at}/keys?count=1000`)]);
    if (!now) form.elements.amount.value = l.amount;
    form.hidden = false;
    now = l;
    const top = keys.sort((a, b) => b.used / b.limit - a.used / a.limit || b.used - a.used).slice(0, 50);
    return [h('p.dim', `${rule(l)} · ${l.algorithm.replaceAll('_', ' ')}${l.source && ` · from: ${l.source}`}`), h('h2', 'Keys with the most usage'),
      top.length ? table('Keys with the most usage', ['Key', 'Used', 'Left', 'Full again in', 'State'], top.map((k) =>
        [k.key, [`${count(k.used)} of ${count(k.limit)}`, bar(k.used, k.limit)], count(k.remaining), span(k.reset_seconds),
          k.remaining <= 0 ? 'at the limit' : k.used >= k.limit * 0.9 ? 'near' : ''])) : h('p.note', 'No key has used this limit.'),
      next && h('p.dim', 'Only the first 1,000 keys were examined; there are more.')];
  }, {up: 'limits', rest: [session.may() && form, past(name, 'limit').node]});
}

const queueAt = (name, more = '') => `/v1/queues/${uri(name)}${more}`;
const paceOf = (q) => q.rate ? `, at most ${q.rate} per second` : '';

// turn returns a button that pauses or resumes a queue or a tenant.
const turn = (q, verb, load, line, tenant) => {
  const one = tenant !== undefined, title = `${verb} ${one ? `tenant ${tenant || '—'}` : q.name}`;
  const to = (v) => write('POST', queueAt(q.name, `/${v.toLowerCase()}${one ? `?tenant=${uri(tenant)}` : ''}`)).then(load);
  return session.may(q.name) && button(one ? title : verb, () => act(title, [line], async () => {
    await to(verb);
    return () => to(verb === 'Pause' ? 'Resume' : 'Pause');
  }, {danger: verb === 'Pause'}), {'data-key': `${tenant} ${q.name}`, 'aria-label': title});
};

function queueTable(all, load) {
  return table('Queues', ['Queue', 'State', 'Jobs', 'In progress', 'Per second', 'Empty in', 'Oldest', 'Dead', 'Actions'], all.map((q) => {
    const {failing: f} = q, [tone, state] = f ? ['bad', q.paused ? 'failing, paused' : 'failing'] : q.paused ? ['warn', 'paused'] : q.why ? ['warn', 'stopped'] : ['good', 'running'];
    return [link('queues', q.name), [h(`span.badge.${tone}`, state), f && h('div', `${plural(f.tries, 'try', 'tries')} failed in a row since ${exact(f.since)}: ${f.why}`), h('div.dim', q.why)],
      [brief(q.depth), q.later > 0 && h('span.dim', `, ${brief(q.later)} later`)], count(q.in_flight), [q.per_second.toFixed(1), q.rate > 0 && h('span.dim', ` of ${q.rate}`)],
      q.depth ? (q.empty_in_seconds < 0 ? 'never' : span(q.empty_in_seconds)) : '—', q.oldest_seconds ? span(q.oldest_seconds) : '—', q.dead ? h('b', brief(q.dead)) : '0',
      q.paused ? turn(q, 'Resume', load, `${plural(q.depth, 'job is', 'jobs are')} delivered again${paceOf(q)}.`) :
        turn(q, 'Pause', load, `${plural(q.depth, 'job waits and stays', 'jobs wait and stay')}. ${plural(q.in_flight, 'delivery')} in progress will end. New jobs can still be put.`)];
  }));
}

export const queues = () => again('Queues', async (load) => {
  const {queues: all} = await read('/v1/queues');
  return all.length ? queueTable(all, load) : h('p.note', 'There are no queues that you may see. Add them under queues in the file.');
});

const jobTable = (title, jobs, buttons) => table(title, ['Job', 'State', 'When', 'Attempts', 'Key', 'Tenant', 'Actions'], jobs.map((j) => {
  const at = j.died_at ?? j.at ?? j.since ?? j.ended_at;
  return [j.id, j.why ?? `${j.state.replace('_', ' ')}${j.behind ? ` behind ${j.behind}` : j.paused ? ', paused' : ''}`,
    j.position ? `number ${count(j.position)} of its tenant` : at ? exact(at) : '—', count(j.attempts), j.key || '—', j.tenant || '—', buttons(j)];
}));

export function queue(name) {
  let find = '', part = {}, now; // what is looked for
  const form = formOf('.card', (value) => {
    find = value('job');
    part = Object.fromEntries(['tenant', 'status'].map((key) => [key, value(key)]).filter((p) => p[1]));
    return now();
  }, h('h2', 'Find jobs'), h('div.pair', field('job', 'ID or key'), field('tenant', 'Tenant'), field('status', 'HTTP status', {}, 'of dead jobs')), h('button', 'Find'));
  return again(name, async (load) => {
    now = load;
    const {tenant} = part, query = new URLSearchParams(part).toString();
    const [q, {jobs, next}, found, own] = await Promise.all([read(queueAt(name)), read(queueAt(name, `/dead?count=200&${query}`)),
      find && read(queueAt(name, `/jobs/${uri(find)}`)).catch((problem) => problem), tenant && read(queueAt(name, `/tenants/${uri(tenant)}?count=50`))]);
    const {last_failure: failure} = q, n = query ? jobs.length : q.dead, all = `all dead jobs of ${name}${query && ` with ${query.replace('&', ' and ')}`}`;
    // steer returns buttons for a job, or for all of the list.
    const steer = (j, ...verbs) => session.may(name) && h('div.row', verbs.map(([verb, method, path, line]) => {
      const title = `${verb} ${j ? `job ${j.id}` : all}`, which = j || n === 1 ? 'The job is' : `${count(n)}${query && next ? ' or more' : ''} jobs are`;
      return button(`${verb}${j ? '' : ' all'}`, () => act(title, [`${which} ${line}.`], () => write(method, queueAt(name, path)).then(load),
        {verb: `${verb} ${j ? 'it' : 'all'}`, final: true, danger: method === 'DELETE', word: !j && method === 'DELETE' ? name : ''}), {'data-key': `${j?.id ?? 'all'} ${verb}`, 'aria-label': title});
    }));
    const buttons = (j, which = j ? `id=${j.id}` : query) => j?.state ? j.state === 'waiting' && steer(j, ['Cancel', 'DELETE', `/jobs/${j.id}`, 'never sent']) :
      steer(j, ['Retry', 'POST', `/redrive?${which}`, `delivered again, as if never sent before${paceOf(q)}`], ['Delete', 'DELETE', `/dead?${which}`, 'deleted from the disk']);
    const line = 'Its jobs keep their places; those of other tenants go on.';
    return [queueTable([q], load), failure && h('p', h('b', 'Last failure: '), `job ${failure.id}, ${exact(failure.at)}: ${failure.why}`),
      h('div.row', q.paused_tenants.map((t) => turn(q, 'Resume', load, line, t) || `${t || '—'} is paused`)),
      found && (found.id ? jobTable('The job', [found], buttons) : h('p.note', found.says)),
      own && [h('h2', `Tenant ${tenant}`), h('p', `${count(own.in_line)} in line, ${count(own.dead)} dead. `, !own.paused && turn(q, 'Pause', load, line, tenant)), own.jobs[0] && jobTable('Jobs', own.jobs, buttons)],
      h('h2', 'Dead jobs'), h('p.dim', 'These jobs failed too often, were rejected for good, became too old, or cost more than a limit ever allows.'),
      n ? [session.may(name) && h('p', h('a', {href: `api${queueAt(name, '/jobs?dead=true')}`, download: `${name}.ndjson`}, `Save ${q.dead === 1 ? 'it' : `all ${count(q.dead)}`} as a file`), ' to put again later.'), buttons(),
        jobTable('Dead jobs', jobs, buttons), next && h('p.dim', `The ${jobs.length} most recent.`)] : h('p.note', 'None.')];
  }, {every: 5000, up: 'queues', rest: [form, past(name, 'queue').node]});
}

// old shows the age of a data center's snapshot; one arrives every 1.5 s.
const old = (s) => h(`span.badge.${s < 0 || s > 5 ? 'bad' : s > 3.5 ? 'warn' : 'good'}`, s < 0 ? 'no data yet' : s > 5 ? `silent ${span(s)}` : `known, ${span(s)} old`);

export function cluster() {
  let alone = false; // it stays so until a restart
  const members = () => alone ? null : read('/v1/cluster').catch((problem) => {
    alone = problem.code === 'no_cluster';
    return null;
  });
  return again('Cluster', async () => {
    const [about, all, {rooms}] = await Promise.all([maybe('/v1/status'), members(), read('/v1/rooms')]);
    const parts = [];
    if (all) {
      parts.push(h('p', `Data center ${all.datacenter}. The leader of the store is `, h('b', all.leader || 'not elected'), all.engine ? ` (own NATS: ${all.engine})` : '', '.'),
        all.problem ? h('p.note', all.problem) : '',
        table('Nodes', ['Node', 'State', 'Role', 'Hosts', 'Clock', 'Version', 'Since'], all.nodes.map((n) =>
          [n.name, h(`span.badge.${n.alive ? 'good' : 'bad'}`, n.alive ? 'alive' : `silent ${span(n.silent_seconds)}`), n.store ? 'store' : 'worker',
            (n.rooms ?? []).map((r) => r.replace(/^@/, 'Anywhere of ')).join(', ') || '—', `${n.clock_seconds >= 0 ? '+' : '−'}${span(Math.abs(n.clock_seconds))}`, n.version || '—', moment(n.began)])));
    } else {
      parts.push(h('p', 'This headgate is a single process, with its own counter and worker.'));
    }
    for (const r of rooms.filter((x) => x.datacenters)) {
      const d = r.datacenters, a = d.anywhere;
      parts.push(h('h2', r.name), h('p', `Anywhere, which lends the slots that no data center holds, is in ${d.home}. `,
        a.age_seconds < 0 ? 'There is no data from it yet.' : `It has ${count(a.free)} of ${count(a.limit)} slots free${a.presumed ? `, ${count(a.presumed)} presumed lent` : ''}${a.age_seconds ? `, ${span(a.age_seconds)} ago` : ''}.`, ` The order between data centers is exact to ${span(d.uncertainty_seconds)}.`),
        table(`Data centers of ${r.name}`, ['Data center', 'State', 'Holds', 'Unused', 'Inside', 'Waiting', 'New in a minute', 'Workers', 'Round trip'], d.datacenters.map((s) =>
          [s.name, s.name === d.own ? h('span.badge.good', 'here') : old(s.age_seconds), [count(s.held), bar(s.held, r.total_active_users)], count(s.unused), count(s.active), count(s.waiting), count(s.new_last_minute), count(s.workers),
            s.round_trip_seconds ? span(s.round_trip_seconds) : '—'])));
    }
    parts.push(h('h2', 'Counters'), h('p.dim', 'They lend slots to workers; free slots are with no worker.'),
      table('Counters', ['Room', 'Hosted by', 'Inside', 'Lent', 'Free', 'Age of its record', 'Write time', 'Writes', 'State'], rooms.map((r) => {
        const {lent, record} = r, figure = (f) => lent ? count(f(lent)) : '—';
        return [r.name, all ? all.nodes.find((n) => n.rooms?.includes(r.name))?.name ?? 'no node' : 'here', figure((l) => l.inside + l.called), figure((l) => l.workers.reduce((n, w) => n + w.held, 0)), figure((l) => l.free),
          span(record.age_seconds), span(record.write_seconds), brief(r.totals.record_writes),
          record.damaged || (record.refused_seconds ? `writes fail for ${span(record.refused_seconds)}` : record.quiet_seconds ? `paused for ${span(record.quiet_seconds)}` : 'good')];
      })));
    const workers = new Map(); // slots held, in all rooms and by room
    for (const r of rooms) {
      for (const w of r.lent?.workers ?? []) {
        const {gone, held, new: fresh} = w, name = all ? w.name : 'this process';
        const x = workers.get(name + gone) ?? {name, gone, held: 0, fresh: 0, rooms: []};
        workers.set(name + gone, x);
        x.held += held;
        x.fresh += fresh;
        if (held) x.rooms.push([held, r.name]);
      }
    }
    const most = (x) => x.rooms.sort((a, b) => b[0] - a[0]).slice(0, 5).map(([n, name]) => `${name} ${count(n)}`).join(', ') + (x.rooms.length > 5 ? ` and ${x.rooms.length - 5} more` : '') || '—';
    parts.push(h('h2', 'Slots by worker'), h('p.dim', 'Unused slots, and those used in the last second.'),
      table('Slots by worker', ['Worker', 'State', 'Holds', 'New users', 'Rooms'], [...workers.values()].sort((a, b) => a.name.localeCompare(b.name, 'en', {numeric: true})).map((x) =>
        [x.name, h(`span.badge.${x.gone ? 'warn' : 'good'}`, x.gone ? 'silent: presumed used' : 'active'), count(x.held), count(x.fresh), most(x)])));
    if (about) {
      const {last_reload: reload} = about;
      parts.push(h('h2', 'This process'), h('dl', [['Version', about.version], ['Since', `${moment(about.started_at)} (${span(about.uptime_seconds)})`],
        ['Configuration', about.config_file || 'flags'], ['Data', about.data], ['Last reload', `${moment(reload.at)}: ${reload.successful ? 'good' : reload.error}`]]
        .map(([k, v]) => h('div', h('dt', k), h('dd', v)))));
    }
    return parts;
  }, {every: 2000});
}

export const audit = () => again('Audit log', async (load) => {
  const {entries} = await read('/v1/audit?count=200');
  return [h('p.dim', 'All changes on this node, including rejected ones, most recent first.'), entries.length ? auditTable(entries, load) : h('p.note', 'There are no changes yet.')];
}, {every: 5000});
