// Package install has the kustomization and the charts that install all controllers.
package install

import (
	"embed"
	"io/fs"
)

//go:embed chart/charts/trommel-chaos/Chart.yaml chart/charts/trommel-chaos/values.yaml
//go:embed chart/charts/trommel-chaos/templates
var charts embed.FS

// ChaosChart returns the chart of the controllers of disruptions, without its definitions: these are links to
// chaos/config/crd, which Go does not embed.
func ChaosChart() (fs.FS, error) { return fs.Sub(charts, "chart/charts/trommel-chaos") }
