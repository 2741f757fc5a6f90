// As deep.c.
const fs = require('fs');

function step(i) {
  return i * i;
}

function part(count) {
  let total = 0;
  for (let i = 0; i < count; i++) total += step(i);
  return total;
}

function work(rounds) {
  let total = 0;
  for (let i = 0; i < rounds; i++) total += part(1000);
  return total;
}

function descend(depth, rounds) {
  if (depth > 0) return descend(depth - 1, rounds) + 1;
  return work(rounds) + 1;
}

function main() {
  fs.writeSync(1, 'ready\n');
  fs.readSync(0, Buffer.alloc(1));
  const [cpu, wall] = [process.cpuUsage(), process.hrtime.bigint()];
  const sum = descend(88, Number(process.argv[2]));
  const { user, system } = process.cpuUsage(cpu);
  const line = `${(user + system) * 1000} ${process.hrtime.bigint() - wall}`;
  fs.writeSync(1, sum > 0 ? line + '\n' : '\n');
}

main();
