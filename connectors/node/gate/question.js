// What a connector reads from a request, without state: docs/connectors.md, "The contract".

/** The most header lines, and the most bytes of a form, that a question has. */
export const MOST_LINES = 100;
export const MOST_FORM = 64 << 10;
const MOST_COOKIES = 4 << 10;

const HOP = new Set(['connection', 'keep-alive', 'proxy-connection', 'proxy-authorization', 'proxy-authenticate',
  'te', 'trailer', 'transfer-encoding', 'upgrade', 'http2-settings', 'expect']);
const OWN = new Set(['host', 'content-length', 'forwarded', 'headgate-pass', 'x-rewrite-url', 'x-forwarded']);
const OWN_PREFIX = /^x-(forwarded|original)-/;
const NAME = /^[A-Za-z0-9-]+$/;

/** Splits the flat list of Node.js into pairs of name and value. */
export function pairs(raw) {
  const all = [];
  for (let i = 0; i + 1 < raw.length; i += 2) all.push([raw[i], raw[i + 1]]);
  return all;
}

/** Returns the names that belong to one connection, also those that its Connection lines name. */
function hopNames(lines) {
  const named = new Set(HOP);
  for (const [name, value] of lines) {
    if (name.toLowerCase() === 'connection') {
      for (const one of value.split(',')) named.add(one.trim().toLowerCase());
    }
  }
  return named;
}

/** Returns the lines of an answer that the visitor may get. */
export function endToEnd(lines) {
  const hop = hopNames(lines);
  return lines.filter(([name]) => !hop.has(name.toLowerCase()));
}

/**
 * Returns the headers of the question about a request, as pairs.
 * @param {{method: string, uri: string, host: string, proto: string, from: string, lines: string[][]}} visit
 */
export function questionHeaders(visit) {
  const hop = hopNames(visit.lines);
  const rest = visit.lines.filter(([name]) => {
    const low = name.toLowerCase();
    return NAME.test(name) && !hop.has(low) && !OWN.has(low) && !OWN_PREFIX.test(low);
  });
  return [['X-Forwarded-Method', visit.method], ['X-Forwarded-Uri', visit.uri], ['X-Forwarded-Host', visit.host],
    ['X-Forwarded-Proto', visit.proto], ['X-Forwarded-For', visit.from], ...rest];
}

/** Returns X-Forwarded-For of a question: what came, and the address of the connection. */
export function forwardedFor(lines, peer) {
  const came = lines.filter(([name]) => name.toLowerCase() === 'x-forwarded-for').map(([, value]) => value);
  return [...came, peer || '127.0.0.1'].join(', ');
}

/** Returns the values of a header, whose name is in lower case. */
export function valuesOf(lines, name) {
  return lines.filter(([n]) => n.toLowerCase() === name).map(([, value]) => value);
}

/** Returns the cookies on which an answer of headgate can depend, or null if they are too long to keep. */
export function ownCookies(lines) {
  const all = [];
  let size = 0;
  for (const value of valuesOf(lines, 'cookie')) {
    for (const [, cookie] of value.matchAll(/(?:^|[ ;])((?:__Host-)?__cfwaitingroom[^;]*)/g)) {
      size += cookie.length;
      all.push(cookie);
    }
  }
  return size > MOST_COOKIES ? null : all;
}

/** Returns the cookies of a visitor after an answer that sets some. */
export function cookiesAfter(cookies, setCookie) {
  let after = cookies;
  for (const line of setCookie) {
    const cookie = line.split(';', 1)[0];
    const name = cookie.split('=', 1)[0];
    if (!/^(__Host-)?__cfwaitingroom/.test(name)) continue;
    const had = after.some((one) => one.split('=', 1)[0] === name);
    after = had ? after.map((one) => (one.split('=', 1)[0] === name ? cookie : one)) : [...after, cookie];
  }
  return after;
}

const PLAIN = /^(\/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*\/?$/;

/**
 * Reports whether a fresh pass for a folder lets a request in without a question.
 * @param {{method: string, uri: string, lines: string[][]}} visit
 */
export function passesLocally(folder, visit) {
  const [path] = visit.uri.split('?', 1);
  if (path === '' || !PLAIN.test(path) || /\.(\/|$)/.test(path) || path === '/robots.txt' || path === '/favicon.ico') {
    return false;
  }
  if (/[\x00-\x20\x7f]/.test(visit.uri.slice(path.length))) return false;
  if (!/^[A-Z]+$/.test(visit.method) || ['OPTIONS', 'CONNECT', 'TRACE'].includes(visit.method)) return false;
  if (valuesOf(visit.lines, 'headgate-poll').length > 0) return false;
  return folder === '/' || path === folder || path.startsWith(folder + '/');
}

/** Reports whether headgate itself answers a path. */
export const isOwnPath = (uri) => uri.split('?', 1)[0].includes('/.headgate/');

/** Reports whether the application must not see a header: it is another spelling of one that headgate owns. */
export function isAlias(name) {
  const folded = name.toLowerCase().replace(/[^a-z0-9]/g, '-');
  if (folded === 'headgate-pass') return true;
  return !NAME.test(name) && /^(headgate-|cf-waiting-room-|x-forwarded|x-original-|forwarded$|x-real-ip$)/.test(folded);
}
