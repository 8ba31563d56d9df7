package embedded

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// port is a loopback TCP port that stays reserved, whether or not a server listens on it: a socket that is bound but
// does not listen holds it. A server shares it with SO_REUSEPORT (kube-apiserver --permit-port-sharing), which only
// processes of the same user can do; no other process gets the port by chance, not even while the server is down.
type port struct {
	fd     int
	number int
}

func reservePort() (*port, error) {
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	p := &port{fd: fd}
	if err := p.bind(); err != nil {
		p.release()
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return p, nil
}

func (p *port) bind() error {
	if err := unix.Bind(p.fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	// Not before bind: the kernel could pick a port that another reservation holds.
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	addr, err := unix.Getsockname(p.fd)
	if err != nil {
		return err
	}
	p.number = addr.(*unix.SockaddrInet4).Port
	return nil
}

func (p *port) release() { _ = unix.Close(p.fd) }

func (p *port) addr() string { return fmt.Sprintf("127.0.0.1:%d", p.number) }
