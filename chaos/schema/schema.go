// Package schema has the definition by which disruptions are checked without an API server.
package schema

import (
	"github.com/trommel-dev/trommel/chaos/config"
	"github.com/trommel-dev/trommel/definition"
)

// Disruption is the definition of Disruption.
var Disruption = definition.InFile(config.Files, config.DisruptionDefinition)
