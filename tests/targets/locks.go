// Goroutines that wait for a channel and for each other's mutex: the waits are those of threads
// without work, which are no contention of a lock.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

func main() {
	rounds := 20
	if len(os.Args) > 1 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	var mutex sync.Mutex
	var all sync.WaitGroup
	begun := make(chan bool)
	for n := 0; n < 4; n++ {
		all.Add(1)
		go func() {
			<-begun
			for i := 0; i < rounds; i++ {
				mutex.Lock()
				time.Sleep(time.Millisecond)
				mutex.Unlock()
			}
			all.Done()
		}()
	}
	close(begun)
	all.Wait()
	fmt.Println("0 0")
}
