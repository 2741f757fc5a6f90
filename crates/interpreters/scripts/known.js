// Waits in known stacks, and writes them: for each thread a line `thread TID SHAPE`, and for each frame
// of JavaScript up to the call from C++ a line `FUNCTION<tab>SCRIPT<tab>LINE`, the innermost first; at
// the end `ready`.
//
// known.js [plain|direct]: with `plain`, no lines are written, and V8 has not computed any. With `direct`,
// one more thread calls other code from built-in code without a frame for that: a pattern that never
// matches. Before V8 11, a call of C++ by the pattern removes the frame.
'use strict';
const fs = require('fs');
const { Worker, isMainThread, workerData } = require('worker_threads');

const isPlain = process.argv[2] === 'plain';
const isDirect = process.argv[2] === 'direct' && parseInt(process.versions.v8) > 10;
const cell = isMainThread ? new Int32Array(new SharedArrayBuffer(8)) : workerData.cell;
const shape = isMainThread ? 'main' : workerData.shape;

function tid() {
  return fs.readlinkSync('/proc/thread-self').split('/').pop();
}

function frames() {
  const prepare = Error.prepareStackTrace;
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = Infinity;
  Error.prepareStackTrace = (_, sites) => sites;
  const sites = new Error().stack.slice(2);
  Error.prepareStackTrace = prepare;
  Error.stackTraceLimit = limit;
  // V8's own functions have no line. The names of node's own are not those of their code.
  return sites.filter((site) => site.getLineNumber() !== null).map((site) => {
    const file = site.getFileName() ?? '';
    const own = site.isEval() && site.getFunctionName() === 'eval' ? '' : site.getFunctionName();
    const name = file.startsWith('node:') ? '*' : own || '(anonymous)';
    return `${name}\t${file}\t${site.getLineNumber()}\n`;
  });
}

function report() {
  const text = isPlain ? '' : frames().join('');
  fs.writeSync(1, `thread ${tid()} ${shape}\n${text}${isMainThread ? 'ready\n' : ''}`);
  Atomics.add(cell, 1, 1); Atomics.notify(cell, 1);
}

function wait() {
  report(); Atomics.wait(cell, 0, 0);
  return cell[0];
}

function match() {
  const pattern = /^(a+)+$/;
  // V8 compiles it.
  for (let i = 0; i < 10; i++) pattern.exec('aa');
  // Short, and one piece: for others, V8 calls more of C++.
  const text = 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab';
  report(); return pattern.exec(text);
}

class Shape {
  #depth = 3;
  method(n) {
    return n > 0 ? this.method(n - 1) + 1 : Shape.still(() => wait());
  }

  static still(inner) {
    return this.prototype.value(inner);
  }

  value(inner) {
    return inner();
  }
}

const object = {};
object.assigned = function () {
  return new Shape().method(3);
};

function sorted() {
  let found;
  [2, 1].sort((a, b) => { found ??= object.assigned(); return a - b; });
  return found;
}

// C++ calls these functions.
function revived() {
  let found;
  JSON.parse('[1]', (key, value) => {
    if (key === '0') found = sorted();
    return value;
  });
  return found;
}

const getter = { toJSON() { return revived(); } };

function* generator() {
  yield [1].map(() => {
    return JSON.stringify(getter);
  });
}

function ä人() {
  const made = new Function('inner', 'return 1 +\n inner();');
  return made(() => [...generator()]);
}

const long = new Function(`return function ${'n'.repeat(600)}(inner) { return inner(); }`)();

// Compiled without optimization, and optimized: their frames have other code.
function baseline(n, inner) {
  return n > 0 ? baseline(n - 1, inner) : inner();
}

function optimized(inner) {
  let sum = 0;
  for (let i = 0; i < 20; i++) { sum += i; }
  return inner() + sum;
}

// Functions that are inlined, one into the other, and these into the third.
function third(inner) {
  return inner();
}

function second(inner) {
  return 1 +
    third(inner);
}

function inlining(inner) {
  let sum = 0;
  for (let i = 0; i < 20; i++) { sum += i; }
  return second(inner) + sum;
}

function nothing() {
  return 0;
}

// Entered in its loop while that runs, with functions that are inlined.
function looping(inner, optimize) {
  let found;
  for (let i = 0; i < 10; i++) {
    if (i === 5) optimize();
    for (let j = 0; j < 2; j++) found = j;
    found +=
      second(i === 9 ? inner : nothing);
  }
  return found;
}

function compile() {
  const tier = (f, name) => { try { new Function('f', `%${name}(f)`)(f); } catch { /* no flag */ } };
  tier(looping, 'PrepareFunctionForOptimization');
  for (let i = 0; i < 100; i++) {
    // Several functions, so that code is not for one of them only.
    for (const inner of [() => i, () => -i]) {
      baseline(3, inner); optimized(inner); inlining(inner);
      // Seldom: it is not compiled before it runs.
      if (i < 5) looping(inner, () => 0);
    }
  }
  tier(baseline, 'CompileBaseline');
  for (const f of [optimized, inlining]) {
    tier(f, 'PrepareFunctionForOptimization');
    f(() => 1); f(() => 2);
    tier(f, 'OptimizeFunctionOnNextCall');
    f(() => 3);
  }
}

function optimizer() {
  try { return new Function('%OptimizeOsr(1)'); } catch { return () => 0; }
}

function tiers() {
  const optimize = optimizer();
  return baseline(2, () => optimized(() => inlining(() => looping(() => long(ä人), optimize))));
}

// Before a compiler has results, which interrupt the pattern: then C++ continues it.
if (shape === 'direct') [0].forEach(match);
compile();
if (isMainThread) {
  const names = isPlain ? [] : isDirect ? ['worker', 'direct'] : ['worker'];
  for (const name of names) new Worker(__filename, { workerData: { cell, shape: name } });
  while (Atomics.load(cell, 1) < names.length) Atomics.wait(cell, 1, Atomics.load(cell, 1), 100);
  tiers();
} else {
  object.assigned();
}
