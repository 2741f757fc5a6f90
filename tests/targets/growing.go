// Goroutines whose stacks grow again and again, and which give up their thread in between.
// usage: growing SECONDS
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

//go:noinline
func deeper(n int) int {
	var words [64]int
	words[n%64] = n
	if n == 0 {
		return words[0]
	}
	return deeper(n-1) + words[n%64]
}

type deepener interface{ deepen(n int) int }

type direct struct{}

//go:noinline
func (direct) deepen(n int) int { return deeper(n) + 1 }

//go:noinline
func grow(d deepener, n int) int { return d.deepen(n) + 1 }

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	out := make(chan int)
	for i := 0; i < 4; i++ {
		go func() {
			sum := 0
			for time.Now().Before(end) {
				grown := make(chan int)
				go func() { grown <- grow(direct{}, 40) }()
				runtime.Gosched()
				sum += <-grown
			}
			out <- sum
		}()
	}
	sum := 0
	for i := 0; i < 4; i++ {
		sum += <-out
	}
	if sum == 1 {
		fmt.Println("never")
	}
}
