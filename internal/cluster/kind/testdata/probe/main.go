// Command probe tells, line by line, what a disruption does to its container.
//
//	probe print FILE              prints its arguments and a file, and waits
//	probe serve ADDRESS           answers what it is sent, and HTTP requests at the next port
//	probe measure ADDRESS DIR     measures, and prints one line for each measurement: its name and its value
//	probe beside ADDRESS          measures the network only
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
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
		go serveHTTP(next(os.Args[2]))
		serve(os.Args[2])
		return
	}
	server := os.Args[2]
	go repeat("echo", func() any { return echo(server) })
	if os.Args[1] == "beside" {
		repeat("lookup", lookup)
	}
	dir := os.Args[3]
	go repeat("lookup", lookup)
	go repeat("http", func() any { return get(next(server)) })
	go repeat("grpc", func() any { return call(next(server)) })
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

// next is the address with the next port.
func next(address string) string {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		panic(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return net.JoinHostPort(host, strconv.Itoa(port+1))
}

func protocols(http2 bool) *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(!http2)
	p.SetUnencryptedHTTP2(http2)
	return p
}

// serveHTTP answers requests, and gRPC calls with the status 0.
func serveHTTP(address string) {
	both := protocols(true)
	both.SetHTTP1(true)
	s := &http.Server{Addr: address, Protocols: both, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
			_, _ = io.WriteString(w, "answer")
		})}
	panic(s.ListenAndServe())
}

// request sends a request by a new connection.
func request(http2 bool, method, url, content string) (*http.Response, error) {
	transport := &http.Transport{Protocols: protocols(http2), DisableKeepAlives: !http2}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", content)
	resp, err := (&http.Client{Transport: transport, Timeout: time.Second}).Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, err
}

// get is how many milliseconds a request takes; -1: there is no answer.
func get(server string) any {
	begin := time.Now()
	if _, err := request(false, http.MethodGet, "http://"+server+"/probe", ""); err != nil {
		return -1
	}
	return time.Since(begin).Milliseconds()
}

// call is the status of a gRPC call; -1: there is none.
func call(server string) any {
	resp, err := request(true, http.MethodPost, "http://"+server+"/probe.Probe/Get", "application/grpc")
	if err != nil {
		return -1
	}
	if status := resp.Header.Get("Grpc-Status"); status != "" {
		return status
	}
	return resp.Trailer.Get("Grpc-Status")
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

// write is how many milliseconds it takes until 256 KiB are on the disk; -1: it fails.
func write(file string) any {
	begin := time.Now()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|syscall.O_SYNC, 0o600)
	if err != nil {
		return -1
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 256<<10)); err != nil {
		return -1
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
