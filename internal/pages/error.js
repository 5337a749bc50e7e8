// The error page's script: asks again after the time the page names, and up to half as long
// again, so that those who were cut off together do not come back together. It asks with GET;
// with a fragment in the address replace() would only scroll.
const wait = document.getElementById('main').dataset.again * 1000 * (1 + Math.random() / 2);
setTimeout(() => location.hash ? location.reload() : location.replace(location.href), wait);
