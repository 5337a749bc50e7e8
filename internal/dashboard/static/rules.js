// Rules and lanes of a room, and its end.
import {h, below, clearWrong, count, explain, failed, field, keepFocus, plural, say, sure, wrongAt} from './dom.js';
import {live, read, session, write} from './net.js';
import {made, ofFile, undoable, versionOf} from './parts.js';
import {undo} from './change.js';

const actions = [['bypass_waiting_room', 'Let pass', 'good'], ['deny', 'Refuse', 'bad'], ['lane', 'Lane', 'event']];
const effect = (r) => ({
  bypass_waiting_room: 'What it matches passes by the room and is not counted, even when the room is full or closed.',
  deny: 'What it matches is refused with 403, also of who is inside.',
  lane: `Who must wait and matches waits in the lane ${r.headgate?.lane}: up to ${r.headgate?.share} of 100 calls are its, while others wait. Who waits already stays in the line it is in.`,
})[r.action];
const nameOf = (r) => r.description || r.expression;

export function rules(name) {
  const list = h('div', {}), place = h('div', {});
  const node = h('section', {}, h('h2', {}, 'Rules'),
    h('p.dim', {}, 'The first rule that is true of a request decides. Who meets none waits in the ordinary line, if there is one.'), list, place);
  let room, all = [], edited;

  // act makes one change of the list, with its inverse.
  async function act(title, lines, verb, method, rule, body, inForm) {
    if (!await sure(`${title}?`, lines, verb, verb === 'Delete it')) return;
    try {
      const was = room.version;
      const {version} = await write(method, `${room.path}/rules${rule ? `/${rule}` : ''}`, body);
      undoable(version === was ? 'Nothing has changed.' : `Done: ${title}.`, version !== was && version, refresh);
      if (inForm) edit();
    } catch (problem) {
      if (!inForm) return failed(problem);
      explain(form, problem, {'/headgate': 'action'});
      point();
    }
    await refresh();
  }

  // point shows where in the expression the fault is.
  function point() {
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

  const form = h('form.card', {novalidate: true, onsubmit: submit, onchange: laned}, h('h3', {}),
    field('action', 'What becomes of it', {kind: 'select', options: actions}),
    h('div.pair', {}, field('lane', 'Lane', {}, 'Its name: A-Z, a-z, 0-9, _ and -'), field('share', 'Share', {inputmode: 'numeric'}, 'Of 100 calls, while others wait: 1 to 99')),
    field('expression', 'Expression', {kind: 'textarea', rows: 3, spellcheck: 'false'}, 'Such as http.request.uri.path eq "/health"; docs/rules.md has the language'),
    field('description', 'Description', {maxlength: 500}), below(),
    h('div.row', {}, h('button.main', {}, 'Save the rule'), h('button', {type: 'button', onclick: () => edit()}, 'Cancel')));
  function laned() {
    form.querySelector('.pair').hidden = form.elements.action.value !== 'lane';
  }
  // edit fills the form with a rule, or with none.
  function edit(r) {
    clearWrong(form);
    form.reset();
    edited = r;
    form.querySelector('h3').textContent = r ? `Edit: ${nameOf(r)}` : 'New rule';
    form.querySelector('button[type]').hidden = !r;
    const e = form.elements;
    if (r) [e.action.value, e.expression.value, e.description.value, e.lane.value, e.share.value] = [r.action, r.expression, r.description, r.headgate.lane, r.headgate.share || ''];
    laned();
    if (r) e.expression.focus();
  }
  function submit(event) {
    event.preventDefault();
    clearWrong(form);
    const value = (key) => form.elements[key].value.trim();
    const body = {action: value('action'), expression: form.elements.expression.value, description: value('description'), headgate: {lane: '', share: 0}};
    if (!value('expression')) return wrongAt(form, 'expression', 'is missing. true matches every request') && form.elements.expression.focus();
    if (body.action === 'lane') body.headgate = {lane: value('lane'), share: /^\d+$/.test(value('share')) ? Number(value('share')) : value('share') || 0};
    act(edited ? `Change the rule ${nameOf(edited)}` : 'Add this rule, behind all others', [body.expression, effect(body)], edited ? 'Change it' : 'Add it', edited ? 'PATCH' : 'POST', edited?.id, body, true);
  }

  function card(r, i) {
    const [, word, tone] = actions.find(([a]) => a === r.action);
    const button = (key, text, run, off) => h('button', {type: 'button', 'data-key': `${r.id} ${key}`, 'aria-label': `${text}: ${nameOf(r)}`, disabled: off, onclick: run}, text);
    const move = (to) => act(`Move ${nameOf(r)} to place ${to}`, ['A request that several rules match is decided by the first of them.'], 'Move it', 'PATCH', r.id, {position: {index: to}});
    const turn = () => act(`${r.enabled ? 'Disable' : 'Enable'} ${nameOf(r)}`, [r.enabled ? 'It decides nothing then, and stays in the list.' : effect(r)], r.enabled ? 'Disable it' : 'Enable it', 'PATCH', r.id, {enabled: !r.enabled});
    return h('li.card', {}, h('p', {}, h(`span.badge.${r.enabled ? tone : 'off'}`, {}, word, r.action === 'lane' && ` ${r.headgate.lane}, ${r.headgate.share} of 100`, !r.enabled && ', off'), ' ', h('b', {}, r.description)),
      h('pre', {tabindex: 0, 'aria-label': `Expression ${i + 1}`}, r.expression),
      place.firstChild && h('div.row', {}, button('edit', 'Edit', () => edit(r)), button('up', 'Up', () => move(i), i === 0), button('down', 'Down', () => move(i + 2), i === all.length - 1),
        button('turn', r.enabled ? 'Disable' : 'Enable', turn),
        button('delete', 'Delete', () => act(`Delete ${nameOf(r)}`, ['What it matches is then as any other request, unless another rule matches.'], 'Delete it', 'DELETE', r.id))));
  }
  async function refresh() {
    room = await made(name);
    const got = await read(`${room.path}/rules`);
    all = got.result;
    room.version = got.version ?? room.headgate.version;
    if (!room.file && !place.firstChild && session.may('write', name)) {
      place.append(form);
      edit();
    }
    keepFocus(list, room.file ? ofFile('rules') : '', all.length ? h('ol.rules', {}, all.map(card)) : h('p', {}, 'There is no rule.'));
  }
  refresh().catch(failed);
  return {node};
}

// remove ends a room that was made, after its name was typed.
export async function remove(name) {
  const room = await made(name).catch(failed), now = live.rooms.get(name);
  if (!room) return;
  if (room.file) return say('Not done: this room is of the configuration file. Take it out there, and reload.');
  const ok = await sure(`Delete ${name}?`, [
    now && `${plural(now.active, 'visitor is', 'visitors are')} inside, ${count(now.waiting)} wait. Whoever asks for ${now.host}${now.path} then reaches what stands there without a room, or nothing.`,
    'Its events, rules and page go with it. It can be taken back with one click; made again under its name it goes on with its line.'], 'Delete the room', true, name);
  if (!ok) return;
  try {
    await write('DELETE', room.path);
    const version = await versionOf(name);
    location.hash = '#/';
    say(`Done: ${name} is deleted.`, 'Undo', () => undo(version, () => location.hash = `#/rooms/${encodeURIComponent(name)}`));
  } catch (problem) {
    failed(problem);
  }
}
