// Command probe tells, line by line, what a disruption does to its container.
//
//	probe print FILE              prints its arguments and a file, and waits
//	probe serve ADDRESS           answers what it is sent
//	probe measure ADDRESS DIR     measures, and prints one line for each measurement: its name and its value
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// pause between two measurements of a name.
const pause = 100 * time.Millisecond

func main() {
	if len(os.Args) > 2 && os.Args[1] == "print" {
		text, err := os.ReadFile(os.Args[2])
		fmt.Println(os.Args, string(text), err)
		time.Sleep(time.Hour)
	}
	if len(os.Args) > 2 && os.Args[1] == "serve" {
		serve(os.Args[2])
		return
	}
	server, dir := os.Args[2], os.Args[3]
	go repeat("echo", func() any { return echo(server) })
	go repeat("lookup", lookup)
	go repeat("write", func() any { return write(filepath.Join(dir, "file")) })
	go repeat("memory", memory)
	repeat("work", work)
}

func repeat(name string, measure func() any) {
	for {
		fmt.Println(name, measure())
		time.Sleep(pause)
	}
}

func serve(address string) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		panic(err)
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

// echo is how many milliseconds a byte takes to a server and back, by a new connection; -1: it does not come back.
func echo(server string) any {
	begin := time.Now()
	conn, err := net.DialTimeout("tcp", server, time.Second)
	if err != nil {
		return -1
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	b := []byte{1}
	if _, err := conn.Write(b); err != nil {
		return -1
	}
	if _, err := io.ReadFull(conn, b); err != nil {
		return -1
	}
	return time.Since(begin).Milliseconds()
}

// lookup is the address of a name.
func lookup() any {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	found, err := new(net.Resolver).LookupHost(ctx, "probe.example")
	if err != nil {
		return "none"
	}
	return strings.Join(found, ",")
}

// work is how many milliseconds a fixed amount of computing takes.
func work() any {
	begin := time.Now()
	x := uint64(1)
	for range 5_000_000 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	if x == 0 {
		panic("it never is")
	}
	return time.Since(begin).Milliseconds()
}

// write is how many milliseconds it takes until 256 KiB are on the disk.
func write(file string) any {
	begin := time.Now()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|syscall.O_SYNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 256<<10)); err != nil {
		return err
	}
	return time.Since(begin).Milliseconds()
}

// memory is how many MiB the container uses.
func memory() any {
	for _, file := range []string{
		"/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		var bytes int64
		if _, err := fmt.Sscan(string(text), &bytes); err == nil {
			return bytes >> 20
		}
	}
	return -1
}
