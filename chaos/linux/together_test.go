package linux

import (
	"errors"
	"os"
	"testing"

	"github.com/trommel-dev/trommel/chaos/inject"
)

// TestNetworkByNameWithDNS: the names of a network fault are looked up with the pod's own server, also while a dns
// fault of the same pod answers its programs.
func TestNetworkByNameWithDNS(t *testing.T) {
	n, target, _ := newPair(t)
	s := &servers{}
	s.listen(n, 7000)
	noDNS := injecting(t, request(target, "dns", `{"records": [{"name": "*", "fault": "drop"}]}`))
	one, two := host1+":7000", host2+":7000"
	remove := injecting(t, request(target, "network", `{"hosts": [{"host": "example.org"}], "drop": 100}`))
	if lost, _ := s.loss(target, one, false); lost != 100 {
		t.Errorf("%d %% are lost to the host with the name", lost)
	}
	if lost, _ := s.loss(target, two, true); lost != 0 {
		t.Errorf("%d %% are lost to another host", lost)
	}
	remove()
	noDNS()
}

// TestNamespaceWithTheInodeOfAnother: the kernel gives inodes away again.
func TestNamespaceWithTheInodeOfAnother(t *testing.T) {
	n, target, _ := newPair(t)
	i := injection{node: backend(os.Getpid()).Node.withDefaults(), request: request(target, "network", "{}")}
	for name, tt := range map[string]struct {
		place place
		found bool
	}{
		"the same":     {target.ns.place(), true},
		"another":      {place{target.ns.inode, []string{"02:00:00:00:00:01"}}, false},
		"an old entry": {place{Namespace: target.ns.inode}, true},
	} {
		i.notes = &inject.Notes{}
		n.check(i.notes.Save(tt.place))
		ns, err := i.noted(t.Context())
		if ns != nil {
			ns.Close()
		}
		if err != nil || (ns != nil) != tt.found {
			t.Errorf("%s: %v, %v", name, ns, err)
		}
	}
	if len(target.ns.place().Interfaces) == 0 {
		t.Error("a pod without interfaces")
	}
}

// TestPressureOnAnotherProcess: the target's process has ended, and another one has its ID.
func TestPressureOnAnotherProcess(t *testing.T) {
	i := &pressure{injection: injection{node: Node{}.withDefaults()}}
	start, ok := i.node.startTime(os.Getpid())
	if !ok {
		t.Fatal("this process does not run")
	}
	ready := make(chan error, 1)
	i.supervise(t.Context(), victim{init: os.Getpid(), start: start - 1}, ready)
	if err := <-ready; !errors.Is(err, errNoProcess) {
		t.Errorf("%v", err)
	}
}
