/** Tells what has reached the application. */
async function tell(request) {
  const body = await request.text();
  const {pathname, search} = request.nextUrl;
  const told = {method: request.method, url: pathname + search, headers: Object.fromEntries(request.headers), body};
  return Response.json(told, {headers: {'Cache-Control': 'public, max-age=60', Expires: 'Thu, 01 Jan 2099 00:00:00 GMT',
    'CDN-Cache-Control': 'max-age=60', 'X-Accel-Expires': '60', 'Set-Cookie': 'own=1'}});
}

export {tell as GET, tell as POST};
