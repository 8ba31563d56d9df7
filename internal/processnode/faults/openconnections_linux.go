package faults

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openConnections lists this machine's established connections by their sockets, as links below /proc name them.
func openConnections() (map[string]connection, error) {
	all := map[string]connection{}
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for inode, c := range parseConnections(string(text)) {
			all["socket:["+inode+"]"] = c
		}
	}
	return all, nil
}

// endConnections shuts down those of the connections that match and belong to the processes. Processes that have exited
// have none.
func endConnections(all map[string]connection, pids []int, match func(connection) bool) error {
	matching := map[string]bool{}
	for socket, c := range all {
		if match(c) {
			matching[socket] = true
		}
	}
	if len(matching) == 0 {
		return nil
	}
	var errs []error
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			if of, err := os.Readlink(filepath.Join(dir, e.Name())); err != nil || !matching[of] {
				continue
			}
			if fd, err := strconv.Atoi(e.Name()); err == nil {
				errs = append(errs, shutdown(pid, fd))
			}
		}
	}
	return errors.Join(errs...)
}

// shutdown ends a process's connection, which is possible without privileges because the process is our child.
func shutdown(pid, fd int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return ignoreGone("pidfd_open", err)
	}
	defer func() { _ = unix.Close(process) }()
	own, err := unix.PidfdGetfd(process, fd, 0)
	if err != nil {
		return ignoreGone("pidfd_getfd", err)
	}
	defer func() { _ = unix.Close(own) }()
	return ignoreGone("shutdown", unix.Shutdown(own, unix.SHUT_RDWR))
}

// ignoreGone names an error, unless it means that the process or its connection has ended meanwhile.
func ignoreGone(call string, err error) error {
	switch {
	case err == nil, errors.Is(err, unix.ESRCH), errors.Is(err, unix.EBADF), errors.Is(err, unix.ENOTCONN),
		errors.Is(err, unix.ENOTSOCK):
		return nil
	}
	return os.NewSyscallError(call, err)
}

// parseConnections parses /proc/net/tcp or tcp6: the established connections by the inodes of their sockets.
func parseConnections(text string) map[string]connection {
	const established = "01"
	found := map[string]connection{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != established {
			continue
		}
		local, ok1 := parseHexAddress(f[1])
		remote, ok2 := parseHexAddress(f[2])
		if ok1 && ok2 {
			found[f[9]] = connection{local, remote}
		}
	}
	return found
}

// parseHexAddress parses an address as the kernel shows it: words of 32 bits in the machine's byte order.
func parseHexAddress(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	data, err := hex.DecodeString(host)
	number, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || len(data)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(data); i += 4 {
		binary.NativeEndian.PutUint32(data[i:], binary.BigEndian.Uint32(data[i:]))
	}
	ip, ok := netip.AddrFromSlice(data)
	return netip.AddrPortFrom(ip.Unmap(), uint16(number)), ok
}
