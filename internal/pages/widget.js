// Shows the widget of a third party where newcomers have its challenge, and sends its token. The
// waiting page runs this file. A page of your own includes it with {{{turnstile}}}, or with
// <div id="headgate-challenge"></div><script src="/.headgate/work.js" defer></script>.
{
  const kinds = {
    turnstile: ['turnstile', 'https://challenges.cloudflare.com/turnstile/v0/api.js'],
    hcaptcha: ['hcaptcha', 'https://js.hcaptcha.com/1/api.js'],
    recaptcha: ['grecaptcha', 'https://www.google.com/recaptcha/api.js'],
  };
  const ours = document.currentScript.id == 'widget';
  let place, api, id, token, made, sent = 0, wake;

  const ask = async (solution) => (await (await fetch(location.href, {
    headers: {Accept: 'application/json', 'Headgate-Poll': '1', ...solution && {'Headgate-Solution': solution}},
    cache: 'no-store', redirect: 'manual', signal: AbortSignal.timeout(20_000),
  })).json()).headgate;

  const send = (text) => {
    token = text;
    made = Date.now();
    sent = 0;
    wake?.();
  };

  const renew = () => {
    token = null;
    api?.reset(id);
  };

  function show({kind, sitekey, action}) {
    place = document.getElementById('headgate-challenge') ??
      (document.getElementById('main') ?? document.body).appendChild(document.createElement('div'));
    const [name, src] = kinds[kind];
    self.headgateWidget = () => {
      api = self[name];
      id = api.render(place, {sitekey, action, callback: send, 'expired-callback': () => send()});
    };
    document.head.append(Object.assign(document.createElement('script'), {
      src: src + '?render=explicit&onload=headgateWidget',
      // The server finds out whether the third party is away. A token counts once, so each one differs.
      onerror: () => send('unavailable-' + Math.random()),
    }));
  }

  async function run() {
    for (;;) {
      // A phone that slept has an old token, which some third parties call wrong. Tokens live 120 s or longer.
      if (token && Date.now() - made > 100_000) renew();
      const solution = token;
      const c = await ask(solution).then((v) => v?.challenge, () => ({}));
      if (!c) break;
      if (!place && c.kind) {
        // A page of your own has a Refresh header, which would take the widget away.
        if (!ours && document.readyState != 'complete') await new Promise((done) => addEventListener('load', done));
        if (!ours) stop();
        show(c);
      }
      // A token that nobody could check counts when it comes again; one that was refused never does.
      if (solution && solution == token && ++sent > 2) renew();
      await new Promise((done) => setTimeout(wake = done, token ? 2000 : 4000));
    }
    place?.replaceChildren();
    // With a fragment, replace() would only scroll.
    if (place && !ours) location.hash ? location.reload() : location.replace(location.href);
  }
  run();
}
