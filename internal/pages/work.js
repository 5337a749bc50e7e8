// Solves a challenge of headgate, which is one of ALTCHA 2: it looks for a counter whose key begins
// with a prefix. The waiting page runs this file as a worker. A page of your own includes it with
// <script src="/.headgate/work.js" defer></script>: then it asks for the challenge itself.
const page = self.document;

async function solve(challenge, from = 0, progress = () => {}) {
  const {algorithm, cost, keyLength, keyPrefix, nonce, salt} = challenge.parameters;
  const bytes = (hex) => Uint8Array.from(hex.match(/../g), (x) => parseInt(x, 16));
  const password = new Uint8Array([...bytes(nonce), 0, 0, 0, 0]);
  const view = new DataView(password.buffer);
  const how = {name: 'PBKDF2', hash: algorithm.slice(7), salt: bytes(salt), iterations: cost};
  const key = async (counter) => {
    view.setUint32(password.length - 4, counter);
    const from = await crypto.subtle.importKey('raw', password, 'PBKDF2', false, ['deriveBits']);
    const bits = await crypto.subtle.deriveBits(how, from, keyLength * 8);
    return Array.from(new Uint8Array(bits), (x) => x.toString(16).padStart(2, 0)).join('');
  };
  // Four at a time: a call costs a fraction of what it computes.
  for (let first = from; ; first += 4) {
    progress(first);
    const keys = await Promise.all([0, 1, 2, 3].map((i) => key(first + i)));
    const i = keys.findIndex((k) => k.startsWith(keyPrefix));
    if (i >= 0) return btoa(JSON.stringify({challenge, solution: {counter: first + i, derivedKey: keys[i]}}));
  }
}

// A page that reloads goes on where it was. sessionStorage throws where storage is forbidden.
function memory(signature, next) {
  try {
    if (next) sessionStorage.headgateWork = JSON.stringify({signature, next});
    const last = JSON.parse(sessionStorage.headgateWork ?? '{}');
    return last.signature == signature ? last.next : 0;
  } catch {
    return 0;
  }
}

async function run(url) {
  const ask = async (headers) => (await (await fetch(location.href, {
    headers: {Accept: 'application/json', 'Headgate-Poll': '1', ...headers}, cache: 'no-store', redirect: 'manual',
  })).json()).headgate?.challenge;
  const challenge = await ask();
  if (!challenge) return;
  const worker = new Worker(url);
  worker.onmessage = async ({data}) => {
    if (typeof data == 'number') return memory(challenge.signature, data);
    worker.terminate();
    // Where too many are checked at this moment, once more. It came too late for another challenge.
    for (let n = 0, next; n < 4 && (next = await ask({'Headgate-Solution': data})); n++) {
      if (next.signature != challenge.signature) return run(url);
      await new Promise((done) => setTimeout(done, 2000));
    }
  };
  worker.postMessage({challenge, from: memory(challenge.signature)});
}

if (page) run(page.currentScript.src).catch(() => {});
else onmessage = async ({data}) => postMessage(await (data.challenge ?
  solve(data.challenge, data.from, (next) => next % 16 || postMessage(next)) : solve(data)));
