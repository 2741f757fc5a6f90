// The program of truth.c in JavaScript, with a worker for each thread. Before it is ready, its
// functions are compiled.
//
// usage: node --experimental-wasi-unstable-preview1 truth.js THREADS MILLISECONDS
'use strict';

const fs = require('fs');
const { WASI } = require('wasi');
const { Worker, isMainThread, workerData, parentPort } = require('worker_threads');

// Only WASI gives the CPU clock of a thread. The module: a memory of one page, exported.
const module_ = new WebAssembly.Module(Uint8Array.of(
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 5, 3, 1, 0, 1,
  7, 10, 1, 6, 0x6d, 0x65, 0x6d, 0x6f, 0x72, 0x79, 2, 0));
const instance = new WebAssembly.Instance(module_, {});
const wasi = new WASI({ version: 'preview1' });
wasi.initialize(instance);
const clock = new DataView(instance.exports.memory.buffer);
const clockTimeGet = wasi.wasiImport.clock_time_get;
const CLOCK_THREAD_CPUTIME_ID = 3;

// Nanoseconds; a double is exact for the first 104 days.
function now() {
  clockTimeGet(CLOCK_THREAD_CPUTIME_ID, 1n, 0);
  return clock.getUint32(4, true) * 4294967296 + clock.getUint32(0, true);
}

let sink = 1;

// About 60 µs.
function burn(x) {
  for (let n = 0; n < 50000; n++) x = (Math.imul(x, 1664525) + 1013904223) | 0;
  return x;
}

// Works until this thread has used the quota of CPU time; returns the time used.
function spinAlpha(quota) {
  const start = now();
  for (;;) {
    sink = burn(sink + 1);
    const used = now() - start;
    if (used >= quota) return used;
  }
}

function spinBeta(quota) {
  const start = now();
  for (;;) {
    sink = burn(sink + 2);
    const used = now() - start;
    if (used >= quota) return used;
  }
}

function spinGamma(quota) {
  const start = now();
  for (;;) {
    sink = burn(sink + 3);
    const used = now() - start;
    if (used >= quota) return used;
  }
}

function spinDelta(quota) {
  const start = now();
  for (;;) {
    sink = burn(sink + 4);
    const used = now() - start;
    if (used >= quota) return used;
  }
}

function spinEpsilon(quota) {
  const start = now();
  for (;;) {
    sink = burn(sink + 5);
    const used = now() - start;
    if (used >= quota) return used;
  }
}

const names = ['spin_alpha', 'spin_beta', 'spin_gamma', 'spin_delta', 'spin_epsilon'];
const functions = [spinAlpha, spinBeta, spinGamma, spinDelta, spinEpsilon];
// Percent of a cycle, which is 100 ms on average.
const weights = [35, 25, 20, 12, 8];

// Numbers below `below` from a fixed seed.
function generator(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor(state / 4294967296 * below);
  };
}

// Cycles of all functions, in a random order and for a random time: in step with nothing.
function work(seed, quota) {
  const random = generator(seed);
  const order = [0, 1, 2, 3, 4];
  const used = [0, 0, 0, 0, 0];
  for (let done = 0; done < quota;) {
    for (let i = order.length - 1; i > 0; i--) {
      const j = random(i + 1);
      [order[i], order[j]] = [order[j], order[i]];
    }
    for (const kind of order) {
      // From half to one and a half of its part.
      const spent = functions[kind](weights[kind] * (500000 + random(1000000)));
      used[kind] += spent;
      done += spent;
    }
  }
  return used;
}

function warmUp() {
  for (let round = 0; round < 30; round++) for (const run of functions) run(1000000);
}

function processNanos() {
  const usage = process.cpuUsage();
  return (usage.user + usage.system) * 1000;
}

function switches() {
  const usage = process.resourceUsage();
  return usage.voluntaryContextSwitches + usage.involuntaryContextSwitches;
}

function start() {
  console.log('ready');
  fs.readFileSync(0);
  return { nanos: processNanos(), switches: switches() };
}

function finish(before, all) {
  const used = processNanos() - before.nanos;
  const switched = switches() - before.switches;
  names.forEach((name, kind) => {
    console.log(name, all.reduce((sum, one) => sum + one[kind], 0));
  });
  console.log('process', used);
  console.log('switches', switched);
}

async function main(threads, quota) {
  if (threads === 1) {
    warmUp();
    const before = start();
    finish(before, [work(1, quota)]);
    return;
  }
  const go = new Int32Array(new SharedArrayBuffer(4));
  const workers = [];
  for (let seed = 1; seed <= threads; seed++) {
    workers.push(new Worker(__filename, { workerData: { seed, quota, go } }));
  }
  const message = (worker) => new Promise((resolve) => worker.once('message', resolve));
  await Promise.all(workers.map(message));
  const before = start();
  const results = workers.map(message);
  Atomics.store(go, 0, 1);
  Atomics.notify(go, 0);
  finish(before, await Promise.all(results));
}

if (isMainThread) {
  main(Number(process.argv[2]), Number(process.argv[3]) * 1e6);
} else {
  warmUp();
  parentPort.postMessage('warm');
  Atomics.wait(workerData.go, 0, 0);
  parentPort.postMessage(work(workerData.seed, workerData.quota));
}
