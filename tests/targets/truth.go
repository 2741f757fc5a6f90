// The program of truth.c in Go.
//
// usage: truth THREADS MILLISECONDS      (of CPU time of each thread)
package main

import (
	"fmt"
	"io"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"unsafe"
)

const (
	processClock = 2 // CLOCK_PROCESS_CPUTIME_ID
	threadClock  = 3 // CLOCK_THREAD_CPUTIME_ID
)

func now(clock uintptr) int64 {
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

// About 15 µs.
//
//go:noinline
func burn(x uint64) uint64 {
	for n := 0; n < 10000; n++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// Works until this thread has used the quota of CPU time; returns the time used.
//
//go:noinline
func spinAlpha(quota int64) int64 {
	start := now(threadClock)
	for {
		burn(1)
		if used := now(threadClock) - start; used >= quota {
			return used
		}
	}
}

//go:noinline
func spinBeta(quota int64) int64 {
	start := now(threadClock)
	for {
		burn(2)
		if used := now(threadClock) - start; used >= quota {
			return used
		}
	}
}

//go:noinline
func spinGamma(quota int64) int64 {
	start := now(threadClock)
	for {
		burn(3)
		if used := now(threadClock) - start; used >= quota {
			return used
		}
	}
}

//go:noinline
func spinDelta(quota int64) int64 {
	start := now(threadClock)
	for {
		burn(4)
		if used := now(threadClock) - start; used >= quota {
			return used
		}
	}
}

//go:noinline
func spinEpsilon(quota int64) int64 {
	start := now(threadClock)
	for {
		burn(5)
		if used := now(threadClock) - start; used >= quota {
			return used
		}
	}
}

// Name, percent of a cycle (100 ms on average), function.
var kinds = []struct {
	name   string
	weight int64
	run    func(int64) int64
}{
	{"spin_alpha", 35, spinAlpha},
	{"spin_beta", 25, spinBeta},
	{"spin_gamma", 20, spinGamma},
	{"spin_delta", 12, spinDelta},
	{"spin_epsilon", 8, spinEpsilon},
}

// Cycles of all functions, in a random order and for a random time: in step with nothing.
func work(seed, quota int64, used *[5]int64) {
	// The clock is the thread's.
	runtime.LockOSThread()
	random := rand.New(rand.NewSource(seed))
	for done := int64(0); done < quota; {
		for _, kind := range random.Perm(len(kinds)) {
			// From half to one and a half of its part.
			spent := kinds[kind].run(kinds[kind].weight * (500000 + random.Int63n(1000000)))
			used[kind] += spent
			done += spent
		}
	}
}

func main() {
	threads, _ := strconv.Atoi(os.Args[1])
	quota, _ := strconv.ParseInt(os.Args[2], 10, 64)
	runtime.GOMAXPROCS(threads + 1)
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	process := now(processClock)
	used := make([][5]int64, threads)
	var all sync.WaitGroup
	for i := range used {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			work(int64(i+1), quota*1000000, &used[i])
		}(i)
	}
	all.Wait()
	process = now(processClock) - process
	for kind := range kinds {
		sum := int64(0)
		for i := range used {
			sum += used[i][kind]
		}
		fmt.Println(kinds[kind].name, sum)
	}
	fmt.Println("process", process)
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	fmt.Println("switches", usage.Nvcsw+usage.Nivcsw)
}
