package linux

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/chaos/command/injector"
)

// Names under which the test's own executable does something else.
const (
	asInjector  = "test-injector"
	asContainer = "test-container"
	// envHost names a process with the node's own namespaces, for an injector.
	envHost = "TROMMEL_TEST_HOST"
)

func TestMain(m *testing.M) {
	if code, isHelper := Helper(os.Args); isHelper {
		os.Exit(code)
	}
	switch os.Args[0] {
	case asInjector:
		host, err := strconv.Atoi(os.Getenv(envHost))
		if err != nil {
			host = os.Getppid()
		}
		os.Exit(injector.Run(context.Background(), os.Args[1:], backend(host)))
	case asContainer:
		if err := beContainer(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// backend is for a likeness of a node, whose own namespaces are those of the test.
func backend(host int) *Backend { return &Backend{Node{Host: host}} }

// beContainer is a container's first process. It has its own mounts, as a kubelet makes them: from is the node's
// directory, with a name of a container or not (the sandbox). It works until its standard input ends.
func beContainer(from, name string, work []string) error {
	var begin [3]byte
	if _, err := io.ReadFull(os.Stdin, begin[:]); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	mounts := map[string]string{filepath.Join(from, "resolv.conf"): "/etc/resolv.conf"}
	if name != "" {
		mounts[filepath.Join(from, "containers", name, "1a2b3c4d")] = filepath.Join(from, "termination-log")
	}
	for source, target := range mounts {
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	fmt.Println("ready")
	switch {
	case len(work) == 0:
	case work[0] == "burn":
		go func() {
			for {
				continue
			}
		}()
	case work[0] == "obey":
		return obey(os.Stdin, os.Stdout)
	case work[0] == "read":
		f, err := os.OpenFile(work[1], os.O_RDONLY|unix.O_DIRECT, 0)
		if err != nil {
			return err
		}
		// Direct input needs memory at whole pages.
		buffer, err := unix.Mmap(-1, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		go func() {
			for at := int64(0); ; at = (at + int64(len(buffer))) % (4 << 20) {
				if _, err := f.ReadAt(buffer, at); err != nil {
					panic(err)
				}
			}
		}()
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// obey does what each line asks for, and answers with a line.
func obey(in io.Reader, out io.Writer) error {
	var kept *os.File
	for lines := bufio.NewScanner(in); lines.Scan(); {
		verb, what, _ := strings.Cut(lines.Text(), " ")
		answer, err := "", error(nil)
		switch verb {
		case "tcp", "udp":
			patience, to, _ := strings.Cut(what, " ")
			answer, err = echoed(verb, to, patience)
		case "dns":
			answer = lookedUp(what)
		case "listen":
			var l net.Listener
			if l, err = net.Listen("tcp", what); err == nil {
				go func() { _ = serveEcho(l) }()
			}
		case "open":
			var f *os.File
			if f, err = os.OpenFile(what, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
				err = f.Close()
			}
		case "read":
			_, err = os.ReadFile(what)
		case "keep":
			kept, err = os.Open(what)
		case "again":
			_, err = kept.ReadAt(make([]byte, 1), 0)
		case "mount":
			from, at, _ := strings.Cut(what, " at ")
			err = unix.Mount(from, at, "", unix.MS_BIND, "")
		case "list":
			_, err = os.ReadDir(what)
		}
		if err != nil {
			answer = err.Error()
		}
		if _, err := fmt.Fprintln(out, strings.ReplaceAll(answer, "\n", " ")); err != nil {
			return err
		}
	}
	return nil
}

// echoed reports how often a byte came back, of three.
func echoed(network, to, patience string) (string, error) {
	timeout, err := time.ParseDuration(patience)
	if err != nil {
		return "", err
	}
	back := 0
	for range 3 {
		c, err := net.DialTimeout(network, to, timeout)
		if err != nil {
			continue
		}
		err = c.SetDeadline(time.Now().Add(timeout))
		var answer [1]byte
		if _, e := c.Write([]byte("e")); e == nil && err == nil {
			if _, e := io.ReadFull(c, answer[:]); e == nil {
				back++
			}
		}
		if err := c.Close(); err != nil {
			return "", err
		}
	}
	return strconv.Itoa(back), nil
}

func serveEcho(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// lookedUp asks the container's server for a name.
func lookedUp(name string) string {
	config, err := dns.ClientConfigFromFile("/etc/resolv.conf")
	if err != nil {
		return err.Error()
	}
	query := new(dns.Msg).SetQuestion(name+".", dns.TypeA)
	answer, _, err := (&dns.Client{Timeout: time.Second}).Exchange(query, config.Servers[0]+":53")
	if err != nil {
		return err.Error()
	}
	if len(answer.Answer) == 0 {
		return dns.RcodeToString[answer.Rcode]
	}
	return answer.Answer[0].(*dns.A).A.String()
}

// node is a likeness of a node: pods with their own network namespaces, each connected to a server in a third one;
// processes in cgroups that are laid out as the kubelet does.
type node struct {
	t      *testing.T
	server *namespace
	dir    string
	// roots are the directories below which the pods' cgroups are, one for each hierarchy of version 1.
	roots map[string]string
	pods  int
}

// The server's addresses. It has names for some.
const (
	host1, host2, host6 = "10.77.9.1", "10.77.9.2", "fd77:9::1"
	nameserver          = "10.77.9.3"
	otherNameserver     = "10.77.9.4"
)

var addressOf = map[string]string{
	"db.default.svc.cluster.local.": host2, "example.org.": host1, "below.example.org.": host1,
}

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces and cgroups need root")
	}
	if exists("/sys/fs/cgroup/cgroup.controllers") || !exists("/sys/fs/cgroup/memory") {
		t.Skip("the likeness of a node needs cgroups of version 1; those of version 2 have a test with plain files")
	}
	n := &node{t: t, dir: t.TempDir(), roots: map[string]string{}}
	hierarchies := []string{"cpu", "cpuacct", "cpuset", "memory", "blkio"}
	if exists("/sys/fs/cgroup/unified/cgroup.controllers") {
		hierarchies = append(hierarchies, "unified") // version 2, without controllers
	}
	for _, hierarchy := range hierarchies {
		root := filepath.Join("/sys/fs/cgroup", hierarchy, fmt.Sprintf("trommel-test-%d", os.Getpid()))
		if err := os.Mkdir(root, 0o755); err != nil {
			t.Skipf("no cgroup can be made: %v", err)
		}
		inheritCPUs(t, root)
		n.roots[hierarchy] = root
		t.Cleanup(func() {
			if err := os.Remove(root); err != nil {
				t.Error(err)
			}
		})
	}
	n.server = n.newNamespace()
	h := n.handle(n.server)
	lo := must(h.LinkByName("lo"))(t)
	for _, a := range []string{host1 + "/32", host2 + "/32", nameserver + "/32", otherNameserver + "/32",
		host6 + "/128"} {
		n.check(h.AddrAdd(lo, &netlink.Addr{IPNet: must(netlink.ParseIPNet(a))(t), Flags: unix.IFA_F_NODAD}))
	}
	n.serveDNS()
	return n
}

// must ends the test if there is an error.
func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func (n *node) check(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// newNamespace makes a network namespace with a loopback interface that is up.
func (n *node) newNamespace() *namespace {
	var handle netns.NsHandle
	n.check(ownThread(func() (err error) {
		handle, err = netns.New()
		return err
	}))
	var stat unix.Stat_t
	n.check(unix.Fstat(int(handle), &stat))
	ns := &namespace{handle, stat.Ino}
	n.t.Cleanup(ns.Close)
	h := n.handle(ns)
	n.check(h.LinkSetUp(must(h.LinkByName("lo"))(n.t)))
	return ns
}

func (n *node) handle(ns *namespace) *netlink.Handle {
	h := must(netlink.NewHandleAt(ns.NsHandle, unix.NETLINK_ROUTE))(n.t)
	n.t.Cleanup(h.Close)
	return h
}

// serveDNS starts the servers for names.
func (n *node) serveDNS() {
	for _, at := range []string{nameserver, otherNameserver} {
		handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			answer := new(dns.Msg).SetReply(q)
			ip, ok := addressOf[strings.ToLower(q.Question[0].Name)]
			switch {
			case !ok:
				answer.Rcode = dns.RcodeNameError
			case q.Question[0].Qtype == dns.TypeA:
				if at == otherNameserver {
					ip = "10.77.8.8" // shows which one was asked
				}
				head := dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}
				answer.Answer = append(answer.Answer, &dns.A{Hdr: head, A: net.ParseIP(ip)})
			}
			_ = w.WriteMsg(answer)
		})
		udp, tcp := &dns.Server{Handler: handler}, &dns.Server{Handler: handler}
		n.check(n.server.do(func() (err error) {
			if udp.PacketConn, err = net.ListenPacket("udp", at+":53"); err != nil {
				return err
			}
			tcp.Listener, err = net.Listen("tcp", at+":53")
			return err
		}))
		for _, s := range []*dns.Server{udp, tcp} {
			started := make(chan struct{})
			s.NotifyStartedFunc = func() { close(started) }
			go func() { _ = s.ActivateAndServe() }()
			<-started
			n.t.Cleanup(func() { _ = s.Shutdown() })
		}
	}
}

// runningPod is a pod of the likeness.
type runningPod struct {
	n       *node
	uid     types.UID
	ns      *namespace
	ip      string
	cgroups map[string]string // the pod's, by hierarchy
	dir     string
	systemd bool
	started int
}

// newPod makes a pod with a sandbox. systemd is the kubelet's cgroup driver.
func (n *node) newPod(systemd bool) *runningPod {
	n.t.Helper()
	n.pods++
	at := n.pods
	p := &runningPod{
		n: n, uid: types.UID(fmt.Sprintf("1b4e28ba-2fa1-11d2-883f-%012d", os.Getpid()*100+at)), ns: n.newNamespace(),
		ip: fmt.Sprintf("10.77.%d.2", at), cgroups: map[string]string{}, systemd: systemd,
	}
	// One cable, with the server at its other end.
	outside, inside := n.handle(n.server), n.handle(p.ns)
	name := fmt.Sprintf("pod%d", at)
	n.check(outside.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(p.ns.NsHandle),
	}))
	for _, end := range []struct {
		h             *netlink.Handle
		name, v4, v6  string
		gateway, gate string
	}{
		{outside, name, fmt.Sprintf("10.77.%d.1/24", at), fmt.Sprintf("fd77:%d::1/64", at), "", ""},
		{inside, "eth0", p.ip + "/24", fmt.Sprintf("fd77:%d::2/64", at), fmt.Sprintf("10.77.%d.1", at),
			fmt.Sprintf("fd77:%d::1", at)},
	} {
		l := must(end.h.LinkByName(end.name))(n.t)
		for _, a := range []string{end.v4, end.v6} {
			n.check(end.h.AddrAdd(l, &netlink.Addr{IPNet: must(netlink.ParseIPNet(a))(n.t), Flags: unix.IFA_F_NODAD}))
		}
		n.check(end.h.LinkSetUp(l))
		for _, g := range []string{end.gateway, end.gate} {
			if g != "" {
				n.check(end.h.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(g)}))
			}
		}
	}
	p.dir = filepath.Join(n.dir, "pods", string(p.uid))
	n.check(os.MkdirAll(p.dir, 0o755))
	for file, text := range map[string]string{
		"resolv.conf": "search default.svc.cluster.local svc.cluster.local cluster.local\nnameserver " + nameserver +
			"\noptions ndots:5\n",
		"termination-log": "",
	} {
		n.check(os.WriteFile(filepath.Join(p.dir, file), []byte(text), 0o600))
	}
	parts := []string{"kubepods", "burstable", "pod" + string(p.uid)}
	if systemd {
		parts = []string{"kubepods.slice", "kubepods-burstable.slice",
			"kubepods-burstable-pod" + strings.ReplaceAll(string(p.uid), "-", "_") + ".slice"}
	}
	for hierarchy, root := range n.roots {
		p.cgroups[hierarchy] = n.mkdirs(root, parts...)
	}
	p.start("")
	return p
}

