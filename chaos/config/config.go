// Package config has the manifests of the controllers of disruptions: kustomize bases, and the same files for programs
// that install them.
package config

import "embed"

// Files are the manifests.
//
//go:embed crd rbac manager admission
var Files embed.FS

// Definitions is the directory with the CustomResourceDefinitions.
const Definitions = "crd"

// DisruptionDefinition is the file with the definition of Disruption.
const DisruptionDefinition = "crd/chaos.trommel.dev_disruptions.yaml"
