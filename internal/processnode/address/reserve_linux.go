package address

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// reserveBlock reserves a block that no other process has, by an abstract unix socket: its name is visible wherever the
// same loopback interface is, and it is free again when this process ends, even by SIGKILL.
func reserveBlock() (*addressBlock, error) {
	// 127.0 is left to other programs, and so are 127.1 and 127.53, which people and resolvers use.
	for range 1000 {
		n := rand.IntN(128 * 256)
		b := &addressBlock{prefix: [3]byte{127, byte(128 + n>>8), byte(n)}}
		if b.prefix[1] == 255 {
			continue
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@trommel/127.%d.%d", b.prefix[1], b.prefix[2])})
		if err == nil {
			b.release = func() { _ = unix.Close(fd) }
			return b, nil
		}
		_ = unix.Close(fd)
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, err
		}
	}
	return nil, errors.New("all are taken by other clusters on this machine")
}
