// Package snapshot records the state of a control plane in etcd and restores it. The control plane may be one that this
// process runs or one that another process runs.
package snapshot

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/trommel-dev/trommel/internal/atomicfile"
	"github.com/trommel-dev/trommel/internal/cluster"
)

// registryPrefix is the prefix of all keys of the API servers in etcd.
const registryPrefix = "/registry/"

// snapshot is the state that a reset restores: the cluster.Snapshot of this kind of cluster.
type snapshot struct {
	// Revision is the etcd revision at which the snapshot was taken.
	Revision int64
	// APIServers are the ones that were running.
	APIServers []string
	// Keys are the keys in etcd with their values.
	Keys map[string]snapshotKey
}

type snapshotKey struct {
	Value []byte
	// Created is the revision at which the key was created; an owner's is lower than those of its dependents.
	Created int64
	// Modified is the revision at which the key got this value, originally or by a reset. A key with another revision
	// has been written since, so a comparison does not need to read values.
	Modified int64
}

// role is how a reset treats a key.
type role int

const (
	restored role = iota // its value is restored
	present              // it must exist, with any value: a lease, which its holder renews
	expired              // it is deleted if it is new, and otherwise ignored: an event
	foreign              // it is ignored: the control plane maintains it
)

func roleOf(key string) role {
	rest, ok := strings.CutPrefix(key, registryPrefix)
	switch {
	case !ok:
		return foreign
	case strings.HasPrefix(rest, "events/"):
		return expired
	case strings.HasPrefix(rest, "masterleases/"), strings.HasPrefix(rest, "peerserverleases/"),
		strings.HasPrefix(rest, "leases/kube-system/apiserver-"),
		strings.HasPrefix(rest, "leases/"+corev1.NamespaceNodeLease+"/"):
		return foreign
	case strings.HasPrefix(rest, "leases/"):
		return present
	}
	return restored
}

// resourceOf returns the part of a key that distinguishes resources. It is coarse: two resources of one API group may
// share it.
func resourceOf(key string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(key, registryPrefix), "/")
	return name
}

// newSnapshot makes a snapshot of etcd's keys.
func newSnapshot(keys []keyValue, revision int64, apiServers []string) *snapshot {
	b := &snapshot{Revision: revision, APIServers: apiServers, Keys: map[string]snapshotKey{}}
	for _, kv := range keys {
		if r := roleOf(string(kv.Key)); r == restored || r == present {
			b.Keys[string(kv.Key)] = snapshotKey{kv.Value, kv.CreateRevision, kv.ModRevision}
		}
	}
	return b
}

// hasCertificates reports whether the key's object contains a certificate or a CA bundle.
func hasCertificates(key string) bool {
	switch resourceOf(key) {
	case "secrets", "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "apiregistration.k8s.io":
		return true
	}
	return strings.HasPrefix(key, definitionsPrefix)
}

// withCertificates returns a snapshot with the objects that contain certificates as they are among etcd's keys.
func (b *snapshot) withCertificates(keys []keyValue) *snapshot {
	with := *b
	with.Keys = maps.Clone(b.Keys)
	maps.DeleteFunc(with.Keys, func(key string, _ snapshotKey) bool { return hasCertificates(key) })
	for _, kv := range keys {
		if key := string(kv.Key); hasCertificates(key) {
			with.Keys[key] = snapshotKey{kv.Value, kv.CreateRevision, kv.ModRevision}
		}
	}
	return &with
}

// done records the revision at which changes were applied.
func (b *snapshot) done(changes []change, revision int64) {
	for _, c := range changes {
		if was, ok := b.Keys[c.key]; ok && c.value != nil {
			was.Modified = revision
			b.Keys[c.key] = was
		}
	}
}

// diff returns the changes that take etcd from now to the snapshot and, separately, deletions of new events, which may
// appear at any time and do not count as differences. The keys of now need no values. Began is etcd's revision when the
// reset began.
func (b *snapshot) diff(now []keyValue, began int64) (changes []keyChange, events []change) {
	there, renewed := map[string]bool{}, b.renewed()
	for _, kv := range now {
		key := string(kv.Key)
		there[key] = true
		was, ok := b.Keys[key]
		switch role := roleOf(key); {
		case renewed[sliceOf(key)]:
			if kv.ModRevision != was.Modified && kv.CreateRevision <= began {
				changes = append(changes, keyChange{change{key: key}, kv.CreateRevision})
			}
		case role == expired && kv.CreateRevision > b.Revision:
			events = append(events, change{key: key})
		case role == expired, role == foreign:
		case !ok:
			changes = append(changes, keyChange{change{key: key}, kv.CreateRevision})
		case role == restored && was.Modified != kv.ModRevision:
			changes = append(changes, keyChange{change{key, was.Value}, was.Created})
		}
	}
	for key, was := range b.Keys {
		if !there[key] && !renewed[sliceOf(key)] {
			changes = append(changes, keyChange{change{key, was.Value}, was.Created})
		}
	}
	slices.SortFunc(changes, func(x, y keyChange) int {
		// Deletions come first, those of the oldest objects before others, since these may have created the rest. Then
		// the restored objects, in the order of their creation: owners before their dependents.
		return cmp.Or(cmp.Compare(x.rank(), y.rank()), cmp.Compare(x.created, y.created), strings.Compare(x.key, y.key))
	})
	return changes, events
}

