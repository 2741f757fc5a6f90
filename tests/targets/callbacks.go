// Go calls C, which calls Go back, which calls C; on two threads.
// usage: callbacks SECONDS DEPTH    (DEPTH: further rounds)
package main

/*
#include <stdint.h>

extern void goCallback(int depth);

static volatile uint64_t sink;

__attribute__((noinline)) static void c_work(void) {
	for (int i = 0; i < 1000000; i++) sink += i;
}

__attribute__((noinline)) static int c_inner(void) {
	c_work();
	return 1;
}

__attribute__((noinline)) static int c_outer(int depth) {
	c_work();
	goCallback(depth);
	return depth + 1;
}
*/
import "C"

import (
	"os"
	"strconv"
	"time"
)

var sink uint64

//go:noinline
func goWork() {
	for i := uint64(0); i < 1000000; i++ {
		sink += i
	}
}

//export goCallback
func goCallback(depth C.int) {
	goWork()
	if depth > 0 {
		C.c_outer(depth - 1)
	} else {
		C.c_inner()
	}
}

//go:noinline
func goOuter(depth int) C.int {
	return C.c_outer(C.int(depth)) + 1
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	depth, _ := strconv.Atoi(os.Args[2])
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	done := make(chan bool)
	for i := 0; i < 2; i++ {
		go func() {
			for time.Now().Before(end) {
				goOuter(depth)
			}
			done <- true
		}()
	}
	<-done
	<-done
}
