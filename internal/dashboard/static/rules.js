// Rules and events of a room, and deleting the room.
import {h, act, button, clearWrong, count, different, explain, failed, faulty, field, formOf, keepFocus, limitFields, moment, plural, span, table, upper, wrongAt, uri} from './dom.js';
import {live, read, session, write} from './net.js';
import {made, ofFile} from './parts.js';
import {undo} from './change.js';

const nameOf = (x) => x.name || x.description || x.expression;

// of defines the kind: form fields, their values, how to save and show an item.
function listed(name, of) {
  const list = h('div'), place = h('div');
  const node = h('section', h('h2', upper(of.path)), of.about, list, place);
  let room, edited;
  const form = formOf('.card', (value) => of.ask(form, value, edited, change), h('h3'), of.fields,
    h('div.row', h('button.main', `Save the ${of.word}`), button('Cancel', () => edit())));
  form.addEventListener('change', () => of.filled?.(form));
  const change = (title, lines, method, x, body, inForm) => act(title, lines, async () => {
    const was = room.version;
    const {version} = await write(method, `${room.path}/${of.path}${x ? `/${x.id}` : ''}`, body);
    if (inForm) edit();
    await refresh();
    if (version === was) throw 'nothing is different from the current settings.';
    return () => undo(version).then(refresh);
  }, {verb: title.split(' ')[0], danger: method === 'DELETE'});
  function edit(x) {
    clearWrong(form);
    form.reset();
    edited = x;
    form.querySelector('h3').textContent = x ? `Edit: ${nameOf(x)}` : `New ${of.word}`;
    form.querySelector('[type=button]').hidden = !x;
    for (const [key, value] of Object.entries(x ? of.shown(x) : {})) form.elements[key].value = value;
    of.filled?.(form);
    if (x) form.elements[of.first].focus();
  }
  const steer = (x, ...more) => {
    const one = (key, text, run, disabled) => button(text, run, {'data-key': `${x.id} ${key}`, 'aria-label': `${text}: ${nameOf(x)}`, disabled});
    const [verb, pairs, line] = of.turn(x);
    return place.firstChild && h('div.row', one('edit', 'Edit', () => edit(x)), more.map((m) => one(...m)),
      one('turn', verb, () => change(`${verb} ${nameOf(x)}`, [line], 'PATCH', x, pairs)),
      one('delete', 'Delete', () => change(`Delete ${nameOf(x)}`, [of.without(x)], 'DELETE', x)));
  };
  async function refresh() {
    room = await made(name);
    const {result, version = room.headgate.version} = await read(`${room.path}/${of.path}?per_page=100`);
    room.version = version;
    if (!room.file && !place.firstChild && session.may(name)) {
      place.append(form);
      edit();
    }
    keepFocus(list, [room.file && ofFile(of.path), result.length ? of.show(result, steer, change) : h('p', of.none)]);
  }
  refresh().catch(failed);
  return {node};
}

const actions = [['bypass_waiting_room', 'Bypass', 'good'], ['deny', 'Deny', 'bad'], ['lane', 'Lane', 'event'], ['challenge', 'Challenge', 'event']];
const effect = (r) => ({
  bypass_waiting_room: 'Matching requests bypass the room uncounted, even if it is full or closed.',
  deny: 'Matching requests get 403, also those of visitors inside.',
  challenge: 'Only matching newcomers have the challenge.',
  lane: `Matching newcomers that must wait join lane ${r.headgate?.lane}, with up to ${r.headgate?.share} % of the calls. Those already waiting stay in their line.`,
})[r.action];

function point(form) {
  const input = form.elements.expression, wrong = document.getElementById(`${input.id}e`);
  const at = wrong.textContent.match(/^line (\d+), column (\d+): /);
  if (!at) return;
  const lines = input.value.split('\n'), line = [...lines[at[1] - 1] ?? ''], column = at[2] - 1;
  const from = Math.max(0, column - 18);
  wrong.append(h('code', {'aria-hidden': 'true'}, `${line.slice(from, from + 36).join('')}\n${' '.repeat(column - from)}^`));
  const start = lines.slice(0, at[1] - 1).join('\n').length + (at[1] > 1 ? 1 : 0) + line.slice(0, column).join('').length;
  input.focus();
  input.setSelectionRange(start, start);
}

