package controller

import (
	"fmt"
	"path"
	"slices"
	"time"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// Nets are the safety nets: what the controllers refuse. All are on by default; see DefaultNets.
type Nets struct {
	// NamespaceShare and ClusterShare are the largest shares, in percent, of the pods of a namespace, and of the pods
	// or nodes of the cluster, that disruptions may hit. 0: no limit. A single target is always allowed.
	NamespaceShare, ClusterShare int
	// NetworkWithoutHosts allows network disruptions of all traffic.
	NetworkWithoutHosts bool
	// DiskRoot allows disk disruptions of a root directory.
	DiskRoot bool
	// Nodes allows disruptions of nodes: the level node, and nodeFailure.
	Nodes bool
	// ProtectedNamespaces have no targets.
	ProtectedNamespaces []string
	// MaxDuration is the longest duration; 0: no limit.
	MaxDuration time.Duration
	// DeleteOnly accepts no new disruptions; those that are there end as they should.
	DeleteOnly bool
}

// DefaultNets are the safety nets of an installation that configures none.
func DefaultNets() Nets {
	return Nets{
		NamespaceShare: 80, ClusterShare: 66, MaxDuration: 24 * time.Hour,
		ProtectedNamespaces: []string{"kube-system", "kube-public", "kube-node-lease", "trommel-chaos"},
	}
}

// Refuses returns why the nets refuse a disruption by its spec alone; empty if they do not.
func (n *Nets) Refuses(d *chaos.Disruption) string {
	spec := &d.Spec
	switch {
	case n.DeleteOnly:
		return "the controllers accept no new disruptions (deleteOnly)"
	case slices.Contains(n.ProtectedNamespaces, d.Namespace):
		return fmt.Sprintf("the namespace %s is protected", d.Namespace)
	case n.MaxDuration > 0 && spec.Duration != nil && spec.Duration.Duration() > n.MaxDuration:
		return fmt.Sprintf("duration %s is longer than %s", spec.Duration.Duration(), n.MaxDuration)
	case !n.Nodes && (spec.Level == chaos.LevelNode || spec.NodeFailure != nil):
		return "nodes are protected: neither level: node nor nodeFailure is accepted"
	case !n.NetworkWithoutHosts && spec.Network != nil && len(spec.Network.Hosts)+len(spec.Network.Services) == 0:
		return "network needs hosts or services: all traffic of the targets would be disturbed"
	}
	if n.DiskRoot {
		return ""
	}
	var paths []string
	if spec.DiskFailure != nil {
		paths = append(paths, spec.DiskFailure.Paths...)
	}
	if spec.DiskPressure != nil {
		paths = append(paths, spec.DiskPressure.Path)
	}
	for _, p := range paths {
		if path.Clean(p) == "/" {
			return "a disk's root directory is protected"
		}
	}
	return ""
}

// Refuses returns why controllers in this mode do not carry out a disruption; empty if they do.
func (c *Config) Refuses(d *chaos.Disruption) string {
	switch {
	case IsRemote(d) && c.Mode == ModeChild:
		return "spec.remoteCluster: the controllers here run with --mode=child: only a parent knows other clusters"
	case IsRemote(d) && c.Mode != ModeParent:
		return "spec.remoteCluster: the controllers here know no other clusters: they need --mode=parent"
	case !IsRemote(d) && c.Mode == ModeParent && c.Remote.WithoutLocal:
		return "spec.remoteCluster is required: the controllers here carry out nothing in their own cluster " +
			"(--without-local)"
	}
	return ""
}

// TooMany returns why a number of targets is refused; empty if it is not. namespace and cluster are the numbers of pods
// or nodes there, hit are those that other disruptions have as targets already.
func (n *Nets) TooMany(d *chaos.Disruption, targets, namespace, cluster, hitNamespace, hitCluster int) string {
	if targets <= 1 && hitNamespace+hitCluster == 0 {
		return ""
	}
	what := "pods"
	if d.Spec.Level == chaos.LevelNode {
		what = "nodes"
	}
	if what == "pods" && n.NamespaceShare > 0 && (targets+hitNamespace)*100 > namespace*n.NamespaceShare {
		return fmt.Sprintf("%d targets would disrupt more than %d%% of the %d pods in namespace %s",
			targets, n.NamespaceShare, namespace, d.Namespace)
	}
	if n.ClusterShare > 0 && (targets+hitCluster)*100 > cluster*n.ClusterShare {
		return fmt.Sprintf("%d targets would disrupt more than %d%% of the cluster's %d %s",
			targets, n.ClusterShare, cluster, what)
	}
	return ""
}
