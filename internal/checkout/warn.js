// Warns before a visit ends: include it with <script src="/.headgate/warn.js" defer></script>.
// It asks /.headgate/session beside itself, which prolongs nothing, and shows how long is left
// in the element #headgate-warning, or one that it adds at the end of the page. The page hears
// the event headgate:session with each answer; who calls preventDefault() shows it itself.
(() => {
  const url = new URL('session', document.currentScript.src);
  let timer, ends = 0, told = '', s = {};

  const box = () => {
    let el = document.getElementById('headgate-warning');
    if (!el) {
      el = document.createElement('div');
      el.id = 'headgate-warning';
      Object.assign(el.style, {position: 'fixed', insetInline: '0', bottom: '0', zIndex: 2147483647,
        padding: '.8rem 1rem', background: '#fff3c4', color: '#1c1a00', font: '1rem/1.5 system-ui, sans-serif',
        borderTop: '3px solid #8a5a00', textAlign: 'center'});
      el.hidden = true;
      document.body.append(el);
    }
    if (!el.firstChild) {
      const text = document.createElement('span');
      const live = document.createElement('span');
      live.setAttribute('role', 'status');
      Object.assign(live.style, {position: 'absolute', width: '1px', height: '1px', overflow: 'hidden',
        clipPath: 'inset(50%)', whiteSpace: 'nowrap'});
      const stay = document.createElement('button');
      stay.type = 'button';
      Object.assign(stay.style, {marginInlineStart: '1rem', minHeight: '44px', padding: '0 1rem', font: 'inherit'});
      stay.onclick = () => ask('POST');
      el.append(text, live, stay);
    }
    return el;
  };

  const left = () => Math.max(0, Math.round((ends - Date.now()) / 1000));
  const clock = (n) => `${n / 60 | 0}:${`${n % 60}`.padStart(2, 0)}`;

  // The countdown is seen each second; the live region speaks at the minute, at 30 s and at the end.
  function show() {
    const n = left(), over = !s.inside;
    const el = box(), [text, live, stay] = el.children;
    el.lang = s.text.lang;
    el.dir = s.text.dir;
    text.textContent = over ? s.text.ended : s.text.ends.replace('{t}', clock(n));
    stay.textContent = s.text.stay;
    stay.hidden = over || !s.renews;
    const step = over ? 'over' : n <= 30 ? 's' : `m${Math.ceil(n / 60)}`;
    if (step != told) live.textContent = text.textContent;
    told = step;
    el.hidden = false;
  }

  function hide() {
    const el = document.getElementById('headgate-warning');
    if (el) el.hidden = true;
    told = '';
  }

  // Who was never inside, as on a page without a room, is told nothing.
  let was = false;
  function next() {
    clearTimeout(timer);
    const n = left();
    if (!s.inside) return was ? show() : undefined;
    if (n > s.warn_seconds) {
      hide();
      timer = setTimeout(ask, Math.min(n - s.warn_seconds + .5, 3600) * 1000);
    } else {
      show();
      timer = setTimeout(n % 5 ? next : ask, 1000);
    }
  }

  async function ask(method) {
    clearTimeout(timer);
    try {
      const answer = await fetch(url, {method: method == 'POST' ? 'POST' : 'GET', cache: 'no-store'});
      if (!answer.ok) throw new Error(answer.status);
      s = await answer.json();
    } catch {
      timer = setTimeout(ask, 15000);
      return;
    }
    was ||= s.inside;
    ends = Date.now() + s.ends_in_seconds * 1000;
    const own = !document.dispatchEvent(new CustomEvent('headgate:session', {detail: s, cancelable: true}));
    // The later end is told once it is in the record: a second later at most.
    if (method == 'POST') timer = setTimeout(ask, 1500);
    else if (own) timer = setTimeout(ask, Math.max(5, s.ends_in_seconds - s.warn_seconds) * 1000);
    else next();
  }

  // Other tabs renew the same visit, and a sleeping device misses its timers.
  document.addEventListener('visibilitychange', () => document.hidden || ask());
  addEventListener('pageshow', (event) => event.persisted && ask());
  ask();
})();
