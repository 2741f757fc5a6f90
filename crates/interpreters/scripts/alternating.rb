# Two recursions that alternate in less than 1 ms: `a` calls only `a`, `b` only `b`. A stack with one of
# them as a caller of the other never exists. ruby alternating.rb DEPTH
DEPTH = Integer(ARGV[0] || 40)

def a(depth)
  depth > 0 ? a(depth - 1) : [2, 1].sort_by { |value| -value }
end

def b(depth)
  return Integer("1") if depth == 0

  [depth].each { |value| b(value - 1) }
end

loop do
  a(DEPTH)
  b(DEPTH)
end
