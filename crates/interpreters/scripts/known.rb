# Threads that wait in known stacks. Writes them, innermost frame first, and then waits for ever:
#
#     thread THREAD-POINTER SHAPE
#     FUNCTION<tab>FILE<tab>LINE
#     ...
#     ready
#
# Files, lines and names are those of Thread#backtrace_locations. Classes are stated here, as it has
# none: each shape has the names of its functions, innermost first. C functions, which have "c:" in
# front, have neither file nor line.

require "fiddle"

GATE = Thread::Queue.new
SELF = Fiddle::Function.new(Fiddle.dlopen(nil)["pthread_self"], [], Fiddle::TYPE_UINTPTR_T)
SHAPES = {}
POINTERS = {}

def wait
  GATE.pop
end

WAIT = ["c:Thread::Queue#pop", "Object#wait"]
START = ["c:Method#call", "block (2 levels) in <main>"]

def shape(name, *functions)
  SHAPES[name] = WAIT + functions + START
end

shape :recursion, *["Object#recursion"] * 13
def recursion(depth = 12)
  if depth > 0
    recursion(depth - 1)
  else
    wait
  end
end

shape :blocks, "block (2 levels) in Object#blocks", "c:Array#each", "block in Object#blocks",
      "c:Integer#times", "Object#blocks"
def blocks
  1.times do
    [1].each do |value|
      wait
    end
  end
end

shape :sorting, "block in Object#sorting", "c:Array#each", "c:Enumerable#sort_by",
      "Object#sorting"
def sorting
  [3, 1].sort_by { |value| wait }
end

class Own
  include Enumerable

  def each
    yield 1
  end

  def [](key)
    wait
  end

  def self.build(count)
    new.first(count) { wait }
  end
end

shape :own_each, "block in Object#own_each", "Own#each", "c:Enumerable#map", "Object#own_each"
def own_each
  Own.new.map { wait }
end

shape :operators, "Own#[]", "Object#operators"
def operators
  Own.new[5]
end

module Outer
  class Inner
    def self.create(*)
      new.instance_method
    end

    def instance_method
      [1].map { |value| nested(value) }
    end

    def nested(value)
      Outer.helper
    end
  end

  def self.helper
    Tools.work
  end

  module Tools
    module_function

    def work
      wait
    end

    def wait
      Kernel.instance_method(:then).bind_call(self) { GATE.pop }
    end
  end
end

SHAPES[:classes] = ["c:Thread::Queue#pop", "block in Outer::Tools.wait", "Kernel#then",
                    "c:UnboundMethod#bind_call",
                    "Outer::Tools.wait", "Outer::Tools.work", "Outer.helper", "Outer::Inner#nested",
                    "block in Outer::Inner#instance_method", "c:Array#map",
                    "Outer::Inner#instance_method", "Outer::Inner.create", "Object#classes"] + START
def classes
  Outer::Inner.create(1)
end

class Dynamic
  define_method(:defined) { |depth = 1| depth > 0 ? defined(depth - 1) : wait }

  def method_missing(name, *arguments)
    name == :absent ? wait : super
  end

  def respond_to_missing?(*) = true
end

shape :defined_methods, *["block in <class:Dynamic>"] * 2, "Object#defined_methods"
def defined_methods
  Dynamic.new.defined
end

shape :missing, "Dynamic#method_missing", "Object#missing"
def missing
  Dynamic.new.absent
end

# A singleton class of an object has no name.
shape :singleton, "special", "Object#singleton"
def singleton
  object = Object.new
  def object.special
    wait
  end
  object.special
end

shape :anonymous, "nameless", "Object#anonymous"
def anonymous
  Class.new do
    def nameless
      wait
    end
  end.new.nameless
end

class Comparing
  include Comparable

  def <=>(other)
    other.call
    0
  end

  def compare
    self == lambda { wait }
  end
end
SHAPES[:included] = WAIT + ["block in Comparing#compare", "Comparing#<=>", "c:Comparable#==",
                            "Comparing#compare", "Object#included"] + START
def included
  Comparing.new.compare
end

shape :handlers, "ensure in Object#handlers", "Object#handlers"
def handlers
  begin
    raise KeyError
  rescue KeyError
    [1]
  end
  begin
    raise IndexError
  ensure
    wait
  end
