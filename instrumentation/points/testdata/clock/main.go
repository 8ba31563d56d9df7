// Command clock does what its first argument says, and writes what it has seen to its standard output.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	var err error
	switch os.Args[1] {
	case "sleep":
		err = sleep(os.Args[2:])
	case "dates":
		err = dates(os.Args[2:])
	case "serve":
		err = serve(os.Args[2])
	case "ask":
		err = ask(os.Args[2])
	case "wait":
		err = wait()
	case "tick":
		err = tick()
	case "compute":
		err = compute(os.Args[2])
	case "cost":
		err = cost()
	case "child":
		err = exec.Command("sleep", "0.3").Run()
	case "exec":
		err = syscall.Exec("/proc/self/exe", []string{"clock", "sleep", "1h"}, os.Environ())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// sleep sleeps for each of the durations, one after the other, and tells when it wakes up.
func sleep(durations []string) error {
	for _, text := range durations {
		d, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		time.Sleep(d)
		fmt.Println(text, time.Now().UnixNano())
	}
	return nil
}

// compute keeps several threads busy until the process has used so much processor time, and tells how much time that was.
// None of them may read an earlier time than another has before.
func compute(text string) error {
	need, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	began := time.Now()
	var latest, back atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := 0; i%1024 > 0 || processorTime() < need; i++ {
				before := latest.Load()
				now := int64(time.Since(began))
				if now < before {
					back.Store(before - now)
				}
				latest.CompareAndSwap(before, max(before, now))
			}
		})
	}
	all.Wait()
	fmt.Println(int64(time.Since(began)))
	if d := back.Load(); d != 0 {
		return fmt.Errorf("time went back by %s", time.Duration(d))
	}
	return nil
}

// processorTime is what the process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// dates sleeps like sleep, and tells at the beginning and each time that it wakes up what time it is, and how long the
// process has run by its monotonic clock.
func dates(durations []string) error {
	begin := time.Now()
	for _, text := range append([]string{"0s"}, durations...) {
		d, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		time.Sleep(d)
		fmt.Println(time.Now().UnixNano(), int64(time.Since(begin)))
	}
	return nil
}

// serve answers requests; each costs CPU time and then a second of the run's time.
func serve(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 0
		for i := range 2_000_000 {
			n += i
		}
		time.Sleep(time.Second)
		fmt.Fprintln(w, n)
	}))
}

// ask sends requests that must be answered within two seconds, while a ticker makes the clock move in small steps.
func ask(socket string) error {
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) },
	}}
	go func() {
		for range time.Tick(7 * time.Millisecond) {
		}
	}()
	begin := time.Now()
	for range 50 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		cancel()
	}
	if took := time.Since(begin); took < 50*time.Second || took > 60*time.Second {
		return fmt.Errorf("50 requests took %s", took)
	}
	return nil
}

// wait blocks in a read of a pipe until a timer, an hour later, writes to it.
func wait() error {
	var p [2]int
	if err := syscall.Pipe(p[:]); err != nil {
		return err
	}
	time.AfterFunc(time.Hour, func() { _, _ = syscall.Write(p[1], []byte("x")) })
	n, err := syscall.Read(p[0], make([]byte, 1))
	if n != 1 {
		return errors.Join(errors.New("nothing read"), err)
	}
	return nil
}

// tick ticks each 10 ms for 100 s.
func tick() error {
	t := time.NewTicker(10 * time.Millisecond)
	for range 10_000 {
		<-t.C
	}
	return nil
}

// cost tells how many nanoseconds it takes to read the time, to sleep for a moment, and to make a system call.
func cost() error {
	const n = 2_000_000
	for _, of := range []struct {
		name string
		n    int
		do   func()
	}{
		{"now", n, func() { _ = time.Now() }},
		{"since", n, func() { _ = time.Since(start) }},
		{"call", n / 10, func() { _, _ = syscall.Write(-1, nil) }},
		{"sleep", 1000, func() { time.Sleep(time.Microsecond) }},
	} {
		begin := time.Now()
		for range of.n {
			of.do()
		}
		fmt.Println(of.name, float64(time.Since(begin).Nanoseconds())/float64(of.n))
	}
	return nil
}

var start = time.Now()
