// Writes cldr.json: how each language writes numbers, times and dates, as Chromium has it from
// the CLDR, so that what the page's script writes later looks the same as what the server wrote.
//   node tests/browser/cldr.mjs > internal/pages/cldr.json
import {readdirSync} from 'node:fs';
import path from 'node:path';
import {openBrowser, root} from './room.js';

const folder = path.join(root, 'internal/pages/languages');
const tags = readdirSync(folder).map((name) => name.replace('.json', '')).sort();
const browser = await openBrowser();
const page = await browser.newPage();
const facts = Object.fromEntries(await Promise.all(
  tags.map(async (tag) => [tag, await page.evaluate(factsOf, tag)])));
await browser.close();
console.log(JSON.stringify(facts, null, 1).replace(/\n {3}(?=")|\n {2}(?=[\]}])/g, ' '));

// factsOf runs in the browser.
function factsOf(tag) {
  const base = {timeZone: 'UTC', calendar: 'gregory', numberingSystem: 'latn'};

  // pattern writes {fields} where the sample 2026-01-05 03:04:05 has values.
  function pattern(format) {
    return format.formatToParts(Date.UTC(2026, 0, 5, 3, 4, 5)).map(({type, value}) => {
      const wide = value.length > 1;
      switch (type) {
        case 'literal': return value;
        case 'weekday': return '{E}';
        case 'day': return wide ? '{dd}' : '{d}';
        case 'month': return '{M}';
        case 'year': return '{y}';
        case 'hour': return '{' + (format.resolvedOptions().hour12 ? 'h' : 'H').repeat(value.length) + '}';
        case 'minute': return '{mm}';
        case 'second': return '{ss}';
        case 'dayPeriod': return '{a}';
      }
      return value; // such as the era, which Thai names
    }).join('');
  }

  const part = (format, type, at) =>
    format.formatToParts(at).find((p) => p.type == type)?.value ?? '';

  const date = new Intl.DateTimeFormat(tag, {...base, dateStyle: 'full', timeStyle: 'short'});
  const clock = new Intl.DateTimeFormat(tag, {...base, timeStyle: 'medium'});
  const number = new Intl.NumberFormat(tag);
  const find = (n, type) => number.formatToParts(n).find((p) => p.type == type)?.value ?? '';
  const twelve = [...Array(12).keys()], day = [...Array(24).keys()];
  const periods = day.map((hour) => part(clock, 'dayPeriod', Date.UTC(2026, 0, 5, hour)));
  const plurals = new Intl.PluralRules(tag);
  const minutes = new Intl.NumberFormat(tag, {style: 'unit', unit: 'minute', unitDisplay: 'long'});
  const minute = {};
  for (let n = 200; n >= 0; n--) {
    const parts = minutes.formatToParts(n);
    minute[plurals.select(n)] = parts.some((p) => p.type == 'integer') ?
      parts.map((p) => p.type == 'integer' ? '{n}' : p.value).join('') :
      parts.map((p) => p.value).join('');
  }
  const digits = twelve.slice(0, 10).map((n) => number.format(n)).join('');
  return {
    dir: new Intl.Locale(tag).getTextInfo().direction,
    group: find(1234567, 'group'),
    decimal: find(1.5, 'decimal'),
    digits: digits == '0123456789' ? '' : digits,
    least: find(1234, 'group') ? 4 : 5, // digits of the shortest number that is grouped
    pairs: number.formatToParts(1234567).filter((p) => p.type == 'integer')[1].value.length == 2,
    date: pattern(date),
    clock: pattern(clock),
    months: twelve.map((m) => part(date, 'month', Date.UTC(2026, m, 5))),
    weekdays: twelve.slice(0, 7).map((d) => part(date, 'weekday', Date.UTC(2026, 0, 4 + d))),
    minute,
    periods: periods[0] ? periods : undefined,
  };
}
