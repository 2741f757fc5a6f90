// Busy Go: goroutines, channels, maps, strings, and C. usage: stacks SECONDS
package main

/*
#include <stdint.h>
static uint64_t c_leaf(uint64_t x, int n) {
	for (int i = 0; i < n; i++) x = x * 6364136223846793005u + 1442695040888963407u;
	return x;
}
__attribute__((noinline)) uint64_t c_work(uint64_t x) {
	volatile uint64_t y = c_leaf(x, 20000);
	return y + 1;
}
*/
import "C"

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
)

func words(seed int) int {
	all := map[string][]int{}
	for i := 0; i < 500; i++ {
		w := "word " + strconv.Itoa(i*seed%97)
		all[w] = append(all[w], i)
	}
	keys := make([]string, 0, len(all))
	for k := range all {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return len(strings.Join(keys, ","))
}

func recurse(n int) int {
	if n < 2 {
		return n
	}
	return recurse(n-1) + recurse(n-2)
}

func work(end time.Time, out chan<- string) {
	sum := 0
	for i := 1; time.Now().Before(end); i++ {
		sum += words(i) + recurse(12) + int(C.c_work(C.uint64_t(i)))
		out <- fmt.Sprint(sum)
	}
	close(out)
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var outs []chan string
	for i := 0; i < 4; i++ {
		outs = append(outs, make(chan string, 8))
		go work(end, outs[i])
	}
	n := 0
	for _, out := range outs {
		for s := range out {
			n += len(s)
		}
	}
	if n == 1 {
		fmt.Println("never")
	}
}