export const rules = (name) => listed(name, {
  path: 'rules', word: 'rule', first: 'expression', none: 'There are no rules.',
  about: h('p.dim', 'The first rule that matches a request decides. Without a match, visitors wait in the ordinary line, if there is one.'),
  fields: [field('action', 'Action', {kind: 'select', options: actions}),
    h('div.pair', field('lane', 'Lane', {}, 'Name: A-Z, a-z, 0-9, _ and -'), field('share', 'Share', {inputmode: 'numeric'}, 'Percent of the calls while others wait: 1 to 89')),
    field('expression', 'Expression', {kind: 'textarea', rows: 3, spellcheck: 'false'}, 'For example, http.request.uri.path eq "/health"; see docs/rules.md'),
    field('description', 'Description', {maxlength: 500})],
  shown: ({action, expression, description, headgate: {lane, share}}) => ({action, expression, description, lane, share: share || ''}),
  filled: (form) => form.querySelector('.pair').hidden = form.elements.action.value !== 'lane',
  async ask(form, value, edited, change) {
    const body = {action: value('action'), expression: form.elements.expression.value, description: value('description'), headgate: {lane: '', share: 0}};
    if (!value('expression')) return wrongAt(form, 'expression', 'is missing. true matches every request') && form.elements.expression.focus();
    if (body.action === 'lane') body.headgate = {lane: value('lane'), share: /^\d+$/.test(value('share')) ? Number(value('share')) : value('share') || 0};
    try {
      await change(edited ? `Change the rule ${nameOf(edited)}` : 'Add this rule, after all others', [body.expression, effect(body)], edited ? 'PATCH' : 'POST', edited, body, true);
    } catch (problem) {
      explain(form, problem);
      point(form);
    }
  },
  turn: (r) => r.enabled ? ['Disable', {enabled: false}, 'It has no effect, and stays.'] : ['Enable', {enabled: true}, effect(r)],
  without: () => 'Matching requests are then treated like all others, unless another rule matches.',
  show: (all, steer, change) => h('ol.rules', all.map((r, i) => {
    const [, word, tone] = actions.find(([a]) => a === r.action);
    const move = (key, text, to, off) => [key, text, () => change(`Move ${nameOf(r)} to position ${to}`, ['If several rules match a request, the first one decides.'], 'PATCH', r, {position: {index: to}}), off];
    return h('li.card', h('p', h(`span.badge.${r.enabled ? tone : 'off'}`, word, r.action === 'lane' && ` ${r.headgate.lane}, ${r.headgate.share} %`, !r.enabled && ', off'), ' ', h('b', r.description)),
      h('pre', {tabindex: 0, 'aria-label': `Expression ${i + 1}`}, r.expression),
      steer(r, move('up', 'Up', i, i === 0), move('down', 'Down', i + 2, i === all.length - 1)));
  })),
});

// Events: form times are local, to the minute. Untouched fields are not sent.
const local = (t) => t ? new Date(t).toLocaleString('sv').slice(0, 16).replace(' ', 'T') : '';
const said = (key, text) => !text ? '(none)' : key.endsWith('time') ? moment(text) : key.startsWith('shuffle') ? lots[text] : text;
const sent = (key, text) => !text ? null : key.endsWith('time') ? new Date(text).toISOString() : key.startsWith('shuffle') ? text === 'true' : key === 'name' ? text : Number(text);
const lots = {false: 'In order', true: 'Random draw'};
const time = {type: 'datetime-local', required: true};

