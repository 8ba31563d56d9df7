// Package config has the manifests of the controllers of disruptions: kustomize bases, and the same files for programs
// that install them.
package config

import "embed"

// Files are the manifests.
//
//go:embed crd rbac manager admission parent child installer
var Files embed.FS

// Installed lists the files that a cluster needs for controllers which run outside of it, in order.
var Installed = []string{
	"rbac/namespace.yaml", DisruptionDefinition, "crd/chaos.trommel.dev_disruptioncrons.yaml",
	"crd/chaos.trommel.dev_disruptionrollouts.yaml", "rbac/manager.yaml", "rbac/injector.yaml",
}

// Parent lists the files that a parent needs beside them, and Child those of a child.
var (
	Parent = []string{"crd/chaos.trommel.dev_remoteclusters.yaml", "parent/rbac.yaml"}
	Child  = []string{"child/access.yaml"}
)

// InjectorImage is the image of injectors that the manifests name.
const InjectorImage = "ghcr.io/trommel-dev/trommel-injector:v0.1.0"

// Deployment is the file with the Deployment of the controllers.
const Deployment = "manager/manager.yaml"

// DisruptionDefinition is the file with the definition of Disruption.
const DisruptionDefinition = "crd/chaos.trommel.dev_disruptions.yaml"
