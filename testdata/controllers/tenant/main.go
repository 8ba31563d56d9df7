// Command tenant reports over HTTP what a process finds in its pod: files, addresses and names, as any program looks
// for them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

var questions = map[string]func(ctx context.Context, subject string) (string, error){
	"read": func(_ context.Context, path string) (string, error) {
		text, err := os.ReadFile(path)
		return string(text), err
	},
	// Everything that a program may do to a file, in a folder of its own.
	"use": func(_ context.Context, dir string) (string, error) { return "", use(dir) },
	"write": func(_ context.Context, path string) (string, error) {
		return "", os.WriteFile(path, make([]byte, 64<<10), 0o644)
	},
	// What a program does with a file that it has open.
	"read-open":  func(_ context.Context, path string) (string, error) { return "", opened(path, readAll) },
	"write-open": func(_ context.Context, path string) (string, error) { return "", opened(path, writeByte) },
	"sync-open":  func(_ context.Context, path string) (string, error) { return "", opened(path, (*os.File).Sync) },
	// By a relative path.
	"read-in": func(_ context.Context, path string) (string, error) {
		before, err := os.Getwd()
		if err != nil {
			return "", err
		}
		if err := os.Chdir(filepath.Dir(path)); err != nil {
			return "", err
		}
		text, err := os.ReadFile(filepath.Base(path))
		return string(text), errors.Join(err, os.Chdir(before))
	},
	"leave": func(_ context.Context, dir string) (string, error) {
		return "", os.WriteFile(filepath.Join(dir, "left"), nil, 0o644)
	},
	"list": func(_ context.Context, dir string) (string, error) { return list(os.DirFS(dir)) },
	"real": func(_ context.Context, path string) (string, error) { return filepath.EvalSymlinks(path) },
	"resolve": func(ctx context.Context, name string) (string, error) {
		addrs, err := net.DefaultResolver.LookupHost(ctx, name)
		return strings.Join(addrs, " "), err
	},
	"resolve-ip": func(ctx context.Context, name string) (string, error) {
		ips, err := net.DefaultResolver.LookupIP(ctx, "ip4", name)
		return strings.Trim(fmt.Sprint(ips), "[]"), err
	},
	"dial": func(ctx context.Context, address string) (string, error) {
		c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return "", fmt.Errorf("REFUSED %w", err)
		}
		if err != nil {
			return "", err
		}
		defer c.Close()
		return c.RemoteAddr().String(), nil
	},
	"get":  func(ctx context.Context, url string) (string, error) { return request(ctx, http.MethodGet, url, true) },
	"post": func(ctx context.Context, url string) (string, error) { return request(ctx, http.MethodPost, url, true) },
	// Over a connection that stays open.
	"get-again": func(ctx context.Context, url string) (string, error) {
		return request(ctx, http.MethodGet, url, false)
	},
	// The status that a server's gRPC health service answers with, over a new connection or one that stays open.
	"check": func(ctx context.Context, address string) (string, error) {
		client, err := dialHealth(address)
		if err != nil {
			return "", err
		}
		defer client.Close()
		return check(ctx, client)
	},
	"check-again": func(ctx context.Context, address string) (string, error) {
		kept.Lock()
		client := kept.health[address]
		if client == nil {
			var err error
			if client, err = dialHealth(address); err != nil {
				kept.Unlock()
				return "", err
			}
			kept.health[address] = client
		}
		kept.Unlock()
		return check(ctx, client)
	},
	// The same service's other method: the services that it knows.
	"checks": func(ctx context.Context, address string) (string, error) {
		client, err := dialHealth(address)
		if err != nil {
			return "", err
		}
		defer client.Close()
		list, err := healthpb.NewHealthClient(client).List(ctx, &healthpb.HealthListRequest{})
		return fmt.Sprint(len(list.GetStatuses())), err
	},
	// Keeps so many more MiB of memory, beside many goroutines, whose stacks a program writes that runs out of it.
	"allocate": func(_ context.Context, size string) (string, error) {
		n, err := strconv.Atoi(size)
		if err != nil {
			return "", err
		}
		for range 500 {
			go func() { select {} }()
		}
		memory := make([]byte, n<<20)
		for i := 0; i < len(memory); i += os.Getpagesize() {
			memory[i] = 1
		}
		kept.Lock()
		defer kept.Unlock()
		kept.memory = append(kept.memory, memory)
		return "", nil
	},
	// What a program sees that it starts.
	"memory-limit-of-child": func(ctx context.Context, _ string) (string, error) {
		out, err := exec.CommandContext(ctx, "/bin/sh", "-c", "ulimit -S -d").CombinedOutput()
		return strings.TrimSpace(string(out)), err
	},
	"host": func(context.Context, string) (string, error) { return os.Hostname() },
	"env":  func(_ context.Context, name string) (string, error) { return os.Getenv(name), nil },
	// Answers with the events since the last question.
	"watch": func(_ context.Context, path string) (string, error) { return watch(path) },
}

