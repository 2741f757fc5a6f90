// A goroutine whose stack is deep: the main one, or another.
//
// usage: deep DEPTH SECONDS [main]
package main

import (
	"os"
	"strconv"
	"time"
)

// About 15 µs.
//
//go:noinline
func burn(x uint64) uint64 {
	for n := 0; n < 10000; n++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// Has a frame of more than 256 bytes.
//
//go:noinline
func descend(depth int, end time.Time) uint64 {
	var room [32]uint64
	room[depth%32] = uint64(depth)
	if depth > 0 {
		room[0] += descend(depth-1, end)
	}
	for depth == 0 && time.Now().Before(end) {
		room[1] = burn(room[1])
	}
	return room[0] + room[1]
}

//go:noinline
func bottom(depth int, end time.Time, done chan<- uint64) {
	done <- descend(depth, end)
}

func main() {
	depth, _ := strconv.Atoi(os.Args[1])
	seconds, _ := strconv.ParseFloat(os.Args[2], 64)
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	if len(os.Args) > 3 {
		descend(depth, end)
		return
	}
	done := make(chan uint64)
	go bottom(depth, end, done)
	<-done
}
