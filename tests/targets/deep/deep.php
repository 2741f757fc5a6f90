<?php
# As deep.c.
function step($i) {
    return $i * $i;
}

function part($count) {
    $total = 0;
    for ($i = 0; $i < $count; $i++) $total += step($i);
    return $total;
}

function work($rounds) {
    for ($i = 0; $i < $rounds; $i++) part(1000);
}

function descend($depth, $rounds) {
    if ($depth > 0) {
        descend($depth - 1, $rounds);
    } else {
        work($rounds);
    }
}

function cpu() {
    $used = getrusage();
    $seconds = $used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec'];
    return $seconds * 1000000000 + ($used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec']) * 1000;
}

function main($rounds) {
    echo "ready\n";
    fgets(STDIN);
    [$cpu, $wall] = [cpu(), hrtime(true)];
    descend(95, $rounds);
    echo cpu() - $cpu, ' ', hrtime(true) - $wall, "\n";
}

main((int) $argv[1]);