export const events = (name) => listed(name, {
  path: 'events', word: 'event', first: 'name', none: 'No events are planned.',
  fields: [field('name', 'Name', {required: true}, 'Letters, digits, - and _'),
    h('div.pair', field('event_start_time', 'Start', time, 'In your time zone'), field('event_end_time', 'End', time)),
    h('div.pair', field('prequeue_start_time', 'Prequeue from', {type: 'datetime-local'}, 'From then on all newcomers wait; at least 5 min before the start'),
      field('shuffle_at_event_start', 'At the start', {kind: 'select', options: Object.entries(lots)})),
    h('div.pair', limitFields({}, 'Empty: the limit of the room'))],
  shown: (e) => ({name: e.name, event_start_time: local(e.event_start_time), event_end_time: local(e.event_end_time), prequeue_start_time: local(e.prequeue_start_time),
    shuffle_at_event_start: String(e.shuffle_at_event_start), total_active_users: String(e.total_active_users ?? ''), new_users_per_minute: String(e.new_users_per_minute ?? '')}),
  async ask(form, value, edited, change) {
    for (const key of ['name', 'event_start_time', 'event_end_time']) if (!value(key)) wrongAt(form, key, 'is missing. Fill it in');
    if (faulty(form, ...['total_active_users', 'new_users_per_minute'].filter(value))) return;
    const was = this.shown(edited ?? {name: '', shuffle_at_event_start: false}), is = different(was, value);
    const lines = Object.entries(is).map(([key, text]) => `${form.elements[key].labels[0].textContent}: ${edited ? `${said(key, was[key])} → ` : ''}${said(key, text)}.`);
    if (value('prequeue_start_time')) lines.push(`From the prequeue on, newcomers are not admitted: they wait${value('shuffle_at_event_start') === 'true' ? ' and are drawn at random at the start' : ' in order'}.`);
    if (edited && live.rooms.get(name)?.event === edited.name) lines.push('The event is on: this takes effect at once.');
    await change(`${edited ? 'Change' : 'Plan'} ${edited?.name ?? is.name}`, lines, edited ? 'PATCH' : 'POST', edited, Object.fromEntries(Object.entries(is).map(([key, text]) => [key, sent(key, text)])), true);
  },
  turn: (e) => e.suspended ? ['Resume', {suspended: false}, 'Its times apply again: if it should be on now, it is on at once.'] :
    ['Suspend', {suspended: true}, live.rooms.get(name)?.event === e.name ? 'The event is on: the room returns to its own limits at once.' : 'While suspended, it does not begin.'],
  without: (e) => `From ${moment(e.event_start_time)} to ${moment(e.event_end_time)} the room then keeps its own limits.`,
  show: (all, steer) => table('Events', ['Name', 'Prequeue', 'Start', 'End', 'Limits', 'Actions'], all.map((e) =>
    [e.name, e.prequeue_start_time ? moment(e.prequeue_start_time) : '—', moment(e.event_start_time), moment(e.event_end_time),
      [e.total_active_users ? `${count(e.total_active_users)} at once, ${count(e.new_users_per_minute)} per minute` : 'limits of the room', e.shuffle_at_event_start && ', random draw', e.headgate.every_seconds > 0 && `, every ${span(e.headgate.every_seconds)}`,
        e.suspended && [' ', h('span.badge', 'suspended')]], steer(e)])),
});

export async function remove(name) {
  const room = await made(name), now = live.rooms.get(name);
  if (room.file) throw 'this room is defined in the configuration file. Remove it there, and reload.';
  await act(`Delete ${name}`, [
    now && `${plural(now.active, 'visitor is', 'visitors are')} inside, ${count(now.waiting)} wait. Requests for ${now.host}${now.path} then reach the site that is there without a room, or nothing.`,
    'Its events, rules and page are deleted too. If you create it again with the same name, its line continues.'], async () => {
    await write('DELETE', room.path);
    const {changes: [{version}]} = await read(`/v1/history?room=${uri(name)}&count=1`);
    location.hash = '#/';
    return () => undo(version).then(() => location.hash = `#/rooms/${uri(name)}`);
  }, {verb: 'Delete the room', danger: true, word: name});
}
