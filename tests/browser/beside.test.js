// The waiting page behind a proxy that asks headgate and forwards itself, with the configuration
// that headgate edges prints.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import {after, before, test} from 'node:test';
import {stateOf} from './challenged.js';
import {arrive, fill, freePort, heading, isInside, number, openBrowser, startRoom, until} from './room.js';

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

// proxies tell how each is started with a configuration in a folder, at a port.
const proxies = {
  nginx: (folder, config, port) => {
    const kinds = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
    const file = path.join(folder, 'nginx.conf');
    writeFileSync(file, `daemon off; pid ${folder}/pid; error_log stderr; worker_processes 1;
events {}
http {
access_log off;
${kinds.map((kind) => `${kind}_temp_path ${folder}/${kind};`).join('\n')}
${replaced(config, 'listen 80 default_server', `listen 127.0.0.1:${port} default_server`)}
}`);
    return ['nginx', '-e', 'stderr', '-c', file];
  },
  envoy: (folder, config, port) => {
    const file = path.join(folder, 'envoy.yaml');
    writeFileSync(file, replaced(config, 'address: 0.0.0.0, port_value: 80}', `address: 127.0.0.1, port_value: ${port}}`));
    return [process.env.ENVOY || 'envoy', '--use-dynamic-base-id', '--concurrency', '1', '-l', 'warning', '-c', file];
  },
};

function replaced(text, before, now) {
  assert.ok(text.includes(before), `the configuration lacks ${before}`);
  return text.replace(before, now);
}

// startBeside starts a room, and a proxy that asks it.
async function startBeside(t, name, keys = {}) {
  const [decide, envoy, port] = [await freePort(), await freePort(), await freePort()];
  const room = await startRoom(t, {session_duration: '6s', ...keys}, {
    decide: {listen: `127.0.0.1:${decide}`}, envoy: {listen: `127.0.0.1:${envoy}`, decide: true},
    trusted_proxies: ['127.0.0.1'],
  });
  const folder = mkdtempSync(path.join(os.tmpdir(), 'headgate-proxy-'));
  const [program, ...args] = proxies[name](folder, await room.command('edges', name, '--config', room.file), port);
  const proxy = spawn(program, args, {stdio: ['ignore', 'pipe', 'pipe']});
  let log = '';
  proxy.stdout.on('data', (text) => log += text);
  proxy.stderr.on('data', (text) => log += text);
  const ended = new Promise((done) => proxy.once('close', done).once('error', (fault) => done(log += fault)));
  t.after(async () => {
    proxy.kill();
    await ended;
    rmSync(folder, {recursive: true, force: true});
  });
  await until(`${name} listens`, async () => {
    assert.equal(proxy.exitCode, null, `${name} ended:\n${log}`);
    const socket = net.connect(port, '127.0.0.1');
    try {
      await once(socket, 'connect');
      return true;
    } catch {
      return false;
    } finally {
      socket.destroy();
    }
  });
  return {...room, url: `http://127.0.0.1:${port}`};
}

for (const name of Object.keys(proxies)) {
  test(`behind ${name} the page waits, polls, moves up, and goes in where it wanted to go`, async (t) => {
    const room = await startBeside(t, name);
    const inside = await fill(t, browser, room);
    const address = `${room.url}/buy/%C3%A9?show=42&seat=A%2F7#part`;
    const first = await arrive(t, browser, room.url);
    const second = await arrive(t, browser, address);
    assert.equal(first.answer.status(), 503);
    assert.equal(await heading(first.page), 'You are next');
    assert.equal(await heading(second.page), 'You are in line');
    assert.equal(await number(second.page, 'position'), 2);
    const polls = [];
    second.page.on('response', (answer) => {
      if (answer.request().headers()['headgate-poll']) polls.push(answer.status());
    });
    const ticket = await second.page.locator('#ticket').textContent();
    await until('it polls', () => polls.length >= 2);

    await inside[0].leave(); // no longer asks: the proxy does not relay the origin's command
    await until('the first is in', () => isInside(first.page));
    await until('the second is next', async () => await heading(second.page) === 'You are next');
    assert.equal(await second.page.locator('#ticket').textContent(), ticket, 'the same ticket');
    await inside[1].leave();
    await until('the second is in', () => isInside(second.page));
    assert.equal(second.page.url(), address);
    assert.equal(await second.page.locator('#asked').textContent(), 'GET /buy/%C3%A9?show=42&seat=A%2F7');
    await second.page.reload();
    assert.ok(await isInside(second.page), 'who is inside stays inside');
    assert.deepEqual([...new Set(polls)], [200]);
    for (const visitor of [first, second]) assert.deepEqual(visitor.faults, []);
  });

  test(`behind ${name} the page solves the challenge of its turn`, async (t) => {
    const room = await startBeside(t, name, {challenge: {kind: 'work', on: 'claim'}});
    const inside = await fill(t, browser, room);
    const none = await arrive(t, browser, room.url, {javaScriptEnabled: false});
    await until('one waits', async () => (await stateOf(room)).waiting_users == 1);
    const second = await arrive(t, browser, room.url);
    await until('the second has solved it', async () => (await stateOf(room)).challenges.solved > 0);
    await inside[0].leave();
    await until('who has solved it is in', () => isInside(second.page));
    assert.equal(await isInside(none.page), false, 'a slot for nothing');
    await inside[1].leave();
    await until('who has not is in', () => isInside(none.page));
    assert.deepEqual([...none.faults, ...second.faults], []);
  });
}
