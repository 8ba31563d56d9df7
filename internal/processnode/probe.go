package processnode

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/trommel-dev/trommel/internal/child"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/clock/keeper"
	"github.com/trommel-dev/trommel/internal/processnode/volumes"
)

// Intervals of probes of a container that is not ready: waiting for a whole period would only cost time. They double.
const (
	firstEager = 5 * time.Millisecond
	eager      = 100 * time.Millisecond
)

// probe keeps the container's readiness up to date while the process runs, until the context ends.
func (c *container) probe(ctx context.Context, r *run) {
	probe := c.spec.ReadinessProbe
	if probe == nil {
		return
	}
	if c.program.readyFile != "" && c.followReadyFile(ctx, r) == nil {
		return
	}
	n := c.pod.node
	wait := time.Duration(probe.InitialDelaySeconds) * time.Second
	period := max(time.Duration(probe.PeriodSeconds)*time.Second, time.Second)
	longest := eager
	if clock.Of(ctx) != nil {
		longest = period // waiting costs nothing, but every probe does
	}
	successes, failures := 0, 0
	unready := firstEager
	for {
		if clock.Sleep(ctx, wait) != nil {
			return
		}
		err := c.probeOnce(ctx, probe)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			successes, failures = successes+1, 0
		} else {
			successes, failures = 0, failures+1
		}
		n.mu.Lock()
		ready := c.ready
		n.mu.Unlock()
		switch {
		case successes >= max(int(probe.SuccessThreshold), 1):
			ready = true
		case failures >= max(int(probe.FailureThreshold), 1):
			ready = false
		}
		c.setReady(r, ready, err)
		wait = period
		if !ready {
			wait = min(unready, period)
			unready = min(2*unready, longest)
		} else {
			unready = firstEager
		}
	}
}

// followReadyFile makes the container ready while an injector's readiness file exists, until the process or the context
// ends.
func (c *container) followReadyFile(ctx context.Context, r *run) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(filepath.Dir(c.program.readyFile)); err != nil {
		return err
	}
	for {
		_, err := os.Stat(c.program.readyFile)
		c.setReady(r, err == nil, err)
		select {
		case <-ctx.Done():
			return nil
		case <-r.process.Done():
			return nil
		case <-watcher.Events:
		case err := <-watcher.Errors: // perhaps events were lost
			c.pod.node.log.Warn("follow the readiness file", "pod", c.pod.name, "error", err)
		}
	}
}

// setReady notes whether the container is ready, and the error of its last probe.
func (c *container) setReady(r *run, ready bool, probe error) {
	n := c.pod.node
	n.mu.Lock()
	news := ready != c.ready
	c.ready = ready
	r.record.Unready = ""
	if !ready && probe != nil {
		r.record.Unready = probe.Error()
	}
	n.mu.Unlock()
	if news {
		c.pod.touch()
	}
}

func (c *container) probeOnce(ctx context.Context, probe *corev1.Probe) error {
	ctx, cancel := clock.WithTimeout(ctx, max(time.Duration(probe.TimeoutSeconds)*time.Second, time.Second))
	defer cancel()
	switch {
	case probe.HTTPGet != nil:
		return c.probeHTTP(ctx, probe.HTTPGet)
	case probe.TCPSocket != nil:
		port, err := c.port(probe.TCPSocket.Port)
		if err != nil {
			return err
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(c.probeHost(probe.TCPSocket.Host), port))
		if err != nil {
			return err
		}
		return conn.Close()
	case probe.Exec != nil:
		return c.probeExec(ctx, probe.Exec.Command)
	}
	return nil // gRPC is not supported: always ready
}

func (c *container) probeHTTP(ctx context.Context, get *corev1.HTTPGetAction) error {
	port, err := c.port(get.Port)
	if err != nil {
		return err
	}
	scheme := "http"
	if get.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	at := probeURL(scheme, net.JoinHostPort(c.probeHost(get.Host), port), get.Path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	for _, h := range get.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", "kube-probe/trommel") // some servers look for a kubelet's prefix
	}
	// A kubelet does not verify certificates either.
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

// probeURL returns the URL of an HTTP probe. As with a kubelet, the path may have a query, and need not begin with a
// slash.
func probeURL(scheme, address, path string) string {
	u, err := url.Parse(path)
	if err != nil {
		u = &url.URL{Path: path}
	}
	u.Scheme, u.Host = scheme, address
	return u.String()
}

// probeHost returns the pod's address, unless the probe names a host. Such a host is the machine's own, because a
// kubelet probes from outside of the pod.
func (c *container) probeHost(named string) string {
	if named != "" {
		return named
	}
	return c.pod.address.IP.String()
}

func (c *container) probeExec(ctx context.Context, command []string) error {
	if len(command) == 0 {
		return nil
	}
	path, err := lookPath(command[0], c.program.workDir, c.program.lookupEnv)
	if err != nil {
		return err
	}
	mounts := c.program.mounts
	if c.program.hooked {
		mounts = c.program.files.Moved()
	}
	hooked := false
	if !c.pod.isInjector() {
		if hooked, err = c.pod.node.hooked.has(path); err != nil {
			return err
		}
	}
	argv := make([]string, len(command))
	for i, s := range command {
		argv[i] = s
		if !hooked {
			argv[i] = volumes.RewritePaths(s, mounts)
		}
	}
	p, err := keeper.Adopt(c.pod.node.config.Keeper, func() (*child.Process, error) {
		return child.Start(&exec.Cmd{Path: path, Args: argv, Env: c.program.env, Dir: c.program.workDir})
	})
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Kill()
		return ctx.Err()
	}
	if p.ExitCode() != 0 {
		return fmt.Errorf("exit code %d", p.ExitCode())
	}
	return nil
}

// port resolves a probe's port, which may be the name of one of the container's ports.
func (c *container) port(p intstr.IntOrString) (string, error) {
	if p.Type == intstr.Int {
		return p.String(), nil
	}
	for _, named := range c.spec.Ports {
		if named.Name == p.StrVal {
			return strconv.Itoa(int(named.ContainerPort)), nil
		}
	}
	if _, err := strconv.Atoi(p.StrVal); err == nil {
		return p.StrVal, nil
	}
	return "", fmt.Errorf("no port %q", p.StrVal)
}
