// Attacks on the operator's browser: by a tenant's page that is previewed, by a page at another port
// of the same host, and by the site behind a room. The operator has signed in to the dashboard.
import assert from 'node:assert/strict';
import {once} from 'node:events';
import http from 'node:http';
import {after, before, describe, test} from 'node:test';
import {open, signIn} from './board.js';
import {insecureHost, openBrowser, startRoom, until} from './room.js';

let browser;
before(async () => browser = await openBrowser());
after(() => browser?.close());

// serve starts a site of our own; answer gets each request.
async function serve(t, answer) {
  const server = http.createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.closeAllConnections() ?? server.close());
  return `http://127.0.0.1:${server.address().port}`;
}

// usersOf reads the limit of a room, as the machine itself may.
const usersOf = async (room, name) => (await (await fetch(`${room.admin}/v1/rooms/${name}`)).json()).total_active_users;

// attack runs in a hostile page. It tries to be the operator, and writes what it got into the title.
async function attack(admin) {
  const got = {};
  const attempt = async (name, run) => {
    try {
      got[name] = String(await run() ?? '');
    } catch {
      got[name] = '';
    }
  };
  const change = (type) => ({method: type ? 'POST' : 'PATCH', credentials: 'include', mode: type ? 'no-cors' : 'cors',
    headers: {'Content-Type': type || 'application/json'}, body: '{"total_active_users": 99}'});
  await attempt('cookie', () => document.cookie);
  await attempt('storage', () => localStorage.setItem('x', 'kept') ?? localStorage.getItem('x'));
  await attempt('parent', () => parent === self ? '' : parent.document.title);
  await attempt('top', () => top === self ? '' : top.document.title);
  await attempt('worker', async () => (await navigator.serviceWorker.register(`${admin}/preview/x`)).scope);
  await attempt('session', async () => (await fetch(`${admin}/dashboard/session?by=attack`, {credentials: 'include'})).text());
  await attempt('rooms', async () => (await fetch(`${admin}/v1/rooms?by=attack`, {credentials: 'include'})).text());
  await attempt('change', async () => (await fetch(`${admin}/dashboard/api/v1/rooms/main?by=attack`, change())).status);
  for (const type of ['text/plain', 'application/x-www-form-urlencoded']) {
    await attempt(`blind ${type}`, async () => (await fetch(`${admin}/dashboard/api/v1/reload?by=attack`, change(type))).status);
  }
  await attempt('sign out', async () => (await fetch(`${admin}/dashboard/session?by=attack`, {method: 'DELETE', credentials: 'include'})).status);
  await attempt('stream', () => new Promise((done, fail) => {
    const source = new EventSource(`${admin}/dashboard/live?by=attack`, {withCredentials: true});
    source.onmessage = (e) => done(e.data);
    source.onerror = fail;
  }));
  await attempt('window', async () => {
    const w = open(`${admin}/dashboard/`);
    while (w && !w.closed && !w.document.title) await new Promise((done) => setTimeout(done, 20)); // throws once it is another origin's
    return w?.document?.title;
  });
  await attempt('form', () => {
    const form = document.createElement('form'), frame = document.createElement('iframe');
    Object.assign(form, {method: 'POST', action: `${admin}/dashboard/api/v1/reload?by=attack&form`, target: 'sink', enctype: 'text/plain'});
    frame.name = 'sink';
    document.body.append(frame, form);
    form.submit();
  });
  delete got['blind text/plain'], delete got['blind application/x-www-form-urlencoded']; // opaque: judged by what came of it
  document.title = `tried ${JSON.stringify(got)}`;
}

// gotBy is what the attack of a page has got, once it has tried all.
async function gotBy(page) {
  await until('the page has tried all', async () => (await page.title().catch(() => '')).startsWith('tried '));
  return Object.fromEntries(Object.entries(JSON.parse((await page.title()).slice(6))).filter(([, v]) => v !== ''));
}

// reloads is when the configuration was read last: a reload that was forged shows.
const reloads = async (room) => (await (await fetch(`${room.admin}/v1/status`)).json()).last_reload.at;

// tenant makes a room of the zone, with a page and the first policy that is taken.
async function tenant(room, html, policies) {
  const token = await room.token(`write:zone/${insecureHost}`);
  const ask = (path, body) => fetch(`${room.admin}/client/v4/zones/${insecureHost}/waiting_rooms${path}`, {
    method: 'POST', headers: {Authorization: `Bearer ${token}`, 'Content-Type': 'application/json'}, body: JSON.stringify(body),
  });
  for (const policy of policies) {
    const answer = await ask('', {
      name: 'tenant', host: insecureHost, total_active_users: 1, new_users_per_minute: 1, custom_page_html: html,
      description: '<img src=x onerror="window.pwned=1">',
      headgate: {title: '<script>window.pwned=1</script>', message: 'javascript:alert(1) <svg onload="window.pwned=1">', page: {content_security_policy: policy}},
    });
    if (answer.ok) return (await (await ask('/preview', {custom_html: html})).json()).result.preview_url;
    assert.equal(answer.status, 400, await answer.text());
  }
  assert.fail('no policy is taken');
}

