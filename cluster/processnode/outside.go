package processnode

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

var (
	portTaken   = regexp.MustCompile(`listen (?:tcp|udp)[46]? (\S+): bind: address already in use`)
	noSuchFile  = regexp.MustCompile(`(/[^\s:"']+): no such file or directory`)
	noSuchHost  = regexp.MustCompile(`lookup (\S+?)(?: on \S+)?: no such host`)
	clusterName = regexp.MustCompile(`(?i)\.svc(\.cluster\.local)?\.?$`)
)

// tailBytes is how much of a log's end is searched, because the cause is there.
const tailBytes = 16 << 10

// metMachine returns what a process without hooks looked for in its pod and found on this machine instead, or did not
// find there, and how to solve that. It is empty if the end of its log, which begins at start, does not mention such a
// thing. A process with hooks is affected by the machine only if a port is taken on all of the machine's addresses, or
// if the machine has only one loopback address.
func (c *container) metMachine(start int64) string {
	f, err := os.Open(c.logFile)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size()-start > tailBytes {
		start = info.Size() - tailBytes
	}
	text, err := io.ReadAll(io.NewSectionReader(f, start, tailBytes))
	if err != nil {
		return ""
	}
	if c.hooked {
		return explainPort(string(text), c.pod.address)
	}
	return explainMachine(string(text), c.mounts)
}

// explainPort is for a process with hooks. It distinguishes a port that the process has opened twice, which is its own
// mistake, from one that the machine uses.
func explainPort(log string, pod address) string {
	m := portTaken.FindStringSubmatch(log)
	if m == nil {
		return ""
	}
	if !pod.own() {
		return fmt.Sprintf("port %s is taken here, by another run perhaps: this machine has one loopback address, which all pods share. "+
			"Give the controller another port with `args:` or `env:`", m[1])
	}
	_, port, err := net.SplitHostPort(m[1])
	if err != nil {
		return ""
	}
	// No pod has this address.
	nobody := pod.ip.As4()
	nobody[3] = 1
	listener, err := net.Listen("tcp4", net.JoinHostPort(netip.AddrFrom4(nobody).String(), port))
	if err == nil {
		_ = listener.Close()
		return ""
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return ""
	}
	return fmt.Sprintf("port %s is taken here: a program that is not of this run listens on it on all addresses of this machine, the pod's among them. "+
		"End that program, have it listen on 127.0.0.1 alone, or give the controller another port with `args:` or `env:`",
		m[1])
}

func explainMachine(log string, mounts []mount) string {
	const why = "the executable has no hooks for its pod's files, address and names, so it meets this machine's: %s. " +
		"Have it built with `build:`, or %s"
	if m := portTaken.FindStringSubmatch(log); m != nil {
		return fmt.Sprintf(why, "port "+m[1]+" is taken here, by another run perhaps",
			"give it another port with `args:` or `env:`")
	}
	for _, m := range noSuchFile.FindAllStringSubmatch(log, -1) {
		path := filepath.Clean(m[1])
		switch {
		case strings.HasPrefix(path, serviceAccountMount):
			return fmt.Sprintf(why, path+" is in the pod and not here",
				"one that is given by `binary:` must take its configuration from KUBECONFIG")
		default:
			for _, mount := range mounts {
				if path == mount.path || strings.HasPrefix(path, mount.path+"/") {
					return fmt.Sprintf(why, path+" is in the pod's volume at "+mount.path+" and not here",
						"give it the path with `args:` or `env:`, where paths of volumes are replaced by where they are on this machine")
				}
			}
		}
	}
	for _, m := range noSuchHost.FindAllStringSubmatch(log, -1) {
		if clusterName.MatchString(m[1]) {
			return fmt.Sprintf(why, "the name "+m[1]+" is known in the cluster and not here",
				"give it an address that it can reach with `args:` or `env:`")
		}
	}
	return ""
}