end

shape :rescued, "rescue in Object#rescued", "Object#rescued"
def rescued
  Integer("x")
rescue ArgumentError
  wait
end

PROC = proc { wait }
LAMBDA = ->(function) { function.call }
shape :procs, "block in <main>", "block in <main>", "Object#procs"
def procs
  LAMBDA.(PROC)
end

shape :evaluated, "Object#far", "<main>", "c:Kernel#eval", "Object#evaluated"
def evaluated
  eval("def far\n" + "\n" * 700 + " (\n  wait\n )\nend\nfar\n", TOPLEVEL_BINDING, "far.rb", 5)
end

TEXT = "def größe\n wait\nend\ndef функция = größe\ndef 𐊀𐊁() = функция\n𐊀𐊁\n"
shape :names, "Object#größe", "Object#функция", "Object#𐊀𐊁", "<main>", "c:Kernel#eval",
      "Object#names"
def names
  eval(TEXT, TOPLEVEL_BINDING, "пример 🐍.rb")
end

LONG = "f" + "x" * 600
shape :long_name, LONG, "<main>", "c:Kernel#eval", "Object#long_name"
def long_name
  eval("def #{LONG}\n wait\nend\n#{LONG}", TOPLEVEL_BINDING, "long.rb")
end

# A function of many instructions and lines.
MANY = "def many\n  a = 1\n" + "  a += 1\n" * 300 + "  wait\n" + "  a += 1\n" * 100 + "end\nmany\n"
shape :many_lines, "Object#many", "<main>", "c:Kernel#eval", "Object#many_lines"
def many_lines
  eval(MANY, TOPLEVEL_BINDING, "many.rb")
end

Pair = Struct.new(:left, :right) do
  attr_accessor :third

  def sum
    self.third = 1
    left.call + third
  end
end
shape :structs, "block in Object#structs", "Pair#sum", "Object#structs"
def structs
  Pair.new(-> { wait }, 1).sum
end

module Refined
  refine Integer do
    def refined
      wait
    end
  end
end
using Refined
shape :refinement, "refined", "Object#refinement"
def refinement
  1.refined
end

# They have a wrapper in the place of the method entry.
shape :special_variables, "Object#special_variables"
def special_variables
  "text" =~ /t(.)/
  wait
end

shape :constant, "<class:Loaded>", "<main>", "c:Kernel#eval", "Object#constant"
def constant
  eval("class Loaded\n wait\nend\n", TOPLEVEL_BINDING, "loaded.rb")
end

shape :callback, "block in Object#callback", "c:Hash#each", "Object#callback"
def callback
  { 1 => 2 }.each { |key, value| wait }
end

# The method that made a fiber is in another stack.
SHAPES[:fibers] = WAIT + ["block in fibers"]
def fibers
  Fiber.new { wait }.resume
end

SHAPES[:enumerator] = WAIT + ["block in enumerator", "c:Enumerator::Generator#each",
                              "c:Enumerator#each"]
def enumerator
  Enumerator.new { |out| out << 1; wait }.tap(&:next).next
end

def lines(thread, name)
  locations = thread.backtrace_locations
  functions = SHAPES.fetch(name)
  locations.zip(functions).map do |location, function|
    raise "#{name}: #{location.label} is #{function}" unless function&.end_with?(location.base_label)
    next "#{function[2..]}\t\t0" if function.start_with?("c:")
    "#{function}\t#{location.path}\t#{location.lineno}"
  end
end

def write(threads)
  threads.each do |name, thread|
    sleep 0.05 until GATE.num_waiting >= threads.size && thread.stop? && POINTERS[name]
    puts format("thread %x %s", POINTERS[name], name), lines(thread, name)
  end
  puts "ready"
  $stdout.flush
  # Not for ever: if all threads do, Ruby ends.
  sleep 1_000_000
end

$stdout.set_encoding("UTF-8")
threads = SHAPES.keys.to_h do |name|
  run = method(name)
  thread = Thread.new do
    POINTERS[name] = SELF.call
    run.call
  end
  [name, thread]
end
main = Thread.current
POINTERS[:main] = SELF.call
SHAPES[:main] = ["c:Thread::Queue#pop", "<main>"]
Thread.new { write(threads.merge(main: main)) }
GATE.pop
