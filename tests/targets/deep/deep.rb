# As deep.c.
def step(i)
  i * i
end

def part(count)
  total = 0
  i = 0
  while i < count
    total += step(i)
    i += 1
  end
  total
end

def work(rounds)
  rounds.times { part(1000) }
end

def descend(depth, rounds)
  if depth > 0
    descend(depth - 1, rounds)
  else
    work(rounds)
  end
end

def now(clock)
  Process.clock_gettime(clock, :nanosecond)
end

def main
  puts "ready"
  $stdout.flush
  $stdin.gets
  cpu, wall = now(Process::CLOCK_PROCESS_CPUTIME_ID), now(Process::CLOCK_MONOTONIC)
  descend(93, ARGV[0].to_i)
  puts "#{now(Process::CLOCK_PROCESS_CPUTIME_ID) - cpu} #{now(Process::CLOCK_MONOTONIC) - wall}"
end

main
