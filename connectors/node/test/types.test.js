// The types, as an application sees them that installed the package.
import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {readFile} from 'node:fs/promises';
import path from 'node:path';
import {test} from 'node:test';
import {promisify} from 'node:util';
import * as main from 'headgate';
import * as next from 'headgate/next';

const here = import.meta.dirname;
const compiler = path.join(here, '../node_modules/typescript/bin/tsc');

for (const [kind, ...options] of [['nodenext', '--module', 'nodenext'],
  ['bundler', '--module', 'esnext', '--moduleResolution', 'bundler']]) {
  test(`types by ${kind}`, {timeout: 120_000}, async () => {
    const all = ['--noEmit', '--strict', '--target', 'es2022', '--types', 'node', ...options, 'types.ts'];
    const {stdout} = await promisify(execFile)(process.execPath, [compiler, ...all], {cwd: here}).catch((e) => e);
    const faults = stdout.split('\n').filter((line) => /^(types\.ts|\.\.\/node_modules\/headgate)\b/.test(line));
    assert.deepEqual(faults, []); // the others are of Next.js, which needs the types of React
  });
}

test('what the types name is there', async () => {
  for (const [file, module] of [['index', main], ['next', next]]) {
    const text = await readFile(path.join(here, `../node_modules/headgate/gate/${file}.d.ts`), 'utf8');
    const names = [...text.matchAll(/^export (?:class|function) (\w+)/gm)].map(([, name]) => name);
    assert.deepEqual(names.filter((name) => typeof module[name] !== 'function'), [], file);
    assert.ok(names.length > 0, file);
  }
});
