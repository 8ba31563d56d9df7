package crd

import (
	chaosconfig "github.com/trommel-dev/trommel/chaos/config"
	"github.com/trommel-dev/trommel/chaos/kinds"
	nodesconfig "github.com/trommel-dev/trommel/nodes/config"
)

// The definitions of the resources that a plan may have the spec of.
var (
	// Disruption is the definition of Disruption.
	Disruption = InFile(chaosconfig.Files, chaosconfig.DisruptionDefinition)
	// CycleRequest is the definition of CycleNodeRequest.
	CycleRequest = InFile(nodesconfig.Files, nodesconfig.RequestDefinition)
	// SimulatedGroup is the definition of SimulatedNodeGroup.
	SimulatedGroup = InFile(nodesconfig.Files, nodesconfig.GroupDefinition)
)

// DisruptionsOfRealNodes are the kinds of disruptions that need nothing but a real node, sorted.
func DisruptionsOfRealNodes() []string { return kinds.OfRealNodes() }
