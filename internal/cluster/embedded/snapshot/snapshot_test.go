package snapshot

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSnapshotDiff(t *testing.T) {
	kv := func(key string, created, modified int64) keyValue {
		return keyValue{Key: []byte(key), Value: []byte(key), CreateRevision: created, ModRevision: modified}
	}
	const (
		deployment = "/registry/deployments/default/a"
		replicas   = "/registry/replicasets/default/a-1"
		pod        = "/registry/pods/default/a-1-x"
		node       = "/registry/minions/node-1"
		lease      = "/registry/leases/default/leader"
		slice      = "/registry/endpointslices/default/web-abcde"
		successor  = "/registry/endpointslices/default/web-fghij"
		manual     = "/registry/endpointslices/default/own-abcde"
	)
	made := kv(slice, 6, 7)
	made.Value = []byte("endpointslice.kubernetes.io/managed-by endpointslice-controller.k8s.io")
	before := []keyValue{
		made, kv(manual, 6, 7),
		kv(deployment, 10, 10), kv(replicas, 11, 14), kv(pod, 12, 13), kv(node, 2, 3), kv(lease, 5, 5),
		kv("/registry/events/default/old", 9, 9), kv("/registry/leases/kube-system/apiserver-a", 1, 1),
		kv("/registry/leases/kube-node-lease/process-node", 1, 1), kv("/registry/masterleases/127.0.0.1", 1, 1),
		kv("compact_rev_key", 1, 1),
	}
	with := func(kvs ...keyValue) []keyValue {
		var all []keyValue
		for _, old := range before {
			keep := true
			for _, kv := range kvs {
				keep = keep && string(kv.Key) != string(old.Key)
			}
			if keep {
				all = append(all, old)
			}
		}
		for _, kv := range kvs {
			if kv.CreateRevision != 0 {
				all = append(all, kv)
			}
		}
		return all
	}
	put := func(key string) change { return change{key, []byte(key)} }
	for _, tt := range []struct {
		name   string
		now    []keyValue
		want   []change
		events []change
	}{
		{"nothing", before, nil, nil},
		{
			"what the control plane updates", with(
				kv("/registry/leases/kube-system/apiserver-a", 1, 99),
				kv("/registry/leases/kube-node-lease/process-node", 1, 99),
				kv("/registry/leases/kube-node-lease/new", 98, 99), kv("/registry/masterleases/127.0.0.1", 1, 99),
				kv("compact_rev_key", 1, 99), kv("/registry/events/default/old", 9, 99),
			), nil, nil,
		},
		{"a changed object", with(kv(node, 2, 21)), []change{put(node)}, nil},
		{"a deleted object", with(kv(node, 0, 0)), []change{put(node)}, nil},
		{"an object that was deleted and created again", with(kv(node, 21, 21)), []change{put(node)}, nil},
		{
			"a new object", with(kv("/registry/pods/default/b", 21, 22)), []change{{key: "/registry/pods/default/b"}},
			nil,
		},
		{
			"an event", with(kv("/registry/events/default/new", 21, 21)), nil,
			[]change{{key: "/registry/events/default/new"}},
		},
		{"a lease that its holder has renewed", with(kv(lease, 5, 21)), nil, nil},
		{"a deleted lease", with(kv(lease, 0, 0)), []change{put(lease)}, nil},
		{
			"a new lease", with(kv("/registry/leases/kube-system/op", 21, 22)),
			[]change{{key: "/registry/leases/kube-system/op"}}, nil,
		},
		{"a changed EndpointSlice", with(kv(slice, 6, 21)), []change{{key: slice}}, nil},
		{"a changed EndpointSlice that no controller has made", with(kv(manual, 6, 21)), []change{put(manual)}, nil},
		{"an EndpointSlice that is gone", with(kv(slice, 0, 0)), nil, nil},
		{"another one instead", with(kv(slice, 0, 0), kv(successor, 21, 21)), []change{{key: successor}}, nil},
		{"one that was made during the reset", with(kv(slice, 0, 0), kv(successor, 101, 101)), nil, nil},
		{
			"makers first, owners before what they own", with(
				kv("/registry/pods/default/b-1-x", 23, 23), kv("/registry/replicasets/default/b-1", 22, 22),
				kv("/registry/deployments/default/b", 21, 24), kv(pod, 0, 0), kv(replicas, 11, 25),
				kv(deployment, 10, 26),
			),
			[]change{
				{key: "/registry/deployments/default/b"}, {key: "/registry/replicasets/default/b-1"},
				{key: "/registry/pods/default/b-1-x"}, put(deployment), put(replicas), put(pod),
			}, nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newSnapshot(before, 20, nil)
			changes, events := b.diff(tt.now, 100)
			var got []change
			for _, c := range changes {
				got = append(got, c.change)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(change{})); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.events, events, cmp.AllowUnexported(change{})); diff != "" {
				t.Error(diff)
			}
			// After the changes nothing differs.
			b.done(got, 100)
			var after []keyValue
			for key, was := range b.Keys {
				after = append(after, kv(key, was.Created, was.Modified))
			}
			if again, _ := b.diff(after, 100); len(again) > 0 {
				t.Errorf("once more: %v", again)
			}
		})
	}
}

