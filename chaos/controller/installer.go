package controller

import (
	"context"

	"k8s.io/client-go/rest"
)

// Installer installs, upgrades and uninstalls the controllers of disruptions in other clusters. Its methods block until
// all is done or the context ends, leave nothing running behind, and may be called again after they, or the process,
// were interrupted anywhere. They may be called concurrently for different places. They touch only what they have
// installed themselves for the same RemoteCluster.
type Installer interface {
	// Install sees to it that the controllers are installed as this installer's version, with these values over the
	// defaults of its chart. The values are as of JSON, and may have names of older versions; it does not keep them. If
	// all is as wanted it only reads. If it returns an error, Release says what is there nevertheless.
	Install(ctx context.Context, at Place, values map[string]any) (Release, error)
	// Uninstall removes all but the definitions, with which all disruptions would go. If nothing is there, it returns
	// nil. Objects that are not ours stay; this is not an error.
	Uninstall(ctx context.Context, at Place) error
}

// Place is where controllers are installed, and for whom.
type Place struct {
	// To leads to the cluster. It is shared: the installer copies what it changes.
	To        *rest.Config
	Namespace string
	// Parent is the ID of the parent's cluster, and Cluster the name of its RemoteCluster.
	Parent, Cluster string
}

// Release is what an installer finds, or has made.
type Release struct {
	// Version of the release that is installed; empty: none is, or only a part of one.
	Version string
	// Foreign says why what is installed does not belong to this parent; empty: it does, or nothing is installed.
	Foreign string
	// Former says which values have names of older versions; empty: none.
	Former string
}
