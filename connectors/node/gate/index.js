// Adapters for node:http, Express and Fastify.

import {Gate as Core} from './gate.js';
import {MOST_FORM, endToEnd, forwardedFor, isAlias, isOwnPath, pairs, valuesOf} from './question.js';

const TEXT = {'Content-Type': 'text/plain; charset=utf-8', 'Cache-Control': 'no-store'};
const CACHES = ['expires', 'cdn-cache-control', 'surrogate-control', 'cloudflare-cdn-cache-control', 'x-accel-expires'];

export class Gate extends Core {
  /**
   * Puts the gate in front of a listener: http.createServer(gate.listener(app)).
   * @param {import('node:http').RequestListener} app
   */
  listener(app) {
    return (req, res) => {
      this.pass(req, res).then((passes) => { if (passes) app(req, res); }, (error) => fail(res, error));
    };
  }

  /** A middleware of Express, or Connect: app.use(gate.express()), before all others. */
  express() {
    return (req, res, next) => {
      this.pass(req, res).then((passes) => { if (passes) next(); }, (error) => fail(res, error));
    };
  }

  /** A plugin of Fastify: app.register(gate.fastify), before all routes. */
  get fastify() {
    const plugin = (app, _, done) => {
      app.addHook('onRequest', async (request, reply) => {
        let passes = false;
        try {
          passes = await this.pass(request.raw, reply.raw);
        } catch (error) {
          fail(reply.raw, error);
        }
        if (!passes) reply.hijack();
      });
      app.addHook('onClose', () => this.close());
      done();
    };
    plugin[Symbol.for('skip-override')] = true; // the hooks are for the whole application
    plugin[Symbol.for('fastify.display-name')] = 'headgate';
    return plugin;
  }

  /**
   * Puts the gate in front of upgrades: server.on('upgrade', gate.upgrade(listener)).
   * @param {(req: import('node:http').IncomingMessage, socket: import('node:stream').Duplex, head: Buffer) => void} app
   */
  upgrade(app) {
    return (req, socket, head) => {
      const gone = () => socket.destroy();
      socket.on('error', gone);
      this.decideAbout(req, socket, {upgrade: true}).then(async (d) => {
        if (d.admitted === 'session' || d.admitted === 'open') {
          socket.off('error', gone);
          adopt(this, req, d);
          app(req, socket, head);
          return;
        }
        await refuseUpgrade(socket, d);
      }).catch(gone);
    };
  }

  /**
   * Ends the session of a request that has passed: its slot is free for the next visitor.
   * @param {'complete' | 'abandon'} [as]
   * @returns {Promise<boolean>} whether it has ended now; false if it was over, or if there is none
   */
  async endSession(req, as = 'complete') {
    const {session, token} = (req.raw ?? req).headgate ?? {};
    return session ? this.end(token, session, as) : false;
  }

  /** Decides about a request of node:http. */
  async decideAbout(req, emitter, extra = {}) {
    const lines = pairs(req.rawHeaders);
    const hosts = valuesOf(lines, 'host');
    const gone = new AbortController();
    const abort = () => gone.abort();
    emitter.once('close', abort);
    const proto = typeof this.proto === 'function' ? this.proto(req) : this.proto;
    const visit = {method: req.method, uri: req.originalUrl ?? req.url, host: hosts.length === 1 ? hosts[0] : '',
      proto: proto ?? (req.socket.encrypted ? 'https' : 'http'), from: forwardedFor(lines, req.socket.remoteAddress),
      lines, signal: gone.signal, ...extra};
    try {
      if (!extra.upgrade && isOwnPath(visit.uri) && hasBody(req)) {
        visit.body = await readForm(req);
        if (!visit.body) return {status: 413, text: 'This form is too long.\n'};
      }
      const d = await this.decide(visit);
      if (d.admitted && visit.body) return {status: 404, text: 'There is nothing here.\n'}; // its body is read
      return d;
    } finally {
      emitter.off('close', abort);
    }
  }

  /** Lets a request pass, or answers it. */
  async pass(req, res) {
    if (!('_headgate' in req)) req._headgate = true; // once, also if the middleware is there twice
    else return true;
    const d = await this.decideAbout(req, res);
    if (d.answer) {
      await relay(d.answer, req, res);
      return false;
    }
    if (d.status) {
      res.writeHead(d.status, d.status === 503 ? {...TEXT, 'Retry-After': '5'} : TEXT);
      res.end(d.text);
      return false;
    }
    if (d.admitted === 'bare' && hasBody(req)) {
      res.writeHead(503, TEXT);
      res.end('A preflight has no body.\n');
      return false;
    }
    adopt(this, req, d);
    if (d.admitted === 'bare') bare(req, res);
    else if (d.setCookie?.length) addCookies(res, d.setCookie);
    return true;
  }
}

/**
 * Makes a gate.
 * @param {ConstructorParameters<typeof Core>[0]} [options]
 */
export const headgate = (options) => new Gate(options);
export default headgate;

