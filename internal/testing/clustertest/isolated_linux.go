package clustertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// envIsolated is set in a test executable that Isolate has started.
const envIsolated = "TROMMEL_TEST_ISOLATED"

// Isolate runs tests of this executable in their own network, in which everything but loopback goes to a device that
// records the packets. It fails if there are any or if one of the tests fails. The executable's TestMain must call
// Isolated. If such a network cannot be created, for example without root, the test is skipped.
func Isolate(t *testing.T, pattern string, env ...string) {
	t.Helper()
	if os.Getenv(envIsolated) != "" {
		t.Skip("in an isolated network already")
	}
	if os.Getuid() != 0 {
		t.Skip("an isolated network requires root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("no ip command to set a network up")
	}
	control, err := Binary() // while there is a network
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run="+pattern, "-test.v")
	cmd.Env = append(append(os.Environ(), envIsolated+"=1", EnvBinary+"="+control), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM):
		t.Skipf("cannot create an isolated network: %v", err)
	case strings.Contains(string(out), cannotIsolate):
		t.Skip(string(out))
	case err != nil:
		t.Errorf("%v:\n%s", err, out)
	case !strings.Contains(string(out), "--- PASS"):
		t.Errorf("no test ran:\n%s", out)
	}
}

const cannotIsolate = "cannot create an isolated network"

// Isolated wraps what TestMain runs. In an executable that Isolate has started it sets the network up, and returns a
// failure code if packets were sent to addresses other than loopback.
func Isolated(run func() int) int {
	if os.Getenv(envIsolated) == "" {
		return run()
	}
	n, err := newNotedNetwork()
	if err != nil {
		fmt.Printf("%s: %v\n", cannotIsolate, err)
		return 1
	}
	code := run()
	if packets := n.packets(); len(packets) > 0 {
		fmt.Printf("packets would have left the machine: %s\n", strings.Join(packets, ", "))
		return 1
	}
	return code
}

// notedNetwork is the network of this process, with a device that receives all packets that do not go to loopback.
type notedNetwork struct {
	device *os.File

	mu   sync.Mutex
	seen []string // destinations, each once
}

func newNotedNetwork() (*notedNetwork, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq("out0")
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, fmt.Errorf("create a device: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	n := &notedNetwork{device: os.NewFile(uintptr(fd), "tun")}
	for _, command := range []string{
		"link set lo up", "addr add 203.0.113.2/24 dev out0", "link set out0 up", "route add default via 203.0.113.1",
	} {
		if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("ip %s: %w: %s", command, err, out)
		}
	}
	go n.read()
	return n, n.check()
}

// check makes sure that packets are recorded.
func (n *notedNetwork) check() error {
	const outside = "198.51.100.7:9"
	if conn, err := net.DialTimeout("tcp", outside, 200*time.Millisecond); err == nil {
		_ = conn.Close()
		return fmt.Errorf("%s accepts connections", outside)
	}
	if packets := n.packets(); !slices.Contains(packets, outside) {
		return fmt.Errorf("a connection to %s was not recorded (only %v)", outside, packets)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen = nil
	return nil
}

func (n *notedNetwork) packets() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.seen)
}

func (n *notedNetwork) read() {
	packet := make([]byte, 65536)
	for {
		length, err := n.device.Read(packet)
		if err != nil {
			return
		}
		to := destination(packet[:length])
		n.mu.Lock()
		if to != "" && !slices.Contains(n.seen, to) {
			n.seen = append(n.seen, to)
		}
		n.mu.Unlock()
	}
}

// destination returns a packet's destination; "" for packets of the kernel itself, such as neighbor discovery.
func destination(packet []byte) string {
	const tcp, udp = 6, 17
	if len(packet) < 40 {
		return ""
	}
	var ip netip.Addr
	var protocol byte
	var rest []byte
	switch packet[0] >> 4 {
	case 4:
		ip, protocol, rest = netip.AddrFrom4([4]byte(packet[16:20])), packet[9], packet[int(packet[0]&15)*4:]
	case 6:
		ip, protocol, rest = netip.AddrFrom16([16]byte(packet[24:40])), packet[6], packet[40:]
	}
	if protocol != tcp && protocol != udp || len(rest) < 4 {
		return ""
	}
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(rest[2:])).String()
}
