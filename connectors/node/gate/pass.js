// Verifies signed passes: docs/checkout.md.

import {createPublicKey, verify} from 'node:crypto';

const KEEP_KEYS = 300_000;
const ASK_AGAIN = 10_000; // for a key that is not known
const MOST_AHEAD = 60; // seconds that another clock may be ahead

/** Decodes a part of a token, or returns null if there is another way to write it. */
function decode(part) {
  const bytes = Buffer.from(part, 'base64url');
  return bytes.toString('base64url') === part ? bytes : null;
}

function object(part) {
  const bytes = decode(part);
  if (!bytes) return null;
  try {
    const value = JSON.parse(bytes.toString('utf8'));
    return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

const isText = (x) => typeof x === 'string' && x !== '';

/** Public keys, which are fetched when they are needed. */
export class Keys {
  /** @param {() => Promise<object>} load returns a JWK Set */
  constructor(load) {
    this.load = load;
    this.known = new Map();
    this.at = -Infinity;
    this.loading = null;
  }

  async find(kid) {
    const age = performance.now() - this.at;
    if (age > KEEP_KEYS || (!this.known.has(kid) && (this.loading || age > ASK_AGAIN))) {
      this.loading ??= this.fetch().finally(() => { this.loading = null; });
      await this.loading;
    }
    return this.known.get(kid);
  }

  async fetch() {
    this.at = performance.now();
    try {
      const {keys} = await this.load();
      const known = new Map();
      for (const jwk of keys) {
        if (jwk.kty === 'EC' && jwk.crv === 'P-256' && isText(jwk.kid)) {
          known.set(jwk.kid, createPublicKey({key: jwk, format: 'jwk'}));
        }
      }
      this.known = known;
    } catch {
      // headgate is down: the keys that are known stay, and the next pass asks again
      this.at = performance.now() - KEEP_KEYS + ASK_AGAIN;
    }
  }
}

/**
 * Returns the claims of a signed pass that is right, or null.
 * @param {string} token
 * @param {Keys} keys
 * @param {{rooms?: string[], now?: number}} [options] now in seconds
 */
export async function openPass(token, keys, options = {}) {
  const parts = token.split('.');
  if (parts.length !== 3) return null;
  const head = object(parts[0]);
  if (!head || head.alg !== 'ES256' || head.typ !== 'headgate-pass+jwt' || !isText(head.kid) || 'crit' in head) return null;
  const signature = decode(parts[2]);
  const claims = object(parts[1]);
  if (!claims || signature?.length !== 64) return null;
  const now = options.now ?? Date.now() / 1000;
  if (claims.iss !== 'headgate' || !isText(claims.aud) || !isText(claims.sub) || typeof claims.iat !== 'number' ||
      typeof claims.exp !== 'number' || !(claims.iat <= now + MOST_AHEAD) || !(claims.exp > now) ||
      (options.rooms && !options.rooms.includes(claims.aud))) {
    return null;
  }
  const key = await keys.find(head.kid);
  if (!key) return null;
  const signed = Buffer.from(`${parts[0]}.${parts[1]}`, 'latin1');
  return verify('sha256', signed, {key, dsaEncoding: 'ieee-p1363'}, signature) ? claims : null;
}
