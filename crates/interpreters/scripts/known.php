<?php
// Waits in a known stack, whose shape is the argument. Writes it, innermost frame first, and then
// waits for ever:
//
//     FUNCTION<tab>FILE<tab>LINE
//     ...
//     ready
//
// Functions that are written in C have no file, and line 0.

namespace Known;

function wait(): void
{
    $trace = debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS);
    $lines = ["sleep\t\t0"];
    $place = [__FILE__, __LINE__ + 11];
    foreach ($trace as $call) {
        // The place of a call is that of the caller. A class without a name has a NUL and a place.
        $class = isset($call['class']) ? strtok($call['class'], "\0") . '::' : '';
        $lines[] = $class . $call['function'] . "\t" . implode("\t", $place);
        $place = [$call['file'] ?? '', $call['line'] ?? 0];
    }
    $lines[] = "{main}\t" . implode("\t", $place);
    echo implode("\n", $lines), "\nready\n";
    // The line of this call is above.
    while (true) {
        sleep(1000);
    }
}

function recursion(int $depth, callable $then)
{
    return $depth > 0
        ? recursion($depth - 1, $then)
        : $then();
}

abstract class Base
{
    public function method(callable $then)
    {
        return static::statically($then);
    }

    public static function statically(callable $then)
    {
        $local = function () use ($then) {
            return array_map(fn ($value) => $then(), [1]);
        };
        return $local();
    }

    public function __call($name, $arguments)
    {
        return $arguments[0]();
    }

    public static function __callStatic($name, $arguments)
    {
        return $arguments[0]();
    }
}

class Größe extends Base
{
    public $then;

    public function __toString(): string
    {
        ($this->then)();
        return '';
    }

    public function __invoke($a, $b)
    {
        ($this->then)();
        return 0;
    }
}

class Ended
{
    public function __construct(private $then)
    {
    }

    public function __destruct()
    {
        ($this->then)();
    }
}

function leave(callable $then)
{
    // It ends when the function is left, which has no frame then.
    $ended = new Ended($then);
    return [$then];
}

function numbers(callable $then)
{
    yield 1;
    yield $then();
}

function delegates(callable $then)
{
    yield from numbers($then);
}

function evaluate(callable $then)
{
    $text = "\n\nfunction evaluated(\$then) {\n\n  \$then();\n}\n evaluated(\n\$then);";
    eval($text);
}

function handlers(callable $then)
{
    try {
        try {
            throw new \Exception();
        } finally {
            strlen('');
        }
    } catch (\Exception $exception) {
        $then();
    }
}

function callbacks(callable $then)
{
    $list = [2, 1];
    $compare = new Größe();
    $compare->then = fn () => preg_replace_callback(
        '/a/',
        function ($match) use ($then) {
            return (string) $then();
        },
        'a'
    );
    usort($list, $compare);
}

function objects(callable $then)
{
    $nameless = new class () extends Größe {
        public function inner(callable $then)
        {
            return $this->missing(
                fn () => Größe::absent($then)
            );
        }
    };
    $nameless->then = fn () => $nameless->inner($then);
    return "$nameless";
}

$shapes = [
    'calls' => fn () => recursion(
        3,
        fn () => (new Größe())->method(
            fn () => callbacks(
                fn () => objects('Known\wait')
            )
        )
    ),
    'code' => function () {
        evaluate(function () {
            $then = fn () => handlers(function () {
                foreach (numbers('Known\wait') as $number) {
                    strlen("$number");
                }
            });
            require __DIR__ . '/known-included.php';
        });
    },
    'destruction' => fn () => array_map(
        'Known\leave',
        ['Known\wait']
    ),
    'fiber' => function () {
        $fiber = new \Fiber(function (callable $then) {
            array_map(fn ($value) => recursion(2, $then), [1]);
        });
        $start = fn () => $fiber->start('Known\wait');
        $start();
    },
    'delegation' => function () {
        foreach (delegates('Known\wait') as $number) {
            strlen("$number");
        }
    },
];
$shapes[$argv[1]]();
