// Command cgoclock sleeps for an hour in Go code, and for 300 ms in a C function. It writes how long the hour was for Go
// code and for C code, and how long the 300 ms were for Go code, in nanoseconds.
package main

/*
#include <time.h>

static long long wall(void) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void rest(void) {
	struct timespec t = {0, 300000000};
	nanosleep(&t, 0);
}
*/
import "C"

import (
	"fmt"
	"time"
)

func main() {
	begin, cBegin := time.Now(), C.wall()
	time.Sleep(time.Hour)
	fmt.Println(int64(time.Since(begin)), int64(C.wall()-cBegin))
	begin = time.Now()
	C.rest()
	fmt.Println(int64(time.Since(begin)))
}
