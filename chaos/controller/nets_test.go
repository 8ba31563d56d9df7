package controller

import (
	"strings"
	"testing"
	"time"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

func lasts(d time.Duration) *chaos.Duration {
	duration := chaos.DurationOf(d)
	return &duration
}

// TestNets has a row for each safety net that the controllers check by the spec: it refuses by default, and lets
// through what its flag allows.
func TestNets(t *testing.T) {
	drop := chaos.Percentage(10)
	for _, tt := range []struct {
		name      string
		namespace string
		spec      chaos.DisruptionSpec
		allow     func(*Nets)
		want      string
	}{
		{"delete only", "default", chaos.DisruptionSpec{}, nil, ""},
		{"system", "kube-system", chaos.DisruptionSpec{}, func(n *Nets) { n.ProtectedNamespaces = nil },
			"the namespace kube-system is protected"},
		{"leases of nodes", "kube-node-lease", chaos.DisruptionSpec{}, func(n *Nets) { n.ProtectedNamespaces = nil },
			"the namespace kube-node-lease is protected"},
		{"its own", "trommel-chaos", chaos.DisruptionSpec{}, func(n *Nets) { n.ProtectedNamespaces = nil },
			"the namespace trommel-chaos is protected"},
		{"a day and a second", "default", chaos.DisruptionSpec{Duration: lasts(24*time.Hour + time.Second)},
			func(n *Nets) { n.MaxDuration = 25 * time.Hour }, "duration 24h0m1s is longer than 24h0m0s"},
		{"no limit of duration", "default", chaos.DisruptionSpec{Duration: lasts(25 * time.Hour)},
			func(n *Nets) { n.MaxDuration = 0 }, "duration 25h0m0s is longer than 24h0m0s"},
		{"a day", "default", chaos.DisruptionSpec{Duration: lasts(24 * time.Hour)}, nil, ""},
		{"a node", "default", chaos.DisruptionSpec{Level: chaos.LevelNode}, func(n *Nets) { n.Nodes = true },
			"nodes are protected"},
		{"the node of a pod", "default", chaos.DisruptionSpec{Kinds: chaos.Kinds{NodeFailure: &chaos.NodeFailure{}}},
			func(n *Nets) { n.Nodes = true }, "nodes are protected"},
		{"all traffic", "default", chaos.DisruptionSpec{Kinds: chaos.Kinds{Network: &chaos.Network{Drop: &drop}}},
			func(n *Nets) { n.NetworkWithoutHosts = true }, "network needs hosts or services"},
		{"traffic of a service", "default", chaos.DisruptionSpec{Kinds: chaos.Kinds{Network: &chaos.Network{
			Drop: &drop, Services: []chaos.NetworkService{{Name: "web"}}}}}, nil, ""},
		{"a disk's root", "default", chaos.DisruptionSpec{Kinds: chaos.Kinds{
			DiskFailure: &chaos.DiskFailure{Paths: []string{"/data", "/data/.."}}}},
			func(n *Nets) { n.DiskRoot = true }, "a disk's root directory is protected"},
		{"a slow root", "default", chaos.DisruptionSpec{Kinds: chaos.Kinds{
			DiskPressure: &chaos.DiskPressure{Path: "/./"}}},
			func(n *Nets) { n.DiskRoot = true }, "a disk's root directory is protected"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &chaos.Disruption{Spec: tt.spec}
			d.Namespace = tt.namespace
			nets := DefaultNets()
			if got := nets.Refuses(d); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("by default: %q, want %q", got, tt.want)
			}
			if tt.allow != nil {
				tt.allow(&nets)
				if got := nets.Refuses(d); got != "" {
					t.Errorf("allowed: %q", got)
				}
			}
			nets.DeleteOnly = true
			if got := nets.Refuses(d); !strings.Contains(got, "deleteOnly") {
				t.Errorf("delete only: %q", got)
			}
		})
	}
}

// TestShares: a share bounds what all disruptions hit together. One target is always allowed, if it is the only one.
func TestShares(t *testing.T) {
	for _, tt := range []struct {
		name                                                  string
		level                                                 chaos.Level
		targets, namespace, cluster, hitNamespace, hitCluster int
		want                                                  string
	}{
		{"eight of ten", chaos.LevelPod, 8, 10, 100, 0, 0, ""},
		{"nine of ten", chaos.LevelPod, 9, 10, 100, 0, 0,
			"9 targets would disrupt more than 80% of the 10 pods in namespace default"},
		{"nine of ten together", chaos.LevelPod, 1, 10, 100, 8, 8, "1 targets would disrupt more than 80%"},
		{"too many of the cluster", chaos.LevelPod, 7, 10, 10, 0, 0,
			"7 targets would disrupt more than 66% of the cluster's 10 pods"},
		{"too many of the cluster together", chaos.LevelPod, 1, 100, 100, 0, 66,
			"more than 66% of the cluster's 100 pods"},
		{"the only one", chaos.LevelPod, 1, 1, 1, 0, 0, ""},
		{"one of two, whose other is hit", chaos.LevelPod, 1, 2, 100, 1, 1, "more than 80% of the 2 pods"},
		{"nodes", chaos.LevelNode, 2, 0, 3, 0, 0, "2 targets would disrupt more than 66% of the cluster's 3 nodes"},
		{"nodes, not pods of a namespace", chaos.LevelNode, 2, 1, 4, 0, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &chaos.Disruption{Spec: chaos.DisruptionSpec{Level: tt.level}}
			d.Namespace = "default"
			nets := DefaultNets()
			got := nets.TooMany(d, tt.targets, tt.namespace, tt.cluster, tt.hitNamespace, tt.hitCluster)
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
			nets.NamespaceShare, nets.ClusterShare = 0, 0
			if got := nets.TooMany(d, tt.targets, tt.namespace, tt.cluster, tt.hitNamespace, tt.hitCluster); got != "" {
				t.Errorf("without limits: %q", got)
			}
		})
	}
}
