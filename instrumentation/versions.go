package instrumentation

import (
	"os"
	"path/filepath"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/trommel-dev/trommel/instrumentation/points"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/buildcache"
)

// ControlPlane is one that BuildControlPlane can build.
type ControlPlane struct {
	Kubernetes, Etcd, KWOK string // versions
	Built                  bool   // it is in the cache
	Prebuilt               bool   // a release has it, so it need not be built
}

// ControlPlanes lists what BuildControlPlane can build, newest first.
func ControlPlanes() ([]ControlPlane, error) {
	dir, err := buildcache.Dir()
	if err != nil {
		return nil, err
	}
	var all []ControlPlane
	for _, version := range KubernetesVersions() {
		c := ControlPlane{Kubernetes: version}
		for _, f := range controlPlaneFiles(version) {
			if f.Name != "go.mod" {
				continue
			}
			file, err := modfile.ParseLax(f.Name, f.Data, nil)
			if err != nil {
				return nil, err
			}
			for _, r := range file.Require {
				switch r.Mod.Path {
				case "go.etcd.io/etcd/server/v3":
					c.Etcd = r.Mod.Version
				case "sigs.k8s.io/kwok":
					c.KWOK = r.Mod.Version
				}
			}
		}
		b, err := configured(ControlPlaneConfig{KubernetesVersion: version})
		if err != nil {
			return nil, err
		}
		_, err = os.Stat(filepath.Join(dir, "controlplane", b.key, resultFile))
		c.Built = err == nil
		_, c.Prebuilt = prebuiltIndex.Load().ControlPlanes[b.key]
		c.Prebuilt = c.Prebuilt && !b.fromSource
		all = append(all, c)
	}
	return all, nil
}

// ProtocolVersion is that of the protocol between instrumented processes and the coordinator.
const ProtocolVersion = wire.ProtocolVersion

// Observable returns the oldest version of a module (client-go or controller-runtime) whose controllers can be
// observed, and the newest minor version of client-go that was tested.
func Observable() (clientGo, controllerRuntime, newestClientGo string) {
	newest := semver.MajorMinor(KubernetesVersions()[0])
	return points.Oldest(points.ClientGo), points.Oldest(points.ControllerRuntime), "v0" + newest[len("v1"):]
}
