// The waiting page's script. It asks this same address how the line stands, as often as the
// server says, and loads the address when it is the visitor's turn. It never shows a number
// that rises. Comments stand on lines of their own: they are not sent (see squeeze in Go).
const $ = (id) => document.getElementById(id);
const read = (id) => JSON.parse($(id).textContent);
const t = read('words');
const name = $('name').textContent;
const lang = document.documentElement.lang;
const format = new Intl.NumberFormat(lang).format;
const plurals = new Intl.PluralRules(lang);

// What is shown, when the next question is due, and what the live region said last.
let v = read('view');
let due = 0, received = 0, timer = 0, fails = 0, shared = false, entering = false;
let leading = true, wanted = false, bell;
let said = {}, slowest = Infinity, slow = '', slowSince = 0;
let worker, solving, solution, widget;

const fill = (s, words) => s.replace(/\{(\w)\}/g, (_, key) => words[key]);
const plural = (forms, n) => forms[plurals.select(n)] ?? forms.other ?? forms;

// The same arithmetic as eta in Go: rounded outwards, so that the range stays honest.
function eta() {
  const low = v.eta_low_seconds, high = v.eta_high_seconds;
  if (low == null || high == null) return t.eta_unknown;
  if (high <= 60) return t.eta_short;
  const [unit, step] = high > 5400 ? [t.hour, 1800] : [t.minute, high > 1200 ? 300 : 60];
  const per = unit == t.hour ? 3600 : 60;
  const a = Math.floor(low / step) * step / per, b = Math.ceil(high / step) * step / per;
  const forms = a == b ? unit.near : a ? unit.range : unit.most;
  return fill(plural(forms, b), {a: format(a), b: format(b)});
}

// Counted on from the server's own clock: a wrong clock in the browser does not matter.
function countdown() {
  const left = Date.parse(v.opens_at) - Date.parse(v.updated_at) - (Date.now() - received);
  const s = Math.max(0, Math.ceil(left / 1000));
  return [s / 3600, s / 60 % 60, s % 60].map((n) => `${n | 0}`.padStart(2, 0)).join(':');
}

// The same choice as howKey in Go.
function how(c = {}) {
  if (c.isEventPrequeueing) return c.shuffleAtEventStart ? 'shuffle' : 'prequeue';
  return c.isEventActive && c.shuffleAtEventStart ? 'shuffled' : c.queueingMethod;
}

// Text is written only where it changed, so that a selection or a screen reader stays put.
function put(id, text) {
  if ($(id).textContent != text) $(id).textContent = text;
}

