// A middleware of Next.js, for its Node.js runtime.

import {Readable} from 'node:stream';

import {NextResponse} from 'next/server.js';

import {MOST_FORM, endToEnd, isAlias, isOwnPath, pairs} from './question.js';

// What a page sets cannot be removed here, but these win over it. With no-store, Expires means nothing.
const CACHES = Object.entries({'Cache-Control': 'no-store', 'CDN-Cache-Control': 'no-store', 'Surrogate-Control': 'no-store',
  'Cloudflare-CDN-Cache-Control': 'no-store', 'X-Accel-Expires': '0'});

/**
 * Returns a middleware of Next.js: export default nextMiddleware(gate).
 *
 * Next.js does not tell the address of the connection. By default the middleware relies on
 * X-Forwarded-For alone, which the proxy in front of Next.js must set.
 * @param {import('./gate.js').Gate} gate
 * @param {{from?: (request: import('next/server.js').NextRequest) => string,
 *   app?: (request: import('next/server.js').NextRequest) => Response | Promise<Response>}} [options]
 */
export function nextMiddleware(gate, options = {}) {
  return async (request) => {
    const url = new URL(request.url);
    const lines = [...request.headers];
    const host = request.headers.get('host') ?? url.host;
    const proto = typeof gate.proto === 'function' ? gate.proto(request) : gate.proto;
    const visit = {method: request.method, uri: url.pathname + url.search, host, lines, signal: request.signal,
      proto: proto ?? (request.headers.get('x-forwarded-proto') === 'https' ? 'https' : 'http'),
      from: options.from?.(request) ?? request.headers.get('x-forwarded-for') ?? '',
      upgrade: request.headers.has('upgrade')};
    // Next.js gives each request but GET and HEAD a body.
    const hasBody = request.headers.has('transfer-encoding') || Number(request.headers.get('content-length') ?? 0) !== 0;
    if (isOwnPath(visit.uri) && hasBody) {
      if (!(Number(request.headers.get('content-length') ?? MOST_FORM + 1) <= MOST_FORM)) {
        return text(413, 'This form is too long.\n');
      }
      visit.body = Buffer.from(await request.arrayBuffer());
    }
    const d = await gate.decide(visit);
    if (d.answer) return relayed(d.answer, request);
    if (d.status) return text(d.status, d.text);
    if (d.admitted === 'bare' && hasBody) return text(503, 'A preflight has no body.\n');
    if (visit.upgrade && d.admitted !== 'session' && d.admitted !== 'open') {
      return text(503, 'Only visitors inside open a WebSocket.\n');
    }
    const headers = new Headers();
    for (const [name, value] of lines) {
      if (!isAlias(name) && !(d.admitted === 'bare' && /^(cookie|authorization)$/i.test(name))) headers.append(name, value);
    }
    if (d.pass) headers.set('headgate-pass', d.pass);
    if (d.admitted === 'bare') { // the answer must have no body, so the page is not asked
      return new Response(null, {status: 204, headers: {'Cache-Control': 'no-store'}});
    }
    const answer = await (options.app?.(request) ?? NextResponse.next({request: {headers}}));
    for (const cookie of d.setCookie ?? []) answer.headers.append('Set-Cookie', cookie);
    if (d.setCookie?.length) for (const [name, value] of CACHES) answer.headers.set(name, value);
    return answer;
  };
}

function text(status, body) {
  const headers = {'Content-Type': 'text/plain; charset=utf-8', 'Cache-Control': 'no-store'};
  if (status === 503) headers['Retry-After'] = '5';
  return new Response(body, {status, headers});
}

/** Returns headgate's answer to a visitor. Its body goes on as it comes. */
function relayed(answer, request) {
  const headers = new Headers();
  for (const [name, value] of endToEnd(pairs(answer.rawHeaders))) headers.append(name, value);
  const to = headers.get('location'); // Next.js reads absolute ones only, and makes this one relative again
  if (to) headers.set('location', new URL(to, request.url).href);
  const empty = request.method === 'HEAD' || [204, 205, 304].includes(answer.statusCode);
  if (empty) answer.resume();
  return new Response(empty ? null : Readable.toWeb(answer), {status: answer.statusCode, headers});
}
