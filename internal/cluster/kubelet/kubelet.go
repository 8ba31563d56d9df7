// Package kubelet serves the requests of API servers to the kubelets of a cluster's nodes: exec, attach and logs.
// Containers of simulated pods respond as configured, by default with success and no output. For pods that are local
// processes, only logs are available.
package kubelet

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"
)

// Answer is a response of containers of simulated pods. The first one that matches is used.
type Answer struct {
	// Namespace, Pod and Container are patterns of path.Match; an empty one matches all.
	Namespace, Pod, Container string
	// Command is a regular expression for the words of a command, joined by blanks; nil matches all.
	Command *regexp.Regexp
	// Stdout and Stderr are the output of the command, which then exits with ExitCode.
	Stdout, Stderr string
	ExitCode       int
	// Log is the container's log. An answer with a log does not apply to commands.
	Log *string
}

// Config configures a kubelet. Only TLS is required.
type Config struct {
	TLS     tls.Certificate
	Answers []Answer
	// Process opens the log of a container that is a local process; ok is false for any other. The caller closes the
	// log.
	Process func(namespace, pod, container string) (log io.ReadCloser, ok bool, err error)
	Logger  *slog.Logger
}

// Kubelet serves HTTPS on a unix socket. It does not authenticate clients: the socket is in a directory that only its
// user can access.
type Kubelet struct {
	config Config
	server *http.Server
	socket string
	done   chan struct{}
}

// Listen starts a kubelet.
func Listen(socket string, config Config) (*Kubelet, error) {
	if config.Process == nil {
		config.Process = func(string, string, string) (io.ReadCloser, bool, error) { return nil, false, nil }
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen for kubelet requests: %w", err)
	}
	k := &Kubelet{config: config, socket: socket, done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.exec)
	mux.HandleFunc("/exec/{namespace}/{pod}/{uid}/{container}", k.exec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", k.attach)
	mux.HandleFunc("/attach/{namespace}/{pod}/{uid}/{container}", k.attach)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.logs)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, fmt.Sprintf("%s is not simulated (exec, attach and logs are)", r.URL.Path), http.StatusNotFound)
	})
	k.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		// SPDY takes over the connection, which HTTP/2 does not support.
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{config.TLS}, NextProtos: []string{"http/1.1"},
			MinVersion: tls.VersionTLS12},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		defer close(k.done)
		_ = k.server.ServeTLS(listener, "", "")
	}()
	return k, nil
}

// Dial connects to the kubelet.
func (k *Kubelet) Dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", k.socket)
}

// Close stops the kubelet and waits until it no longer listens.
func (k *Kubelet) Close() {
	_ = k.server.Close()
	<-k.done
}

const (
	idleTimeout     = 4 * time.Hour
	creationTimeout = 30 * time.Second
)

func (k *Kubelet) exec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	namespace, pod, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	if log, ok, err := k.config.Process(namespace, pod, container); ok {
		if err == nil {
			_ = log.Close()
		}
		http.Error(w, fmt.Sprintf("pod %s/%s is a local process: there is no container to run a command in", namespace,
			pod),
			http.StatusNotImplemented)
		return
	}
	remotecommand.ServeExec(w, r, k, namespace+"/"+pod, r.PathValue("uid"), container, r.Form["command"], options,
		idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (k *Kubelet) attach(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, k, r.PathValue("namespace")+"/"+r.PathValue("pod"), r.PathValue("uid"),
		r.PathValue("container"), options,
		idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
}

// ExecInContainer implements remotecommand.Executor.
func (k *Kubelet) ExecInContainer(_ context.Context, name, _, container string, command []string, _ io.Reader, stdout,
	stderr io.WriteCloser,
	_ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	namespace, pod, _ := strings.Cut(name, "/")
	a := k.answer(namespace, pod, container, func(a *Answer) bool {
		return a.Log == nil && (a.Command == nil || a.Command.MatchString(strings.Join(command, " ")))
	})
	if stdout != nil {
		_, _ = io.WriteString(stdout, a.Stdout)
	}
	if stderr != nil {
		_, _ = io.WriteString(stderr, a.Stderr)
	}
	if a.ExitCode != 0 {
		return exec.CodeExitError{Err: fmt.Errorf("exit code %d", a.ExitCode), Code: a.ExitCode}
	}
	return nil
}

// AttachContainer implements remotecommand.Attacher: the container prints nothing.
func (k *Kubelet) AttachContainer(context.Context, string, string, string, io.Reader, io.WriteCloser, io.WriteCloser,
	bool,
	<-chan remotecommand.TerminalSize) error {
	return nil
}

func (k *Kubelet) logs(w http.ResponseWriter, r *http.Request) {
	namespace, pod, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	from, ok, err := k.config.Process(namespace, pod, container)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	case !ok:
		text := ""
		if a := k.answer(namespace, pod, container, func(a *Answer) bool { return a.Log != nil }); a.Log != nil {
			text = *a.Log
		}
		from = io.NopCloser(strings.NewReader(text))
	}
	defer from.Close()
	w.Header().Set("Content-Type", "text/plain")
	var text []byte
	if lines, err := strconv.Atoi(r.FormValue("tailLines")); err == nil {
		if text, err = io.ReadAll(from); err != nil {
			return
		}
		_, _ = w.Write(tail(text, lines))
		return
	}
	// A client that follows a log also gets only the current content: it must not wait forever for the output of a
	// simulated container.
	_, _ = io.Copy(w, from)
}

// tail returns the last lines.
func tail(text []byte, lines int) []byte {
	all := bytes.SplitAfter(text, []byte("\n"))
	if n := len(all); n > 0 && len(all[n-1]) == 0 {
		all = all[:n-1]
	}
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return bytes.Join(all, nil)
}

// answer returns the first answer that matches a container and the condition, or an empty one.
func (k *Kubelet) answer(namespace, pod, container string, fits func(*Answer) bool) *Answer {
	for i := range k.config.Answers {
		a := &k.config.Answers[i]
		if Matches(a.Namespace, namespace) && Matches(a.Pod, pod) && Matches(a.Container, container) && fits(a) {
			return a
		}
	}
	return &Answer{}
}

// Matches reports whether a name matches a pattern of path.Match. An empty pattern matches all names.
func Matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return pattern == "" || ok && err == nil
}
