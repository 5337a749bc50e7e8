// The same application in node:http, Express and Fastify. It judges by itself who is inside.

import {once} from 'node:events';
import http from 'node:http';

import express from 'express';
import Fastify from 'fastify';
import {headgate} from 'headgate';

/** Judges what reaches the application. */
export class Judge {
  constructor(most = Infinity) {
    this.most = most;
    this.wrong = [];
    this.ends = new Map(); // by session: until when it has its slot
    this.order = []; // visitors, as they come in
    this.seen = []; // requests
  }

  see(req) {
    const now = Date.now() / 1000;
    const {session, token, admitted} = req.headgate;
    this.seen.push({url: req.originalUrl ?? req.url, headers: {...req.headers}, raw: [...req.rawHeaders], session, admitted});
    const visitor = Number(req.headers['x-visitor']);
    if (visitor && !this.order.includes(visitor)) this.order.push(visitor);
    if (!session) {
      if (admitted === 'session') this.wrong.push('a session without a pass');
      return;
    }
    if (req.headers['headgate-pass'] !== token) this.wrong.push('Headgate-Pass is another one');
    if (session.exp <= now - 1) this.wrong.push(`a pass that expired ${now - session.exp} s ago lets in`);
    this.ends.set(session.sub, Math.max(session.exp, this.ends.get(session.sub) ?? 0));
    const inside = [...this.ends.values()].filter((exp) => exp > now).length;
    if (inside > this.most) this.wrong.push(`${inside} visitors are inside`);
  }
}

const answer = (req) => JSON.stringify({url: req.originalUrl ?? req.url, sub: req.headgate.session?.sub ?? null});

const kinds = {
  http(gate, judge) {
    return http.createServer(gate.listener(async (req, res) => {
      judge.see(req);
      if (req.method === 'POST' && req.url.startsWith('/buy/')) {
        const ended = await req.headgate.end(req.url.slice(5));
        judge.ends.delete(req.headgate.session.sub);
        res.end(JSON.stringify({ended}));
        return;
      }
      if (req.url === '/head') {
        res.writeHead(200, 'Fine', ['Set-Cookie', 'a=1', 'Set-Cookie', 'b=2', 'Cache-Control', 'public', 'Expires', 'never']);
      } else {
        res.writeHead(200, {'Content-Type': 'application/json', 'Cache-Control': 'public, max-age=60', 'Set-Cookie': 'own=1'});
      }
      res.end(answer(req));
    }));
  },

  express(gate, judge) {
    const app = express();
    app.use(gate.express());
    app.use((req, _, next) => { judge.see(req); next(); });
    app.post('/buy/:as', async (req, res) => {
      const ended = await req.headgate.end(req.params.as);
      judge.ends.delete(req.headgate.session.sub);
      res.json({ended});
    });
    app.use((req, res) => {
      res.set('Cache-Control', 'public, max-age=60').cookie('own', '1').type('json').send(answer(req));
    });
    return http.createServer(app);
  },

  async fastify(gate, judge) {
    const app = Fastify({forceCloseConnections: true});
    await app.register(gate.fastify);
    app.addHook('onRequest', async (request) => { judge.see(request.raw); });
    app.post('/buy/:as', async (request) => {
      const ended = await gate.endSession(request, request.params.as);
      judge.ends.delete(request.raw.headgate.session.sub);
      return {ended};
    });
    app.setNotFoundHandler(async (request, reply) => {
      reply.code(200).header('Cache-Control', 'public, max-age=60').header('Set-Cookie', 'own=1').type('application/json');
      return answer(request.raw);
    });
    await app.ready();
    return app.server;
  },
};

export const names = Object.keys(kinds);

/** Starts an application behind a gate. */
export async function start(kind, hg, judge = new Judge(), options = {}) {
  const gate = headgate({decide: hg.url, ...options});
  const server = await kinds[kind](gate, judge);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {gate, judge, server, port: server.address().port, close: async () => {
    server.close();
    server.closeAllConnections();
    await gate.close();
  }};
}
