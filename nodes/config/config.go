// Package config has the manifests of the controllers of node cycling: kustomize bases, and the same files for programs
// that install them.
package config

import "embed"

// Files are the manifests.
//
//go:embed crd rbac manager admission
var Files embed.FS

// Files with definitions.
const (
	RequestDefinition = "crd/nodes.trommel.dev_cyclenoderequests.yaml"
	StatusDefinition  = "crd/nodes.trommel.dev_cyclenodestatuses.yaml"
	GroupDefinition   = "crd/nodes.trommel.dev_simulatednodegroups.yaml"
	CallDefinition    = "crd/nodes.trommel.dev_providercalls.yaml"
)
