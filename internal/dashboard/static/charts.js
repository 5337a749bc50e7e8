// Charts: an SVG, and the same data as a table for screen readers.
import {h, put, brief, clock, moment, table} from './dom.js';

const wide = 600, high = 120;
const svg = (name, props) => {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [k, v] of Object.entries(props)) e.setAttribute(k, v);
  return e;
};

function nice(n) {
  if (n <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 2.5, 5, 10].map((x) => x * size).find((x) => x >= n * 0.9999);
}

function path(xs, ys, x, y, close, gap) {
  let d = '', from = null, last = null;
  const end = () => {
    if (close && from !== null) d += `L${x(last)} ${high}L${x(from)} ${high}Z`;
  };
  for (let i = 0; i < xs.length; i++) {
    if (ys[i] === null || ys[i] === undefined) continue;
    const broken = last === null || xs[i] - last > gap;
    if (broken) { end(); from = xs[i]; }
    d += `${broken ? 'M' : 'L'}${x(xs[i])} ${y(ys[i])}`;
    last = xs[i];
  }
  end();
  return d;
}

// chart shows series: [key, label, kind, tone]; kind is area, line, limit or bars.
export function chart(title, lines, format = brief, about = 'the last 10 minutes', gap = 4) {
  const figure = (v) => Number.isFinite(v) ? format(v) : '—';
  const series = lines.map(([key, label, kind, tone = '']) => ({key, label, kind, tone}));
  const picture = svg('svg', {viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: 'none', role: 'img'});
  for (const y of [0, 0.5, 1]) {
    picture.append(svg('line', {class: 'grid', x1: 0, x2: wide, y1: high * y, y2: high * y}));
  }
  const paths = series.map((s) => picture.appendChild(svg('path', {class: `s ${s.kind} ${s.tone}`})));
  const top = h('span.top-label'), middle = h('span.middle-label'), low = h('span.low-label', '0');
  const from = h('span'), to = h('span'), none = h('p.dim');
  const place = h('div'), details = h('details', h('summary', 'As a table'), place);
  const values = series.map(() => h('b'));
  const node = h('figure.chart',
    h('figcaption', h('span.name', title), series.map((s, i) =>
      h('span.key', h(`i.${s.kind}${s.tone ? `.${s.tone}` : ''}`, {'aria-hidden': 'true'}), `${s.label} `, values[i]))),
    h('div.plot', picture, top, middle, low, none), h('div.times', {'aria-hidden': 'true'}, from, to), details);
  let newest, told = 0;
  const when = (t, length) => (length > 86400 ? moment : clock)(t * 1000);
  const rows = () => {
    const {at} = newest;
    const step = Math.max(1, Math.round(at.length / 12)), lines = [];
    for (let i = at.length - 1; i >= 0; i -= step) {
      lines.push([when(at[i], at.at(-1) - at[0]), ...series.map((s) => figure(newest[s.key][i]))]);
    }
    place.replaceChildren(table(title, ['Time', ...series.map((s) => s.label)], lines));
  };
  details.addEventListener('toggle', () => details.open && newest && rows());
  return {
    node,
    draw(data, start, end) {
      newest = data;
      const {at} = data;
      const all = series.flatMap((s) => data[s.key] ?? []).filter(Number.isFinite);
      put(none, all.length ? '' : 'No data');
      if (!at?.length) return;
      const first = start ?? at.at(-1) - 600, last = end ?? at.at(-1);
      const most = nice(all.reduce((a, b) => Math.max(a, b), 0));
      const x = (t) => ((t - first) / (last - first) * wide).toFixed(1);
      const y = (v) => (high - Math.min(1, v / most) * (high - 4)).toFixed(1);
      series.forEach((s, i) => {
        const ys = data[s.key];
        if (s.kind === 'bars') {
          paths[i].setAttribute('d', at.map((t, k) => ys[k] ? `M${x(t)} ${high}V${y(ys[k])}` : '').join(''));
        } else {
          paths[i].setAttribute('d', path(at, ys, x, y, s.kind === 'area', gap));
        }
        const now = ys.findLast((v) => v !== null);
        put(values[i], figure(now));
      });
      put(top, format(most));
      put(middle, format === brief && most < 10 ? most / 2 : format(most / 2)); // not rounded up to 1
      put(from, start === undefined ? '10 min ago' : when(first, last - first));
      put(to, start === undefined ? 'now' : when(last, last - first));
      if (Date.now() - told < 10000) return;
      told = Date.now();
      picture.setAttribute('aria-label', `${title}, ${about}: ${series.map((s) => {
        const ys = data[s.key].filter(Number.isFinite);
        return `${s.label} ${ys.length ? `${format(ys.at(-1))} at the end, between ${format(Math.min(...ys))} and ${format(Math.max(...ys))}` : 'unknown'}`;
      }).join('; ')}`);
      if (details.open && !details.contains(document.activeElement)) rows();
    },
  };
}
