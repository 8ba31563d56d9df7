package kind

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/trommel-dev/trommel/internal/cluster/passthrough"
	"github.com/trommel-dev/trommel/internal/pki"
)

// gate is where the node's processes reach this one: launchers, and through them the hooks, which look for a
// coordinator. It listens only on this machine's address in the node's network. Connections are encrypted, and their
// first line must have the token.
type gate struct {
	listener    net.Listener
	certificate tls.Certificate
	token       string
	coordinator string // the socket on which a coordinator listens, while there is one
	processes   *processes

	ctx     context.Context
	cancel  context.CancelFunc
	serving sync.WaitGroup
}

// issueCertificate issues a certificate for this machine's address in the node's network.
func issueCertificate(ca *pki.Authority, ip string) (tls.Certificate, error) {
	pair, err := ca.Issue(x509.Certificate{
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.ParseIP(ip)},
	})
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(pair.Cert, pair.Key)
}

// freebind is Linux' IP_FREEBIND.
const freebind = 15

// listen listens at an address of this machine in the node's network.
func listen(ip string) (net.Listener, error) {
	var config net.ListenConfig
	if client() == podman { // which gives this machine its address only when the first container starts
		config.Control = func(_, _ string, c syscall.RawConn) error {
			var set error
			err := c.Control(func(fd uintptr) {
				set = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, freebind, 1) //nolint:gosec // it is small
			})
			return errors.Join(err, set)
		}
	}
	return config.Listen(context.Background(), "tcp", net.JoinHostPort(ip, "0"))
}

// openGate listens. The caller sets processes before any process can know the token, and closes the gate.
func openGate(ip string, certificate tls.Certificate, token, coordinator string, p *processes) (*gate, error) {
	listener, err := listen(ip)
	if err != nil {
		return nil, err
	}
	g := &gate{certificate: certificate, token: token, coordinator: coordinator, processes: p}
	g.listener = tls.NewListener(listener, &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13,
	})
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.serving.Go(g.accept)
	return g, nil
}

// gateConfig is what a launcher must know; see the type config there.
type gateConfig struct {
	Address     string `json:"address"`
	Token       string `json:"token"`
	Fingerprint string `json:"fingerprint"`
}

func (g *gate) config() gateConfig {
	sum := sha256.Sum256(g.certificate.Certificate[0])
	return gateConfig{Address: g.listener.Addr().String(), Token: g.token, Fingerprint: hex.EncodeToString(sum[:])}
}

// close stops listening, ends every connection and waits until all goroutines have finished.
func (g *gate) close() {
	g.cancel()
	_ = g.listener.Close()
	g.serving.Wait()
}

func (g *gate) accept() {
	for {
		conn, err := g.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(5 * time.Millisecond) // most likely out of file descriptors
			continue
		}
		g.serving.Go(func() {
			defer conn.Close()
			stop := context.AfterFunc(g.ctx, func() { _ = conn.Close() })
			defer stop()
			g.serve(conn)
		})
	}
}

// hello is the first line on a connection; see launcher.
type hello struct {
	Token  string `json:"token"`
	Tunnel bool   `json:"tunnel"`
	Name   caller `json:"name"`
}

// caller is who a launcher is, as its environment says.
type caller struct {
	Controller string `json:"controller"` // or an API server
	Namespace  string `json:"namespace"`
	Pod        string `json:"pod"`
	Container  string `json:"container"`
	// Init: the container ends when it has done its work.
	Init bool `json:"init,omitempty"`
}

// helloTimeout limits how long a connection may take to say who it is.
const helloTimeout = 10 * time.Second

// maxHello is longer than any first line.
const maxHello = 16 << 10

func (g *gate) serve(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(helloTimeout))
	reader := bufio.NewReaderSize(conn, maxHello)
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return
	}
	var h hello
	if json.Unmarshal(line, &h) != nil || subtle.ConstantTimeCompare([]byte(h.Token), []byte(g.token)) != 1 {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if !h.Tunnel {
		g.processes.serve(h.Name, conn, reader)
		return
	}
	coordinator, err := (&net.Dialer{}).DialContext(g.ctx, "unix", g.coordinator)
	if err != nil {
		return // there is none at the moment; the hook tries again
	}
	passthrough.Join(buffered{conn, reader}, coordinator)
}

// buffered is a connection of which the reader has read something already.
type buffered struct {
	net.Conn
	reader io.Reader
}

func (b buffered) Read(data []byte) (int, error) { return b.reader.Read(data) }