// A watch that starts between two events of a resource with the same resource version would miss the second.
func TestSnapshotWithCertificates(t *testing.T) {
	kv := func(key, value string, revision int64) keyValue {
		return keyValue{Key: []byte("/registry/" + key), Value: []byte(value), CreateRevision: 1, ModRevision: revision}
	}
	taken := newSnapshot([]keyValue{
		kv("configmaps/default/a", "old", 1), kv("secrets/default/gone", "old", 1),
		kv("validatingwebhookconfigurations/w", "old", 1),
		kv("apiextensions.k8s.io/customresourcedefinitions/d", "old", 1),
	}, 1, nil)
	with := taken.withCertificates([]keyValue{
		kv("configmaps/default/a", "new", 2), kv("configmaps/default/b", "new", 2), kv("secrets/default/new", "new", 2),
		kv("validatingwebhookconfigurations/w", "new", 2),
		kv("apiextensions.k8s.io/customresourcedefinitions/d", "new", 2),
	})
	got := map[string]string{}
	for key, is := range with.Keys {
		got[strings.TrimPrefix(key, "/registry/")] = string(is.Value)
	}
	want := map[string]string{
		"configmaps/default/a": "old", "secrets/default/new": "new", "validatingwebhookconfigurations/w": "new",
		"apiextensions.k8s.io/customresourcedefinitions/d": "new",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(taken.Keys) != 4 || string(taken.Keys["/registry/validatingwebhookconfigurations/w"].Value) != "old" {
		t.Error("the snapshot itself has changed")
	}
}

func TestTransactionsHoldOneKeyOfAResource(t *testing.T) {
	var changes []keyChange
	for i := range 30 {
		for _, r := range []string{"deployments", "pods", "example.com/databases", "example.com/backups"} {
			changes = append(changes, keyChange{change{key: fmt.Sprintf("/registry/%s/default/%d", r, i)}, int64(i)})
		}
	}
	for i := range 250 {
		changes = append(changes, keyChange{change{key: fmt.Sprintf("/registry/%d.example.com/all/one", i)}, 1})
	}
	for i := range 5 {
		changes = append(changes,
			keyChange{change{fmt.Sprintf("/registry/%d.large.com/all/one", i), make([]byte, maxBytes/2)}, 1})
	}
	count, last := 0, map[string]string{}
	for i, txn := range transactions(changes) {
		if len(txn) > maxTransaction {
			t.Errorf("transaction %d has %d changes", i, len(txn))
		}
		seen, size := map[string]bool{}, 0
		for _, c := range txn {
			size += len(c.value)
			r := resourceOf(c.key)
			if seen[r] {
				t.Errorf("transaction %d has two keys of %s", i, r)
			}
			seen[r] = true
			last[r] = c.key
			count++
		}
		if size > maxBytes {
			t.Errorf("transaction %d has %d bytes", i, size)
		}
	}
	if count != len(changes) || last["pods"] != "/registry/pods/default/29" {
		t.Errorf("%d of %d changes, the last pod is %s", count, len(changes), last["pods"])
	}
}

func TestSnapshotFile(t *testing.T) {
	want := &snapshot{Revision: 7, APIServers: []string{"apiserver-1"}, Keys: map[string]snapshotKey{
		"/registry/secrets/default/a": {Value: []byte("k8s\x00\xff"), Created: 3, Modified: 4},
	}}
	file := filepath.Join(t.TempDir(), "snapshot")
	if err := want.writeFile(file); err != nil {
		t.Fatal(err)
	}
	got, err := readSnapshot(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
