// Go's run-time code at work, on stacks of its own: many goroutines, and garbage. Without C.
// usage: goroutines SECONDS
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

func work(end time.Time, out chan<- int) {
	sum := 0
	var kept [][]byte
	for time.Now().Before(end) {
		garbage := make([]byte, 4096)
		garbage[0] = 1
		if kept = append(kept, garbage); len(kept) > 2000 {
			kept = nil
		}
		sum += int(garbage[0])
		go func() { runtime.Gosched() }()
	}
	out <- sum
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	out := make(chan int)
	for i := 0; i < 4; i++ {
		go work(end, out)
	}
	sum := 0
	for i := 0; i < 4; i++ {
		sum += <-out
	}
	if sum == 1 {
		fmt.Println("never")
	}
}
