import type {IncomingMessage, RequestListener, ServerResponse} from 'node:http';
import type {Duplex} from 'node:stream';

export interface Options {
  /** The address decide.listen of headgate. Default http://127.0.0.1:8083. */
  decide?: string;
  /** Milliseconds to wait for headgate's answer. Default 5000. */
  timeout?: number;
  /** Lets everybody in while headgate is down. Default false. */
  failOpen?: boolean;
  /** The rooms of this application; passes of others let nobody in. Default all. */
  rooms?: string[];
  /** The scheme of the visitor's request, if a proxy in front ends TLS. Default that of the connection. */
  proto?: 'http' | 'https' | ((request: any) => 'http' | 'https');
  /** How many answers are kept. Default 10000. */
  memory?: number;
  /** How many connections to headgate there are at most. Default 256. */
  connections?: number;
  /** false: ask about each request. Default true. */
  local?: boolean;
}

/** The claims of a signed pass. */
export interface Session {
  /** The session: the same in all its passes. */
  sub: string;
  /** The room. */
  aud: string;
  /** Seconds since 1970. The slot is the session's until exp. */
  exp: number;
  iat: number;
  /** When the visitor was admitted, in seconds since 1970. */
  entered: number;
  [claim: string]: unknown;
}

export type As = 'complete' | 'abandon';

/** What an application knows of a request that has passed: request.headgate. */
export interface Visit {
  admitted: 'session' | 'uncounted' | 'bare' | 'open';
  /** null: the request belongs to no session, or the room has no checkout.pass. */
  session: Session | null;
  /** The signed pass, or "". */
  token: string;
  /** Ends the session. It returns whether it has ended now. */
  end(as?: As): Promise<boolean>;
}

export interface Stats {asked: number; local: number; batches: number; down: number}

export class Gate {
  constructor(options?: Options);
  readonly stats: Stats;
  /** http.createServer(gate.listener(app)) */
  listener(app: RequestListener): RequestListener;
  /** app.use(gate.express()) */
  express(): (request: any, response: any, next: (error?: unknown) => void) => void;
  /** app.register(gate.fastify) */
  readonly fastify: (app: any, options: any, done: (error?: Error) => void) => void;
  /** server.on('upgrade', gate.upgrade(listener)) */
  upgrade(app: (request: IncomingMessage, socket: Duplex, head: Buffer) => void):
    (request: IncomingMessage, socket: Duplex, head: Buffer) => void;
  /** Lets a request pass, or answers it: false. */
  pass(request: IncomingMessage, response: ServerResponse): Promise<boolean>;
  /** Ends the session of a request that has passed. It returns whether it has ended now. */
  endSession(request: IncomingMessage | {raw: IncomingMessage}, as?: As): Promise<boolean>;
  /** Sends what is left to say, and closes the connections. */
  close(): Promise<void>;
}

export function headgate(options?: Options): Gate;
export default headgate;

declare module 'node:http' {
  interface IncomingMessage {
    headgate?: Visit;
  }
}
