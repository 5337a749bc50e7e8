#!/usr/bin/env bash
# Packs the package, installs it from the tarball beside the tests, and runs them against the real
# headgate (HEADGATE) with the real Express, Fastify and Next.js.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
npm ci --no-audit --no-fund --silent
TMP=$(mktemp -d)
trap 'rm -rf "$TMP"' EXIT
npm pack --silent --pack-destination "$TMP" >/dev/null
cp -r test "$TMP/test"
echo '{"private": true, "type": "module"}' >"$TMP/package.json"
(cd "$TMP" && npm install --silent --no-audit --no-fund --offline --legacy-peer-deps ./headgate-*.tgz)
for package in express fastify next react react-dom typescript @types; do ln -s "$PWD/node_modules/$package" "$TMP/node_modules/"; done
VECTORS=$PWD/../vectors.json
export VECTORS
cd "$TMP" && node --test --test-concurrency=2 --test-reporter=spec test/*.test.js
