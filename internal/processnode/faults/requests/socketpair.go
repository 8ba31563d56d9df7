package requests

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// SocketPair returns two connections that are connected to each other.
func SocketPair() (a, b net.Conn, err error) {
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if a, err = fileConn(fds[0]); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[1]))
	}
	if b, err = fileConn(fds[1]); err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	return a, b, nil
}

func fileConn(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "socketpair")
	defer f.Close()
	return net.FileConn(f)
}
