// Elements, words and figures.
export const uri = encodeURIComponent;

// h creates an element: h('p.note', {id: 'x'}, 'text', child).
export function h(tag, ...kids) {
  const [name, ...classes] = tag.split('.'), props = kids[0]?.constructor === Object ? kids.shift() : {};
  const e = document.createElement(name);
  if (classes.length) e.className = classes.join(' ');
  for (const [key, value] of Object.entries(props)) {
    if ((value ?? false) === false) continue;
    if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
    else if (key === 'value') e[key] = value;
    else e.setAttribute(key, value === true ? '' : value);
  }
  e.append(...kids.flat(9).filter((k) => k || k === 0));
  return e;
}

// put sets a text only if it differs, to avoid needless repaints.
export function put(e, text) {
  if (e.textContent !== String(text)) e.textContent = text;
}

const whole = new Intl.NumberFormat('en-US', {maximumFractionDigits: 0});
const short = new Intl.NumberFormat('en-US', {notation: 'compact', maximumFractionDigits: 1});

export const count = (n) => whole.format(n);
export const brief = (n) => n < 10000 ? count(n) : short.format(n);
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export function span(s) {
  if (s < 0) return '—';
  if (s === 0) return '0 s';
  if (s < 1) return `${Math.max(1, Math.round(s * 1000))} ms`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 360) / 10} h`;
  return `${Math.round(s / 8640) / 10} days`;
}

// seconds parses 90s, 5m, 1h30m or 5m0s; NaN if invalid.
export function seconds(text) {
  const units = {h: 3600, m: 60, s: 1};
  const parts = [...String(text).trim().matchAll(/(\d+(?:\.\d+)?)([hms])/g)];
  if (!parts.length || parts.map((p) => p[0]).join('') !== String(text).trim()) return NaN;
  return parts.reduce((sum, p) => sum + p[1] * units[p[2]], 0);
}

export function duration(s) {
  const text = [[3600, 'h'], [60, 'm'], [1, 's']].map(([size, unit]) => {
    const n = Math.floor(s / size);
    s -= n * size;
    return n ? n + unit : '';
  }).join('');
  return text || '0s';
}

export const clock = (t) => new Date(t).toLocaleTimeString('en-GB');
export const moment = (t) => new Date(t).toLocaleString('en-GB', {dateStyle: 'medium', timeStyle: 'short'});

export const exact = (t) => new Date(t).toLocaleString('en-GB', {dateStyle: 'medium', timeStyle: 'medium'});

export const button = (text, run, props) => h('button', {type: 'button', onclick: () => (async () => run())().catch(failed), ...props}, text);

// upper capitalizes a sentence, unless it begins with a name: session_duration.
export const upper = (text) => /^(?!headgate )[a-z]+([ ,]|$)/.test(text) ? text[0].toUpperCase() + text.slice(1) : text;

// say shows a message, with an undo button if back is set. Focus stays.
export function say(text, back) {
  const gone = () => {
    if (line.contains(document.activeElement)) document.getElementById('main').focus({preventScroll: true});
    line.remove();
  };
  const line = h('p', text, ' ', back && button('Undo', () => { gone(); return takeBack(back); }),
    button('×', gone, {class: 'quiet', 'aria-label': 'Close'}));
  document.getElementById('said').replaceChildren(line);
  setTimeout(gone, back ? 30000 : 8000);
}

export const takeBack = (back) => back().then(() => say('Undone.'), (problem) => failed(problem, 'undone'));

export const failed = (problem, what = 'done') => problem.code === 'gone' || say(`Not ${what}: ${problem.says ?? problem}`);

// hear announces a text to screen readers, at most every 5 s; the newest wins.
let pending, last = 0;
export function hear(text) {
  clearTimeout(pending);
  pending = setTimeout(() => {
    last = Date.now();
    document.getElementById('heard').textContent = text;
  }, Math.max(0, last + 5000 - Date.now()));
}

// sure asks for confirmation. If word is set, the user must type it.
export function sure(title, lines, verb, danger, word = '') {
  return new Promise((done) => {
    const yes = h(`button.main${danger ? '.danger' : ''}`, {value: 'yes', disabled: Boolean(word)}, verb);
    const dialog = h('dialog', {'aria-labelledby': 'sure'},
      h('form', {method: 'dialog'},
        h('h2', {id: 'sure'}, title), lines.map((l) => l && h('p', l)),
        word && field('word', `Type ${word} to confirm`, {autofocus: true, spellcheck: 'false', oninput: (e) => yes.disabled = e.target.value.trim() !== word}),
        h('div.row', yes, h('button', {value: 'no', autofocus: !word}, 'Cancel'))));
    const from = document.activeElement;
    dialog.addEventListener('close', () => {
      dialog.remove();
      if (!from.isConnected) refocus(from); // the view was rebuilt
      done(dialog.returnValue === 'yes');
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// act confirms and runs an action. run returns its undo function, unless it is final.
export async function act(title, lines, run, {verb = title, danger, word, final} = {}) {
  const last = final ? 'You cannot undo this.' : 'It is in the audit log, and one click undoes it.';
  if (await sure(`${title}?`, [...lines, last], verb, danger, word)) say(`Done: ${title}.`, await run());
}

let fields = 0;

export function field(name, label, props = {}, hint = '') {
  const id = `f${++fields}`;
  const {kind = 'input', options, ...rest} = props;
  const input = h(kind, {id, name, 'aria-describedby': `${id}h ${id}e`, autocomplete: 'off', ...rest},
    options?.map(([value, text]) => h('option', {value}, text)));
  if (kind === 'select' && rest.value !== undefined) input.value = rest.value;
  return h('div.field', h('label', {for: id}, label), input,
    h('p.hint', {id: `${id}h`}, hint), h('p.wrong', {id: `${id}e`}));
}

export const limitFields = (props, ...hints) => [['total_active_users', 'Users at once'], ['new_users_per_minute', 'New users per minute']]
  .map(([key, label], i) => field(key, label, {inputmode: 'numeric', ...props}, hints[i]));

// wrongAt shows an error at a field. It returns false if there is no such field.
export function wrongAt(form, name, text) {
  const input = form.elements[name];
  if (!input) return false;
  input.setAttribute('aria-invalid', 'true');
  input.closest('details')?.setAttribute('open', '');
  document.getElementById(`${input.id}e`).textContent = text;
  return true;
}

// faulty marks fields without a valid number or time, and focuses the first one.
export function faulty(form, ...names) {
  for (const name of names) {
    const value = form.elements[name].value.trim(), time = name.startsWith('session');
    if (time ? !(seconds(value) >= 1) : !/^[1-9]\d{0,9}$/.test(value)) {
      wrongAt(form, name, `is ${!value ? 'missing' : time ? 'not a time of a second or more' : 'not a whole number'}. Write, for example, ${time ? '5m, 90s or 1h' : '200'}`);
    }
  }
  const first = form.querySelector('[aria-invalid]');
  first?.focus();
  return Boolean(first);
}

export function clearWrong(form) {
  for (const e of form.querySelectorAll('.wrong')) e.textContent = '';
  for (const e of form.querySelectorAll('[aria-invalid]')) e.removeAttribute('aria-invalid');
}

const fieldOf = {session_seconds: 'session_duration', name: 'host', custom_html: 'custom_page_html', headgate: 'action'};

export function explain(form, problem) {
  const left = problem.faults?.length ? [] : [problem.says ?? problem];
  for (const f of problem.faults ?? []) {
    const key = f.key.split('/').pop(), text = `${f.problem}. ${f.hint}`;
    if (!wrongAt(form, key, text) && !wrongAt(form, fieldOf[key], text)) left.push(`${f.key}: ${text}`);
  }
  form.querySelector('.wrong.whole').textContent = left.join('\n');
  (form.querySelector('[aria-invalid]') ?? form.querySelector('button')).focus();
}

// different returns the values that a form changes. It throws if there are none.
export function different(is, value) {
  const pairs = Object.fromEntries(Object.keys(is).map((key) => [key, value(key)]).filter(([key, text]) => text !== is[key]));
  if (!Object.keys(pairs).length) throw 'Nothing is different from the current settings.';
  return pairs;
}

// formOf returns a form. submit gets a function from name to value; errors are shown at the fields.
export function formOf(kind, submit, ...kids) {
  const e = h(`form${kind}`, {novalidate: true, onsubmit: async (event) => {
    event.preventDefault();
    clearWrong(e);
    try {
      await submit((name) => e.elements[name].value.trim());
    } catch (problem) {
      explain(e, problem);
    }
  }}, kids);
  const whole = h('p.wrong.whole', {role: 'alert'});
  e.lastChild.before(whole);
  return e;
}

// table returns a scrollable table. On a phone, rows of a wide table are cards.
export function table(caption, heads, rows) {
  return h(`div.scroll${heads.length > 4 ? '.cards' : ''}`, {tabindex: 0, role: 'group', 'aria-label': caption},
    h('table', h('caption.hidden', caption), h('thead', h('tr', heads.map((t) => h('th', {scope: 'col'}, t)))),
      h('tbody', rows.map((row) => h('tr', row.map((c, i) => i ? h('td', {'data-label': heads[i]}, c) : h('th', {scope: 'row'}, c)))))));
}

// keepFocus replaces the content of a place, and keeps focus and scroll.
export function keepFocus(place, nodes) {
  const was = document.activeElement, had = place.contains(was);
  const scrolls = () => [...place.querySelectorAll('.scroll')], far = scrolls().map((e) => e.scrollLeft);
  place.replaceChildren(...[nodes].flat(9).filter(Boolean));
  scrolls().forEach((e, i) => e.scrollLeft = far[i]);
  if (had) refocus(was);
}

// refocus focuses the control with the key or name of a removed one, or its neighbor.
const keyOf = (e) => e.dataset.key ?? e.getAttribute('aria-label');
function refocus(was) {
  const main = document.getElementById('main'), all = [...main.querySelectorAll('[data-key]:enabled, [aria-label]:not(:disabled)')];
  const beside = `${was.dataset.key?.split(' ')[0]} `;
  (all.find((e) => keyOf(e) === keyOf(was)) ?? all.find((e) => e.dataset.key?.startsWith(beside)) ??
    main).focus({preventScroll: true});
}

// signIn asks for a token that may write.
export const signIn = (...before) => h('p.note', before, h('a', {href: '#/signin'}, 'Sign in'), ' with a token that may write.');

export const link = (kind, name) => h('a', {href: `#/${kind}/${uri(name)}`}, name);

// bar returns a decorative bar; the figures are next to it.
export function bar(part, all) {
  const fill = h('i');
  fill.style.width = `${all > 0 ? Math.min(100, 100 * part / all) : 0}%`;
  return h(`span.bar${part >= all * 0.9 ? '.high' : ''}`, {'aria-hidden': 'true'}, fill);
}