// mkdirs makes cgroups that are removed in the end.
func (n *node) mkdirs(dir string, parts ...string) string {
	for _, part := range parts {
		dir = filepath.Join(dir, part)
		made := dir
		if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			n.t.Fatal(err)
		}
		inheritCPUs(n.t, dir)
		n.t.Cleanup(func() {
			if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
				n.t.Error(err)
			}
		})
	}
	return dir
}

// inheritCPUs: a new cpuset is empty.
func inheritCPUs(t *testing.T, dir string) {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// running is a container of the likeness.
type running struct {
	cmd     *exec.Cmd
	end     func() error
	say     func(string) error
	heard   *bufio.Reader
	exited  chan struct{}
	cgroups map[string]string
}

// start starts a container. Without a name it is the pod's sandbox. limits are written into files of its cgroups.
func (p *runningPod) start(name string, options ...any) *running {
	t := p.n.t
	t.Helper()
	p.started++
	id := fmt.Sprintf("%064x", p.started)
	if p.systemd {
		id = "cri-containerd-" + id + ".scope"
	}
	c := &running{exited: make(chan struct{}), cgroups: map[string]string{}}
	for hierarchy, dir := range p.cgroups {
		c.cgroups[hierarchy] = p.n.mkdirs(dir, id)
	}
	args := []string{p.dir, name}
	for _, o := range options {
		switch o := o.(type) {
		case []string:
			args = append(args, o...)
		case limits:
			for file, value := range o {
				hierarchy, _, _ := strings.Cut(file, ".")
				p.n.check(os.WriteFile(filepath.Join(c.cgroups[hierarchy], file), []byte(value), 0))
			}
		}
	}
	if name != "" {
		dir := filepath.Join(p.dir, "containers", name)
		p.n.check(os.MkdirAll(dir, 0o755))
		p.n.check(os.WriteFile(filepath.Join(dir, "1a2b3c4d"), nil, 0o600))
	}
	c.cmd = exec.Command("/proc/self/exe", args...)
	c.cmd.Args[0] = asContainer
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	stdin := must(c.cmd.StdinPipe())(t)
	stdout := must(c.cmd.StdoutPipe())(t)
	p.n.check(p.ns.do(c.cmd.Start))
	for _, dir := range c.cgroups {
		p.n.check(os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(c.cmd.Process.Pid)), 0))
	}
	_, err := io.WriteString(stdin, "go\n")
	p.n.check(err)
	c.heard = bufio.NewReader(stdout)
	c.say = func(line string) error {
		_, err := io.WriteString(stdin, line+"\n")
		return err
	}
	if line, err := c.heard.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("container %s: %q %v", name, line, err)
	}
	go func() {
		defer close(c.exited)
		_ = c.cmd.Wait()
	}()
	c.end = func() error {
		err := stdin.Close()
		<-c.exited
		return err
	}
	t.Cleanup(func() {
		_ = c.end()
		for _, dir := range c.cgroups {
			for _, pid := range processes(dir) {
				t.Errorf("process %d is left in %s", pid, dir)
			}
		}
	})
	return c
}

