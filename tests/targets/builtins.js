// Calls with spread arguments, generators, accesses by key, and callbacks of C++: V8's built-in
// functions.
// usage: node builtins.js SECONDS of CPU time
'use strict';

function sum(...numbers) {
  let all = 0;
  for (const number of numbers) all += number;
  return all;
}

function* twice(n) {
  for (let i = 0; i < n; i++) yield i * 2;
}

function keyed(object, key) {
  return object[key];
}

const many = Array.from({ length: 60 }, (_, i) => i);
const objects = [
  { a: 1, b: 2 }, { b: 1, c: 2, a: 3 }, { x: 1, a: 4 },
  { y: 2, z: 3, a: 1 }, { q: 1, r: 2, a: 5 }, { m: 1, a: 0 },
];
const keys = ['a', 'b', 'c', 'x', 0, 1, '2'];

function round() {
  let all = 0;
  for (let i = 0; i < 300; i++) {
    all += sum.apply(null, [1, 2, 3]) + sum(...many) + Math.max(...many);
    for (const number of twice(10)) all += number;
    for (const object of objects) {
      for (const key of keys) all += keyed(object, key) === undefined ? 0 : 1;
    }
  }
  // Node's functions call their C++ code through `CallApiCallback`.
  for (let i = 0; i < 100; i++) all += process.cpuUsage().user;
  return all;
}

function used() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

function main(seconds) {
  const end = used() + seconds;
  let all = 0;
  while (used() < end) all += round();
  console.log(all > 0);
}

main(Number(process.argv[2]));
