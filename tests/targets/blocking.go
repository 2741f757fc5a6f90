// Waits in C that Go calls, in Go that C calls back, and in C below that.
// usage: blocking ROUNDS
package main

/*
#include <time.h>

extern void goCallback(int rounds);

__attribute__((noinline)) static int c_sleep(int ms) {
	struct timespec time = { 0, ms * 1000000L };
	return nanosleep(&time, 0) + 1;
}

__attribute__((noinline)) static int c_outer(int rounds) {
	goCallback(rounds);
	return rounds + 1;
}
*/
import "C"

import (
	"os"
	"strconv"
	"syscall"
)

//go:noinline
func goSleep() {
	time := syscall.Timespec{Nsec: 4000000}
	syscall.Nanosleep(&time, nil)
}

//export goCallback
func goCallback(rounds C.int) {
	goSleep()
	C.c_sleep(3)
}

//go:noinline
func goOuter(rounds int) C.int {
	return C.c_sleep(2) + C.c_outer(C.int(rounds)) + 1
}

func main() {
	rounds, _ := strconv.Atoi(os.Args[1])
	done := make(chan bool)
	go func() {
		for i := 0; i < rounds; i++ {
			goOuter(i)
		}
		done <- true
	}()
	<-done
}
