// Busy in JavaScript. usage: node busy.js SECONDS (0: forever)
'use strict';

function hotFunction(n) {
  return n < 2 ? n : hotFunction(n - 1) + hotFunction(n - 2);
}

function main(seconds) {
  const end = Date.now() + seconds * 1000;
  while (seconds === 0 || Date.now() < end) hotFunction(22);
}

console.log('ready');
main(Number(process.argv[2]));
