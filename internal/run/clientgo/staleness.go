// Package clientgo says what the client-go of a controller means for a run: whether its first sync is a streaming list,
// so that it cannot be shown stale state, and whether it needs API versions that Kubernetes has removed.
package clientgo

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/objects/deploy"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// watchListSince is the first client-go that fills its caches with a streaming list by default.
const watchListSince = "v0.35.0-0"

const clientGo = "k8s.io/client-go"

// Describe describes how a controller runs, as far as the suite and its binary's manifest say it.
func Describe(c *plan.Controller, m *wire.Manifest) record.Controller {
	d := record.Controller{Name: c.Name, Cluster: c.Cluster, APIServer: c.APIServer, Hooks: m != nil}
	for _, name := range slices.Sorted(maps.Keys(c.Kubeconfigs)) {
		d.Remotes = append(d.Remotes, plan.ServerIn(name, "apiserver-1"))
	}
	d.FeatureGateArgs = c.Build != nil && c.Build.ControlPlane != ""
	if d.APIServer == "" {
		d.APIServer = "apiserver-1"
	}
	if m != nil {
		for _, p := range m.Points {
			switch p.Module {
			case clientGo:
				d.ClientGo = p.Version
			case "sigs.k8s.io/controller-runtime":
				d.ControllerRuntime = p.Version
			}
			if p.Fails {
				d.FailingCalls = append(d.FailingCalls, p.Name)
			}
		}
	}
	return d
}

// WatchList reports whether the controller's first sync is a streaming list.
func WatchList(c record.Controller, env map[string]string, args []string) bool {
	on := c.ClientGo != "" && semver.Compare(c.ClientGo, watchListSince) >= 0
	if set, err := strconv.ParseBool(env[deploy.WatchListVariable]); err == nil && !c.FeatureGateArgs {
		on = set
	}
	// Kubernetes components, and controllers built like them, take feature gates as arguments; the last one applies.
	for i, arg := range args {
		gates, ok := strings.CutPrefix(arg, "--feature-gates=")
		if arg == "--feature-gates" && i+1 < len(args) {
			gates, ok = args[i+1], true
		}
		if !ok {
			continue
		}
		for _, gate := range strings.Split(gates, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(gate), "=")
			if set, err := strconv.ParseBool(strings.TrimSpace(value)); err == nil && name == deploy.WatchListFeature {
				on = set
			}
		}
	}
	return on
}

// Staleness returns a line for each controller that says whether a plan that pauses an API server can show it stale
// state by starting it there. It uses the plan, the suite, with the variant merged in, and the controllers' go.mod; it
// builds nothing and does not look at the manifests. The plan must be complete.
func Staleness(p *plan.Plan, suite *plan.Suite) []string {
	var lines []string
	listing := p.Listing()
	for i := range suite.Controllers {
		c := &suite.Controllers[i]
		d := Describe(c, nil)
		if c.Build == nil {
			lines = append(lines, unknownStaleness(c.Name))
			continue
		}
		d.ClientGo = clientGoOf(suite, c)
		d.WatchList = WatchList(d, c.Env, c.Args)
		switch { // see package deploy
		case c.WatchList != nil:
			d.WatchList = *c.WatchList
		case listing[c.Name] > 0:
			d.WatchList = false
		}
		switch {
		case d.WatchList:
			lines = append(lines, watchListWarning(d))
		case d.ClientGo == "":
			lines = append(lines, c.Name+": its client-go version is unknown, so it is unknown whether it can be "+
				"shown stale state")
		default:
			lines = append(lines, fmt.Sprintf("%s (client-go %s) can be shown stale state: when it starts on a "+
				"paused API server, it lists what that server's cache contains", c.Name, d.ClientGo))
		}
	}
	return lines
}

// clientGoOf returns the version of client-go in a controller's go.mod; "" if unknown.
func clientGoOf(suite *plan.Suite, c *plan.Controller) string {
	if c.Build.ControlPlane != "" {
		version, err := instrumentation.ResolveKubernetesVersion(suite.Cluster.KubernetesVersion)
		if err != nil {
			return ""
		}
		return strings.Replace(version, "v1.", "v0.", 1)
	}
	root, _ := ModuleOf(suite, c)
	if root == "" {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return ""
	}
	return requiredClientGo(data)
}

// ModuleOf returns the root of the module that a controller is built from, and the module's path; "" if there is none.
func ModuleOf(suite *plan.Suite, c *plan.Controller) (dir, path string) {
	if c.Build == nil || c.Build.ControlPlane != "" {
		return "", ""
	}
	dir = plan.Beside(suite.File, c.Build.Dir)
	for {
		if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil {
			return dir, modfile.ModulePath(data)
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", ""
		}
		dir = up
	}
}

func requiredClientGo(goMod []byte) string {
	file, err := modfile.Parse("go.mod", goMod, nil)
	if err != nil {
		return ""
	}
	for _, r := range file.Replace {
		if r.Old.Path == clientGo {
			return r.New.Version // "" for a directory
		}
	}
	for _, r := range file.Require {
		if r.Mod.Path == clientGo {
			return r.Mod.Version
		}
	}
	return ""
}

// StalenessWarnings warns before a run with stale state about controllers that will probably not be shown any, or of
// which that cannot be determined. The controllers are the suite's, as they run.
func StalenessWarnings(p *plan.Plan, suite *plan.Suite, controllers []record.Controller) (lines []string) {
	if !p.PausesAPIServer() {
		return nil
	}
	for i, c := range controllers {
		if !c.Hooks {
			lines = append(lines, unknownStaleness(c.Name))
		}
		if c.WatchList && suite.Controllers[i].WatchList == nil {
			lines = append(lines, watchListWarning(c))
		}
	}
	return lines
}

func unknownStaleness(controller string) string {
	return controller + " has no hooks: it is unknown whether it is shown stale state"
}

// watchListWarning explains what a streaming list means for a plan that pauses an API server.
func watchListWarning(c record.Controller) string {
	return fmt.Sprintf("warning: %s (client-go %s) fills its caches with a streaming list, which waits while an API "+
		"server is paused: started there, it is shown nothing stale without %s", c.Name, c.ClientGo,
		c.WatchListSwitch())
}

// WithoutStreamingLists says which controllers' streaming lists were off because the plan says so.
func WithoutStreamingLists(p *plan.Plan) (lines []string) {
	listing := p.Listing()
	for _, name := range slices.Sorted(maps.Keys(listing)) {
		lines = append(lines, fmt.Sprintf("streaming lists were off for %s (watchList: false of action %d)", name,
			listing[name]))
	}
	return lines
}
