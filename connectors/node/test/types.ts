// What an application writes. types.test.js compiles it, and each line below a @ts-expect-error must
// be an error.
import http from 'node:http';
import fastify from 'fastify';
import byDefault, {Gate, headgate, type Options, type Session, type Visit} from 'headgate';
import {nextMiddleware} from 'headgate/next';

const options: Options = {decide: 'http://127.0.0.1:8083', rooms: ['shop'], proto: (request) => request.protocol};
const gate: Gate = headgate(options);
const other: Gate = byDefault();
const asked: number = new Gate({local: false}).stats.asked;

const server = http.createServer(gate.listener(async (request, response) => {
  const visit: Visit | undefined = request.headgate;
  const session: Session | null | undefined = visit?.session;
  const ended: boolean | undefined = await visit?.end('complete');
  response.end(`${session?.sub} ${ended} ${asked}`);
}));
server.on('upgrade', gate.upgrade((_request, socket) => socket.end()));
await fastify().register(gate.fastify);
const express: (request: http.IncomingMessage, response: http.ServerResponse, next: () => void) => void = other.express();
await gate.close();
export {express};
export default nextMiddleware(gate, {from: (request) => request.headers.get('x-address') ?? ''});

// @ts-expect-error
headgate({timeout: '5s'});
// @ts-expect-error
headgate({proto: 'ftp'});
// @ts-expect-error
headgate({failopen: true});
// @ts-expect-error
gate.stats = other.stats;
// @ts-expect-error
await gate.endSession(new http.IncomingMessage(null!), 'paid');
// @ts-expect-error
nextMiddleware(options);
// @ts-expect-error
nextMiddleware(gate, {from: (request) => request.nextUrl});
