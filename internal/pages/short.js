// The script of the short pages, of which most move a place. The one with the link keeps its place as the waiting
// page does, and follows it in, or away.
const main = document.getElementById('main'), {poll, path} = main.dataset;
const link = document.getElementById('link'), copy = document.getElementById('copy');
async function ask() {
  let wait = 5;
  try {
    const answer = await fetch(location.href, {
      headers: {Accept: 'application/json', 'Headgate-Poll': '1'}, cache: 'no-store', redirect: 'manual',
    });
    const v = (await answer.json()).headgate;
    if (v.state == 'called') return location.replace(path);
    if (v.state == 'moved') return location.reload();
    wait = v.poll_after_seconds;
  } catch {
  }
  setTimeout(ask, wait * 1000);
}
if (poll) setTimeout(ask, poll * 1000);

// Browsers have a clipboard in secure contexts only: elsewhere the link is selected.
if (copy) {
  copy.hidden = false;
  copy.onclick = async () => {
    getSelection().selectAllChildren(link);
    await navigator.clipboard?.writeText(link.textContent);
    copy.ariaPressed = true;
  };
}
