// Writes its own profiles, as Go's own profiler makes them, to the given directory: cpu.pb.gz and
// heap.pb.gz.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sort"
	"strings"
	"syscall"
	"time"
)

type list struct{ words []string }

func (l *list) grow(n int) {
	for i := 0; i < n; i++ {
		l.words = append(l.words, strings.Repeat("x", 100)+fmt.Sprint(i*7919%10007))
	}
}

func recurse(n int) int {
	if n == 0 {
		return count()
	}
	return recurse(n-1) + 1
}

func count() int {
	m := map[int]int{}
	for i := 0; i < 50000; i++ {
		m[i*7919%100003] += i
	}
	return len(m)
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	runtime.MemProfileRate = 4096
	dir := os.Args[1] + "/"
	cpu, err := os.Create(dir + "cpu.pb.gz")
	check(err)
	check(pprof.StartCPUProfile(cpu))
	l := &list{}
	for cpuTime() < 700*time.Millisecond {
		l.grow(2000)
		recurse(5)
		sorted := append([]string{}, l.words...)
		sort.Strings(sorted)
		l.words = l.words[:len(l.words)/2]
	}
	pprof.StopCPUProfile()
	check(cpu.Close())
	runtime.GC()
	heap, err := os.Create(dir + "heap.pb.gz")
	check(err)
	check(pprof.Lookup("heap").WriteTo(heap, 0))
	check(heap.Close())
	runtime.KeepAlive(l)
}
