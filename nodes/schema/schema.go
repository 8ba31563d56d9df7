// Package schema has the definitions by which the resources of node cycling are checked without an API server.
package schema

import (
	"github.com/trommel-dev/trommel/definition"
	"github.com/trommel-dev/trommel/nodes/config"
)

// Request is the definition of CycleNodeRequest.
var Request = definition.InFile(config.Files, config.RequestDefinition)

// SimulatedGroup is the definition of SimulatedNodeGroup.
var SimulatedGroup = definition.InFile(config.Files, config.GroupDefinition)