func request(ctx context.Context, method, url string, dials bool) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", err
	}
	request.Close = dials
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// kept are connections that stay open, and memory.
var kept = struct {
	sync.Mutex
	memory [][]byte
	health map[string]*grpc.ClientConn
}{health: map[string]*grpc.ClientConn{}}

func dialHealth(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func check(ctx context.Context, client *grpc.ClientConn) (string, error) {
	answer, err := healthpb.NewHealthClient(client).Check(ctx, &healthpb.HealthCheckRequest{})
	return answer.GetStatus().String(), err
}

func serveGRPC() error {
	listener, err := net.Listen("tcp", ":50051")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	return server.Serve(listener)
}

// files are open files by their paths, so that a question about one opens it only the first time.
var files sync.Map

func opened(path string, do func(*os.File) error) error {
	f, ok := files.Load(path)
	if !ok {
		opened, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		f, _ = files.LoadOrStore(path, opened)
	}
	return do(f.(*os.File))
}

func readAll(f *os.File) error {
	_, err := io.Copy(io.Discard, io.NewSectionReader(f, 0, 1<<30))
	return err
}

func writeByte(f *os.File) error {
	_, err := f.Write([]byte{'x'})
	return err
}

func use(dir string) error {
	steps := []func() error{
		func() error { return os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755) },
		func() error { return os.WriteFile(filepath.Join(dir, "a", "b", "one"), []byte("one"), 0o644) },
		func() error { return os.Rename(filepath.Join(dir, "a", "b", "one"), filepath.Join(dir, "a", "two")) },
		func() error { return os.Link(filepath.Join(dir, "a", "two"), filepath.Join(dir, "a", "hard")) },
		func() error { return os.Symlink(filepath.Join(dir, "a", "two"), filepath.Join(dir, "a", "soft")) },
		func() error { return os.Chmod(filepath.Join(dir, "a", "soft"), 0o600) },
		func() error { return os.Chtimes(filepath.Join(dir, "a", "two"), time.Unix(1, 0), time.Unix(1, 0)) },
		func() error { return os.Truncate(filepath.Join(dir, "a", "hard"), 2) },
		func() error {
			info, err := os.Stat(filepath.Join(dir, "a", "soft"))
			if err == nil && (info.Size() != 2 || info.Mode().Perm() != 0o600) {
				err = fmt.Errorf("two is %s", fs.FormatFileInfo(info))
			}
			return err
		},
		func() error {
			return os.WriteFile(filepath.Join(dir, "a", "run"), []byte("#!/bin/sh\npwd\n"), 0o755)
		},
		func() error {
			name, err := exec.LookPath(filepath.Join(dir, "a", "run"))
			if err != nil {
				return err
			}
			cmd := exec.Command(name)
			cmd.Dir = filepath.Join(dir, "a")
			_, err = cmd.Output()
			return err
		},
		func() error {
			root, err := os.OpenRoot(filepath.Join(dir, "a"))
			if err != nil {
				return err
			}
			defer root.Close()
			f, err := root.Open("two")
			if err != nil {
				return err
			}
			return f.Close()
		},
		func() error { return os.Remove(filepath.Join(dir, "a", "..", "a", "hard")) },
		func() error { return os.RemoveAll(filepath.Join(dir, "a")) },
		func() error {
			if _, err := os.Lstat(filepath.Join(dir, "a")); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("a is still there: %v", err)
			}
			return nil
		},
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func list(fsys fs.FS) (string, error) {
	var names []string
	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || path == ".":
		case !strings.HasPrefix(d.Name(), ".."):
			names = append(names, path)
		case d.IsDir():
			return fs.SkipDir
		}
		return err
	})
	return strings.Join(names, " "), err
}

var watched struct {
	sync.Mutex
	watcher *fsnotify.Watcher
	events  []string
}

func watch(path string) (string, error) {
	watched.Lock()
	defer watched.Unlock()
	if watched.watcher == nil {
		w, err := fsnotify.NewWatcher()
		if err != nil {
			return "", err
		}
		watched.watcher = w
		go func() {
			for e := range w.Events {
				watched.Lock()
				watched.events = append(watched.events, e.String())
				watched.Unlock()
			}
		}()
	}
	if err := watched.watcher.Add(path); err != nil {
		return "", err
	}
	return strings.Join(watched.events, "\n"), nil
}

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		ask := questions[strings.Trim(r.URL.Path, "/")]
		if ask == nil {
			http.NotFound(w, r)
			return
		}
		answer, err := ask(r.Context(), r.URL.Query().Get("of"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		fmt.Fprint(w, answer)
	})
	addresses := strings.Fields(os.Getenv("LISTEN"))
	if len(addresses) == 0 {
		addresses = []string{"127.0.0.1:8081", ":9443", ":8080"}
	}
	for _, address := range addresses {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			log.Fatal(err)
		}
		log.Printf("%s is %s", address, listener.Addr())
		go func() { log.Fatal(http.Serve(listener, mux)) }()
	}
	if os.Getenv("LISTEN") == "" {
		go func() { log.Fatal(serveGRPC()) }()
	}
	select {}
}
