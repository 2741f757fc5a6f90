// Busy in JavaScript. usage: node busy.js SECONDS of CPU time (0: forever)
'use strict';

function hotFunction(n) {
  return n < 2 ? n : hotFunction(n - 1) + hotFunction(n - 2);
}

function used() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

function main(seconds) {
  const end = used() + seconds;
  while (seconds === 0 || used() < end) hotFunction(22);
}

console.log('ready');
main(Number(process.argv[2]));
