// Loads from address 0 whose handlers run for a while, on top of the interrupted function.
// usage: panics SECONDS
package main

import (
	"os"
	"strconv"
	"time"
)

var sink int

//go:noinline
func burn(n int) {
	for i := 0; i < n; i++ {
		sink += i
	}
}

//go:noinline
func recovered() {
	recover()
	burn(1000000)
}

//go:noinline
func faulty(p *int, n int) int {
	defer recovered()
	sink = n
	return *p // the load
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for time.Now().Before(end) {
		faulty(nil, sink)
	}
}
