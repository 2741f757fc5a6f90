// Writes Go's profiles with debug=1 into a directory, each as NAME.txt.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"
)

var kept [][]byte
var maps []map[int]string

//go:noinline
func allocate(n int) {
	for i := 0; i < n; i++ {
		kept = append(kept, make([]byte, 4096+i))
		maps = append(maps, map[int]string{i: fmt.Sprint(i)})
	}
}

type box[T any] struct{ content T }

//go:noinline
func (b *box[T]) fill(n int) {
	allocate(n)
}

func contend(mutex *sync.Mutex, n int) {
	for i := 0; i < n; i++ {
		mutex.Lock()
		time.Sleep(time.Millisecond)
		mutex.Unlock()
	}
}

func main() {
	runtime.MemProfileRate = 4096
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	var b box[int]
	b.fill(5000)
	kept = kept[:len(kept)/2]
	runtime.GC()
	var mutex sync.Mutex
	var all sync.WaitGroup
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			contend(&mutex, 20)
		}()
	}
	all.Wait()
	stop := make(chan int)
	var started sync.WaitGroup
	for i := 0; i < 3; i++ {
		started.Add(1)
		labels := pprof.Labels("worker", fmt.Sprint("w \"", i%2), "kind", "ü")
		go pprof.Do(context.Background(), labels, func(context.Context) {
			started.Done()
			<-stop
		})
	}
	started.Wait()
	for _, name := range []string{"heap", "allocs", "mutex", "block", "goroutine", "threadcreate"} {
		var out bytes.Buffer
		pprof.Lookup(name).WriteTo(&out, 1)
		if err := os.WriteFile(os.Args[1]+"/"+name+".txt", out.Bytes(), 0o644); err != nil {
			panic(err)
		}
	}
}
