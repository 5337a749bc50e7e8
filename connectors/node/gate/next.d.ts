import type {NextRequest} from 'next/server.js';
import type {Gate} from './index.js';

export interface NextOptions {
  /** X-Forwarded-For of the request, if Next.js is behind no proxy that sets it. */
  from?: (request: NextRequest) => string;
  /** The middleware of the application, for requests that have passed. Default NextResponse.next(). */
  app?: (request: NextRequest) => Response | Promise<Response>;
}

/** export default nextMiddleware(gate); in proxy.js, or in middleware.js with the Node.js runtime */
export function nextMiddleware(gate: Gate, options?: NextOptions): (request: NextRequest) => Promise<Response>;