// EndpointSlices that controllers make. These remember of each slice the generation that they have written, and do
// nothing for a Service as long as they see an older one (EndpointSliceTracker of k8s.io/endpointslice). So one that
// has changed cannot be restored: it is deleted, and its controller makes another one, with another name.
const (
	slicesPrefix = registryPrefix + "endpointslices/"
	suffixLength = 5 // of a generated name
)

// slicesControllers are the values of the label endpointslice.kubernetes.io/managed-by of such slices.
var slicesControllers = [][]byte{
	[]byte("endpointslice-controller.k8s.io"), []byte("endpointslicemirroring-controller.k8s.io"),
}

// sliceOf is an EndpointSlice's key without what is generated, so that it is the same for all slices of a Service;
// empty: it is none.
func sliceOf(key string) string {
	if !strings.HasPrefix(key, slicesPrefix) || len(key) < len(slicesPrefix)+suffixLength {
		return ""
	}
	return key[:len(key)-suffixLength]
}

// renewed are those of Services that had slices in the snapshot; see sliceOf.
func (b *snapshot) renewed() map[string]bool {
	all := map[string]bool{}
	for key, was := range b.Keys {
		made := func(by []byte) bool { return bytes.Contains(was.Value, by) }
		if of := sliceOf(key); of != "" && slices.ContainsFunc(slicesControllers, made) {
			all[of] = true
		}
	}
	return all
}

// keyChange is a change with the revision at which its key was created.
type keyChange struct {
	change
	created int64
}

func (c keyChange) rank() int {
	if c.value == nil {
		return 0
	}
	return 1
}

// Limits of a transaction, well below etcd's limits of 128 changes and 1.5 MB. A single change may be larger.
const (
	maxTransaction = 100
	maxBytes       = 1 << 20
)

// transactions packs changes so that each transaction has at most one key of a resource: all events of a transaction
// have the same resource version, and a watch that starts at the first of two events of a resource would miss the
// second. The n-th transaction contains the n-th change of each resource, so the first one already deletes objects that
// create others, such as Deployments and ReplicaSets together with their first pod.
func transactions(changes []keyChange) [][]change {
	var all [][]change
	var bytes []int
	nth := map[string]int{}
	for _, c := range changes {
		r := resourceOf(c.key)
		n := nth[r]
		for n < len(all) && (len(all[n]) >= maxTransaction || bytes[n]+len(c.value) > maxBytes) {
			n++
		}
		if n == len(all) {
			all, bytes = append(all, nil), append(bytes, 0)
		}
		all[n] = append(all[n], c.change)
		bytes[n] += len(c.key) + len(c.value)
		nth[r] = n + 1
	}
	return all
}

// pods returns the UIDs of the snapshot's pods.
func (b *snapshot) pods() ([]types.UID, error) {
	var all []types.UID
	for key, was := range b.Keys {
		if resourceOf(key) != "pods" {
			continue
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(was.Value, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("read the snapshot's %s: %w", key, err)
		}
		if pod, ok := object.(*corev1.Pod); ok {
			all = append(all, pod.UID)
		}
	}
	return all, nil
}

// appliedSince lists the keys that are not in the snapshot, were created after the revision, and were written by a
// person's tool (see byHand).
func (b *snapshot) appliedSince(now []keyValue, revision int64) []string {
	var made []string
	for _, kv := range now {
		key := string(kv.Key)
		if _, ok := b.Keys[key]; !ok && roleOf(key) == restored && kv.CreateRevision > revision && byHand(kv.Value) {
			made = append(made, key)
		}
	}
	return made
}

// byHand reports, by an object's managed fields, whether it was written by a tool that people use.
func byHand(value []byte) bool {
	var managed []metav1.ManagedFieldsEntry
	if object, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil); err == nil {
		if m, err := meta.Accessor(object); err == nil {
			managed = m.GetManagedFields()
		}
	} else {
		var object metav1.PartialObjectMetadata // custom objects are JSON
		if json.Unmarshal(value, &object) == nil {
			managed = object.ManagedFields
		}
	}
	return slices.ContainsFunc(managed, func(e metav1.ManagedFieldsEntry) bool {
		return strings.HasPrefix(e.Manager, "kubectl") || strings.HasPrefix(e.Manager, "helm")
	})
}

// writeFile atomically writes the snapshot to a file that only its owner can read.
func (b *snapshot) writeFile(file string) error {
	data, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if err := atomicfile.Write(file, data, 0o600); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// Write writes a snapshot, which this package has taken, to a file that only its owner can read.
func Write(b cluster.Snapshot, file string) error { return b.(*snapshot).writeFile(file) }

// Read reads a snapshot from a file.
func Read(file string) (cluster.Snapshot, error) {
	b, err := readSnapshot(file)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func readSnapshot(file string) (*snapshot, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	b := &snapshot{}
	if err := json.Unmarshal(data, b); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return b, nil
}