// ask lets a container that obeys do something.
func (c *running) ask(t *testing.T, line string) string {
	t.Helper()
	if err := c.say(line); err != nil {
		t.Fatal(err)
	}
	answer, err := c.heard.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(answer)
}

// echoes reports how many bytes of three come back to a container from an address, such as tcp 10.77.9.1:7000. It
// waits longer for those that should: the machine may be busy.
func (c *running) echoes(t *testing.T, from string, want int) int {
	t.Helper()
	patience := "300ms"
	if want > 0 {
		patience = "5s"
	}
	network, at, _ := strings.Cut(from, " ")
	return must(strconv.Atoi(c.ask(t, network+" "+patience+" "+at)))(t)
}

// limits are files of cgroups with their contents.
type limits map[string]string

// dial opens a connection from the pod.
func (p *runningPod) dial(ctx context.Context, network, to string) (net.Conn, error) {
	var conn net.Conn
	err := p.ns.do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, to)
		return err
	})
	return conn, err
}

// dump is everything that an injection may change in a pod.
func (p *runningPod) dump() string {
	t := p.n.t
	t.Helper()
	var b strings.Builder
	c := must(nftables.New(nftables.WithNetNSFd(int(p.ns.NsHandle))))(t)
	for _, table := range must(c.ListTables())(t) {
		fmt.Fprintf(&b, "table %d %s\n", table.Family, table.Name)
	}
	for _, chain := range must(c.ListChains())(t) {
		// The library cannot read the direction in rules that it has written itself.
		rules, err := c.GetRules(chain.Table, chain)
		fmt.Fprintf(&b, "chain %s %s: %d rules, %v\n", chain.Table.Name, chain.Name, len(rules), err)
	}
	h := must(netlink.NewHandleAt(p.ns.NsHandle, unix.NETLINK_ROUTE))(t)
	defer h.Close()
	for _, l := range must(h.LinkList())(t) {
		fmt.Fprintf(&b, "interface %s\n", l.Attrs().Name)
		for _, q := range must(h.QdiscList(l))(t) {
			fmt.Fprintf(&b, "%s: %s %s\n", l.Attrs().Name, q.Type(), q.Attrs())
		}
		for _, class := range must(h.ClassList(l, netlink.HANDLE_NONE))(t) {
			fmt.Fprintf(&b, "%s: class %s\n", l.Attrs().Name, class.Attrs())
		}
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, r := range must(h.RuleList(family))(t) {
			fmt.Fprintf(&b, "rule %s\n", r)
		}
		for _, r := range must(h.RouteListFiltered(family, &netlink.Route{Table: delayTable},
			netlink.RT_FILTER_TABLE))(t) {
			fmt.Fprintf(&b, "route %s\n", r)
		}
	}
	// Sockets that listen in the pod.
	pid := strconv.Itoa(must(Node{}.withDefaults().pod(p.uid))(t).containers[0].init)
	for _, file := range []string{"tcp", "tcp6", "udp", "udp6"} {
		count := 0
		for line := range strings.Lines(string(must(os.ReadFile("/proc/" + pid + "/net/" + file))(t))) {
			// 0A: it listens. Connections that have ended stay for a while.
			if state := strings.Fields(line)[3]; state != "st" && (state == "0A" || strings.HasPrefix(file, "udp")) {
				count++
			}
		}
		fmt.Fprintf(&b, "%s: %d sockets\n", file, count)
	}
	var files []string
	for _, dir := range p.cgroups {
		n := must(filepath.Glob(filepath.Join(dir, "*", "*")))(t)
		files = append(append(files, n...), must(filepath.Glob(filepath.Join(dir, "*")))(t)...)
	}
	slices.Sort(files)
	for _, file := range files {
		switch filepath.Base(file) {
		case "cgroup.procs", "blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device", "cpu.cfs_quota_us",
			"cpu.shares", "memory.limit_in_bytes", "cpuset.cpus":
			fmt.Fprintf(&b, "%s: %q\n", strings.TrimPrefix(file, "/sys/fs/cgroup/"), must(os.ReadFile(file))(t))
		}
	}
	for _, e := range must(os.ReadDir("/proc"))(t) {
		if pid, err := strconv.Atoi(e.Name()); err == nil && (Node{}.withDefaults().isHelper(pid, "")) {
			data, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			if strings.Contains(string(data), string(p.uid)) {
				fmt.Fprintf(&b, "process %q\n", data)
			}
		}
	}
	return b.String()
}