describe("the operator's session", {concurrency: 4}, () => {
  test("is not for the page of a zone's token", async (t) => {
    const room = await startRoom(t, {host: 'elsewhere.test'}, (origin) => ({zones: [{name: insecureHost, origin}]}));
    const policy = "default-src * 'unsafe-inline' 'unsafe-eval' data: blob:";
    const html = `<!doctype html><title>Wait</title><p>Wait here</p><script>(${attack})(location.protocol + '//' + location.host)</script>`;
    const address = await tenant(room, html, [`sandbox allow-scripts allow-same-origin allow-popups allow-forms; ${policy}`, policy]);
    const board = await open(t, browser, room);
    await signIn(board, await room.token('write'));
    const began = await reloads(room);
    for (const url of [`${room.admin}/v1/rooms/tenant/preview`, `${room.admin}/dashboard/api/v1/rooms/tenant/preview`, address]) {
      const page = await board.context.newPage();
      await page.goto(url);
      assert.deepEqual(await gotBy(page), {}, url);
      assert.equal(await page.evaluate(() => self.origin), 'null', url);
      await page.close();
    }
    assert.equal(await usersOf(room, 'main'), 2, 'the page has changed a room');
    assert.equal(await reloads(room), began, 'the page has reloaded the configuration');

    // In the dashboard it runs no script at all.
    const asked = [];
    board.page.on('request', (request) => request.url().includes('by=attack') && asked.push(request.url()));
    await board.go('rooms/tenant/page');
    const frame = board.page.frameLocator('iframe');
    await frame.getByText('Wait here').waitFor();
    for (const view of ['', 'rooms/tenant', 'rooms/tenant/events', 'audit']) await board.go(view);
    assert.deepEqual(asked, []);
    assert.equal(await board.page.evaluate(() => window.pwned), undefined);
    await board.page.getByRole('button', {name: 'Sign out'}).waitFor(); // still signed in
  });

  test('is not for a page at another port of the host', async (t) => {
    const room = await startRoom(t);
    const board = await open(t, browser, room);
    await signIn(board, await room.token('write'));
    const began = await reloads(room);
    const other = await serve(t, (_, response) => {
      response.setHeader('Content-Type', 'text/html');
      response.end(`<!doctype html><title>Other</title><body><iframe src="${room.admin}/dashboard/"></iframe>` +
        `<iframe src="${room.admin}/v1/rooms/main/preview"></iframe><script>(${attack})(${JSON.stringify(room.admin)})</script>`);
    });
    const page = await board.context.newPage();
    const asked = [], answers = [];
    page.on('request', (request) => request.url().includes('by=attack') && asked.push(`${request.method()} ${new URL(request.url()).pathname}`));
    page.on('response', (answer) => answer.url().includes('by=attack') && answers.push(answer));
    await page.goto(other);
    const got = await gotBy(page);
    delete got.storage; // its own
    assert.deepEqual(got, {});
    await until('the form is answered', () => answers.some((answer) => answer.url().endsWith('form')));
    assert.equal(asked.filter((ask) => ask === 'POST /dashboard/api/v1/reload').length, 3);
    for (const answer of answers) { // those that the browser hid from us are judged by what came of them
      const said = answer.ok() ? await answer.text().catch(() => '') : '';
      assert.ok(!answer.ok() || /"signed_in":false/.test(said), `${answer.url()} is answered ${answer.status()} ${said}`);
    }
    for (const frame of page.frames().slice(1)) {
      assert.doesNotMatch(await frame.content().catch(() => ''), /Test room|headgate<\/title>/, `${frame.url()} is in a frame`);
    }
    assert.equal(await usersOf(room, 'main'), 2);
    assert.equal(await reloads(room), began);
    await board.page.reload();
    await board.page.getByRole('button', {name: 'Sign out'}).waitFor(); // still signed in
  });

  test('is not for the site behind a room of the same host', async (t) => {
    const seen = [];
    const origin = await serve(t, (request, response) => {
      seen.push(request.headers.cookie ?? '');
      response.setHeader('Content-Type', 'text/html');
      response.end('<!doctype html><title>Inside</title>');
    });
    const room = await startRoom(t, {origin});
    const board = await open(t, browser, room);
    await signIn(board, await room.token('write'));
    await board.context.addCookies([{name: 'theme', value: 'dark', url: room.url}]);
    const page = await board.context.newPage();
    await page.goto(room.url);
    await until('it is inside', async () => await page.title() === 'Inside');
    const [request] = await Promise.all([page.waitForRequest(`${room.url}/`), page.reload()]);
    const sent = (await request.allHeaders()).cookie;
    assert.match(sent, /headgate-session=/, 'the browser did not send the cookie: the test shows nothing');
    assert.ok(seen.length > 0);
    for (const cookie of seen) assert.ok(['', 'theme=dark'].includes(cookie), `the origin got ${cookie.replace(/=\w+/g, '=…')}`);
  });
});
