// The frame of the page: sign-in, navigation, and the state of the connection.
import {h, hear, put, button, field, formOf} from './dom.js';
import {ask, live, session} from './net.js';
import {create, rooms} from './rooms.js';
import {room} from './room.js';
import {audit, cluster, limit, limits, queue, queues} from './more.js';

const main = document.getElementById('main');
let view, shown = '';

// views maps the first word of the address to a view; the other words are its arguments.
const views = {'': rooms, new: create, rooms: room, limits: (name) => name ? limit(name) : limits(), queues: (name) => name ? queue(name) : queues(),
  cluster, audit, signin: signIn};
const nothing = () => ({title: 'Page not found', node: h('p.note', 'This page does not exist. ', h('a', {href: '#/'}, 'All rooms'))});

function show(force) {
  const hash = location.hash.startsWith('#/') ? location.hash.slice(2) : '';
  if (location.hash === '#main') return;
  const wanted = session.now.reads || hash === 'signin' ? hash : 'signin';
  if (wanted === shown && view && !force) return;
  const moved = shown !== wanted;
  view?.close?.();
  shown = wanted;
  let words = [''];
  try {
    words = wanted.split('/').map(decodeURIComponent);
  } catch {} // an invalid escape: show the rooms
  const [part, ...rest] = words;
  view = (Object.hasOwn(views, part) ? views[part] : nothing)(...rest);
  live.watch(view.room ?? '');
  document.title = `${view.title} – headgate`;
  main.replaceChildren(view.node);
  for (const a of document.querySelectorAll('.top nav a')) {
    if (a.hash === `#/${['rooms', 'new'].includes(part) ? '' : part}`) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
  if (moved && force !== 'first') {
    main.focus({preventScroll: true});
    scrollTo(0, 0);
  }
  tell();
}

// tell passes the newest data to the view and shows the connection state.
const states = new Map();
let lost;
function tell() {
  const pulse = document.getElementById('pulse');
  const text = !session.now.reads ? 'signed out' : {turning: 'live', lost: 'reconnecting'}[live.state] ?? live.state;
  put(pulse, text);
  pulse.className = `pulse ${text}`;
  if (live.state === 'lost' && !lost) lost = setTimeout(() => hear('The connection to headgate is lost'), 5000);
  if (live.state === 'live' && lost) {
    clearTimeout(lost);
    lost = null;
    hear('Connected');
  }
  if (live.state !== 'live') return;
  const changed = [];
  for (const r of live.rooms.values()) {
    const was = states.get(r.name), now = r.origin_up ? r.status : 'origin down';
    if (was && was !== now) changed.push(`${r.name}: ${now.replaceAll('_', ' ')}`);
    states.set(r.name, now);
  }
  if (changed.length) hear(changed.slice(0, 3).join(', '));
  view?.live?.(live.rooms);
}

function tellWho() {
  const who = document.getElementById('who');
  const {signed_in, reads, name, id} = session.now;
  if (signed_in) {
    const verb = session.now.scopes.some((s) => s.startsWith('write')) ? '' : ' (read-only)';
    who.replaceChildren(h('span.name', (name || id) + verb),
      button('Sign out', signOut, {class: 'quiet'}));
  } else {
    who.replaceChildren(h('a', {href: '#/signin'}, reads ? 'Sign in to change' : 'Sign in'));
  }
}

async function signOut() {
  await ask('DELETE', 'session').catch(() => {});
  await session.check();
  location.hash = session.now.reads ? '#/' : '#/signin';
}

function signIn() {
  const back = /^#\/(?!signin)/.test(location.hash) ? location.hash : '#/';
  const form = formOf('.card.narrow', async (value) => {
    await ask('POST', 'session', {token: value('token')});
    form.elements.token.value = '';
    await session.check();
    live.start();
    if (location.hash === back) show(true);
    else location.hash = back;
  }, h('h1', 'Sign in'),
  h('p', session.now.reads ? 'On this machine you can read without a token. Changes need a token.' : 'From this machine, reading needs a token too.'),
  field('token', 'Token', {type: 'password', autocomplete: 'current-password', required: true, spellcheck: 'false'},
    'It begins with hg_. Create one on the machine that runs headgate:'),
  h('pre', {tabindex: 0, 'aria-label': 'Command'}, 'headgate token create --scope write'), h('button.main', 'Sign in'));
  return {title: 'Sign in', node: form};
}

let before = '';
session.told = () => {
  tellWho();
  const now = JSON.stringify([session.now.signed_in, session.now.reads, session.now.id]);
  if (now !== before) {
    before = now;
    live.start();
    if (view && (shown !== 'signin' || session.now.reads && !location.hash.startsWith('#/signin'))) show(true);
  }
  tell();
};
live.listeners.add(tell);
addEventListener('hashchange', () => show());
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
await session.check();
show('first');