function show() {
  const place = v.position > 0, state = v.state, opens = state == 'opens_at';
  const next = place && state == 'waiting' && v.ahead == 0;
  const n = format(v.ahead);
  const ahead = place && !next && /waiting|queue_all|down/.test(state);
  const line = state == 'full' && v.waiting;
  const head = t.h[next ? 'next' : state] ?? t.h.waiting;
  $('main').dataset.state = state;
  $('main').toggleAttribute('data-place', place);
  put('head', head);
  const [big, what] = ahead ? [n, plural(t.ahead, v.ahead)] :
    line ? [format(v.waiting), plural(t.in_line, v.waiting)] :
    opens ? [countdown(), t.opens] : ['', ''];
  put('big', big);
  put('what', what);
  put('position', format(v.position));
  put('eta', eta());
  put('updated', new Date(v.updated_at).toLocaleTimeString(lang));
  put('slow', slow);
  put('message', v.message);
  const style = {dateStyle: 'full', timeStyle: 'short', calendar: 'gregory'};
  const when = opens && new Date(v.opens_at).toLocaleString(lang, style);
  put('lead', fill(t.lead[state] ?? t.lead.waiting, {t: when}));
  put('how', t.how[v.how] ?? '');
  $('fair').hidden = !v.draw;
  put('draw', v.draw + (/\//.test(v.draw) && v.number ? ' #' + v.number : ''));
  // The same choice as method in Go.
  put('method', v.method == 'fifo' && /^shuffle/.test(v.how) ? '' : t.method[v.method] ?? '');
  put('ticket', v.ticket);
  $('bar').max = v.joined_position + 1;
  if (v.joined_position) $('bar').value = v.joined_position - v.ahead;
  const x = state == 'called' ? 342 : 280 - 40 * Math.min(5, v.ahead);
  $('flock').setAttribute('transform', `translate(${x} 76)`);
  document.title = (ahead ? n + ' · ' : '') + head + ' · ' + name;
  say(head, ahead && big + ' ' + what);
}

// The live region speaks at milestones only: another state, less than half the people ahead, an expected
// time that moved by a minute, or a reason why it takes longer.
function say(head, ahead) {
  const now = {head, ahead: v.ahead, high: v.eta_high_seconds, slow};
  const moved = Math.abs((now.high ?? 0) - (said.high ?? 0)) >= 60;
  if (said.head == head && v.ahead * 2 >= said.ahead && !(moved && v.state == 'waiting') && [said.slow, ''].includes(slow)) return;
  said = now;
  put('live', [head, ahead, v.state == 'waiting' && eta(), slow].filter(Boolean).join('. '));
}

// One answer, from the server or from the tab that asks. The place never rises while it is
// the same ticket.
function receive(next, pause) {
  next = {...v, ...next};
  const same = next.number == v.number && v.position > 0 && next.position > 0;
  if (same) {
    next.ahead = Math.min(next.ahead, v.ahead);
    next.position = Math.min(next.position, v.position);
  }
  const fell = same && next.ahead < v.ahead;
  v = next;
  received = Date.now();
  due = received + v.poll_after_seconds * 1000;
  fails = 0;
  const high = v.eta_high_seconds ?? slowest;
  // A reason stays for 20 s at least, so that people can read it.
  if (v.slower || high > slowest + 59) [slow, slowSince] = [v.slower || t.slower, received];
  else if (!same || high < slowest && received > slowSince + 20000) slow = '';
  slowest = same ? Math.min(high, slowest) : high;
  put('retry', '');
  show();
  // The ducks swim again for a moment; there are no animations where motion is reduced.
  if (fell) $('flock').getAnimations({subtree: true}).forEach((a) => a.play());
  if (v.state == 'called') enter(pause);
  // There it is said, and a reload is no new place.
  if (v.state == 'moved') location.replace($('move').href);
}

function arm() {
  clearTimeout(timer);
  if (!leading || entering) return;
  timer = setTimeout(poll, due - Date.now());
  work();
}

// A worker solves the challenge of the ticket, and the next question has the solution. Without
// workers or WebCrypto nothing happens here: the place is in a slower line. Where a third party
// makes the challenge, this script shows its widget and does the rest.
function work() {
  const c = v.challenge;
  const src = c && new URL('work.js', document.images[0].src);
  if (!c) widget = widget?.remove();
  else if (c.kind) widget ??= document.head.appendChild(Object.assign(document.createElement('script'), {src, id: 'widget'}));
  if (c?.signature == solving) return;
  worker?.terminate();
  solving = c?.signature;
  solution = null;
  if (!c) return;
  try {
    worker = new Worker(src);
    worker.onmessage = (event) => {
      solution = event.data;
      worker.terminate();
    };
    worker.postMessage(c);
  } catch {
  }
}

// Far from the head, each second question goes to the document that is the same for everyone.
// A redirect, or an answer that is not headgate's, means that nobody waits here any more.
async function poll() {
  shared = !shared && v.poll_after_seconds >= 20 && v.number > 0 && !!v.served_url;
  try {
    const signal = AbortSignal.timeout?.(20000);
    const answer = await fetch(shared ? v.served_url : location.href, shared ? {signal} : {
      headers: {Accept: 'application/json', 'Headgate-Poll': '1', ...solution && {'Headgate-Solution': solution}},
      cache: 'no-store', redirect: 'manual', signal,
    });
    const body = await answer.json().catch(() => ({}));
    if (shared) {
      if (!answer.ok || !(body.served < v.number)) return poll();
      const ahead = v.number - body.served;
      receive({ahead, position: ahead + 1, state: body.state, message: body.message,
        waiting: body.waiting, updated_at: new Date().toISOString()});
    } else if (body.headgate) {
      receive({...body.headgate, how: how(body.cfWaitingRoom)});
    } else if (answer.status < 500 && answer.status != 429) {
      receive({state: 'called'});
    } else {
      throw 0;
    }
    tabs?.postMessage(v);
  } catch {
    shared = false;
    due = Date.now() + Math.min(60, 2 ** ++fails) * 1000 * (.75 + Math.random() / 2);
    put('retry', t.retry);
  }
  arm();
}

// Loads the address as a GET. Landing here again within seconds of doing so would be a loop:
// then each further try waits twice as long. sessionStorage throws where storage is forbidden.
function enter(pause = 0) {
  if (entering) return;
  entering = true;
  let wait = wanted ? ring() : pause;
  try {
    const last = JSON.parse(sessionStorage.headgate ?? '{}');
    const loop = performance.timeOrigin - last.at < 10000;
    const tries = loop ? last.tries + 1 : 0;
    if (tries) wait = Math.min(60, 2 ** tries) * 1000;
    sessionStorage.headgate = JSON.stringify({at: Date.now() + wait, tries});
  } catch {
    wait = 5000;
  }
  // With a fragment, replace() would only scroll.
  setTimeout(() => location.hash ? location.reload() : location.replace(location.href), wait);
}

// A sound and a notification, made ready by the visitor's own click, as browsers ask.
function ring() {
  const tone = bell.createOscillator();
  tone.connect(bell.destination);
  tone.start();
  tone.stop(bell.currentTime + .5);
  try {
    new Notification(name, {body: t.h.called});
  } catch {
    // Some phones allow notifications to service workers only: the sound has to do.
  }
  return 700;
}

function label() {
  $('bell').ariaPressed = wanted;
  put('bell', wanted ? t.bell_on : t.bell);
}
$('bell').onclick = () => {
  wanted = !wanted;
  bell ??= new AudioContext();
  self.Notification?.requestPermission();
  label();
};
label();
$('bell').hidden = false;

// Tabs share one place, so one of them asks for all: the one that was looked at last, since a
// hidden one is slowed down by the browser. Locks exist in secure contexts only (https or
// localhost), and not where storage is forbidden: there each tab asks for itself.
// The others go in a little later, so that one of them claims the place and not all at once.
const key = 'headgate' + (v.served_url || location.pathname);
let tabs, queued = false;
// Who has given up the place asks for nothing more here.
const left = v.state == 'left';
try {
  tabs = !left && navigator.locks && new BroadcastChannel(key);
} catch {
}
function lead(steal) {
  if (!steal && queued) return;
  queued ||= !steal;
  navigator.locks.request(key, {steal}, () => {
    queued &&= steal;
    leading = true;
    arm();
    return new Promise(() => {});
  }).catch((error) => {
    leading = error.name != 'AbortError';
    if (leading) return arm();
    clearTimeout(timer);
    lead(false);
  });
}
if (tabs) {
  leading = false;
  tabs.onmessage = (event) => receive(event.data, 1000 + Math.random() * 1000);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && !leading) lead(true);
  });
}
addEventListener('pageshow', (event) => {
  if (!event.persisted) return;
  entering = false;
  poll();
});
setInterval(() => v.state == 'opens_at' && put('big', countdown()), 1000);

// What stands in the page is the first answer.
v.message = $('message').textContent;
if (!navigator.cookieEnabled) v.state = 'no_cookie';
receive(v);
if (tabs) lead(!document.hidden); else if (!left) arm();