const hasBody = (req) => req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) !== 0;

/** Reads a form, or returns null if it is too long. */
async function readForm(req) {
  if (Number(req.headers['content-length'] ?? 0) > MOST_FORM) return null;
  const parts = [];
  let size = 0;
  for await (const part of req) {
    size += part.length;
    if (size > MOST_FORM) return null;
    parts.push(part);
  }
  return Buffer.concat(parts);
}

/** Gives the application what it may know of the visitor's session, and nothing that the visitor has made up. */
function adopt(gate, req, d) {
  const {headers, headersDistinct, rawHeaders} = req; // Node.js makes them from rawHeaders on first use
  const wanted = (name) => !isAlias(name) && !(d.admitted === 'bare' && /^(cookie|authorization)$/i.test(name));
  for (const name of Object.keys(headers)) if (!wanted(name)) delete headers[name];
  for (const name of Object.keys(headersDistinct)) if (!wanted(name)) delete headersDistinct[name];
  const lines = pairs(rawHeaders).filter(([name]) => wanted(name));
  if (d.pass) {
    headers['headgate-pass'] = d.pass;
    headersDistinct['headgate-pass'] = [d.pass];
    lines.push(['Headgate-Pass', d.pass]);
  }
  rawHeaders.splice(0, rawHeaders.length, ...lines.flat());
  req.headgate = {admitted: d.admitted, session: d.claims ?? null, token: d.pass ?? '',
    end: (as) => gate.endSession(req, as)};
}

/** Calls change once, before the headers of an answer are sent. */
function beforeHeaders(res, change) {
  const {writeHead} = res;
  res.writeHead = function write(status, ...rest) {
    res.writeHead = writeHead;
    const reason = typeof rest[0] === 'string' ? rest.shift() : undefined;
    const [given] = rest;
    const lines = Array.isArray(given) ? (Array.isArray(given[0]) ? given : pairs(given)) : Object.entries(given ?? {});
    for (const [name] of lines) res.removeHeader(name);
    for (const [name, value] of lines) if (value !== undefined) res.appendHeader(name, value);
    change();
    return reason === undefined ? writeHead.call(res, status) : writeHead.call(res, status, reason);
  };
}

/** Adds headgate's cookies to an answer, which no cache may keep then. */
function addCookies(res, cookies) {
  beforeHeaders(res, () => {
    for (const cookie of cookies) res.appendHeader('Set-Cookie', cookie);
    for (const name of CACHES) res.removeHeader(name);
    res.setHeader('Cache-Control', 'no-store');
  });
}

/** Takes from a preflight all by which it could act as its visitor, and from its answer the body. */
function bare(req, res) {
  beforeHeaders(res, () => {
    for (const name of ['Set-Cookie', 'Content-Length', 'Content-Encoding', 'Transfer-Encoding']) res.removeHeader(name);
  });
  const {end} = res;
  const called = (args) => args.find((x) => typeof x === 'function');
  res.write = (...args) => {
    if (!res.headersSent) res.writeHead(res.statusCode);
    called(args)?.();
    return true;
  };
  res.end = (...args) => end.call(res, called(args));
}

/** Sends headgate's answer to the visitor. */
async function relay(answer, req, res) {
  for (const name of res.getHeaderNames()) if (name !== 'x-powered-by') res.removeHeader(name);
  for (const [name, value] of endToEnd(pairs(answer.rawHeaders))) res.appendHeader(name, value);
  res.writeHead(answer.statusCode, answer.statusMessage);
  if (req.method === 'HEAD') {
    answer.resume();
    res.end();
    return;
  }
  res.once('close', () => answer.destroy()); // the visitor may have gone
  answer.once('error', () => res.destroy());
  answer.pipe(res);
}

/** Writes an answer to a request that would have opened a WebSocket. */
async function refuseUpgrade(socket, d) {
  const lines = d.answer ? endToEnd(pairs(d.answer.rawHeaders)) : Object.entries(TEXT);
  let body = Buffer.from(d.text ?? 'Only visitors inside open a WebSocket.\n');
  if (d.answer) {
    const parts = [];
    for await (const part of d.answer) parts.push(part); // a page has some 20 KB
    body = Buffer.concat(parts);
  }
  const status = d.answer?.statusCode ?? d.status ?? 503;
  const head = lines.filter(([name]) => name.toLowerCase() !== 'content-length')
    .map(([name, value]) => `${name}: ${value}\r\n`).join('');
  socket.write(`HTTP/1.1 ${status} ${d.answer?.statusMessage ?? 'No'}\r\n${head}Content-Length: ${body.length}\r\n` +
    'Connection: close\r\n\r\n', 'latin1');
  socket.end(body);
}

/** Ends a request about which nothing was decided: most often its visitor has gone. */
function fail(res, error) {
  if (error?.name !== 'AbortError' && error?.code !== 'ECONNRESET') process.emitWarning(error);
  res.destroy();
}
