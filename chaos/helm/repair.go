package helm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/trommel-dev/trommel/chaos/controller/remote"
)

// repair makes a release one from which Helm goes on, if its last revision has not been installed as a whole: because
// it failed, or because its installer was killed, which Helm takes for an installer that still works on it. Only one
// manager works for a RemoteCluster, so no installer does.
//
// Helm takes away what the revision from which it starts has and the new one does not. What may be in the cluster is
// all of the last whole revision, and of each after it. So the last revision becomes one that has failed, with all of
// that; and since Helm would rather start from a deployed one, there is none any more. Those in between go, so that the
// last whole revision stays in the history, however often an upgrade fails. All of this may be done twice.
func (w *work) repair(all []*release.Release) error {
	last, whole := all[len(all)-1], installed(all)
	if last.Info.Status == release.StatusDeployed {
		return nil
	}
	var manifests []string
	for _, r := range all[max(whole, 0):] {
		manifests = append(manifests, r.Manifest)
	}
	united, err := union(manifests)
	if err != nil {
		return err
	}
	last.Manifest = united
	last.SetStatus(release.StatusFailed, "interrupted, or failed")
	if err := w.helm.Releases.Update(last); err != nil {
		return err
	}
	for n, r := range all {
		if n > whole && r != last {
			if _, err := w.helm.Releases.Delete(r.Name, r.Version); err != nil {
				return err
			}
		}
		if r.Info.Status != release.StatusDeployed {
			continue
		}
		r.Info.Status = release.StatusSuperseded
		if err := w.helm.Releases.Update(r); err != nil {
			return err
		}
	}
	return nil
}

// union is a manifest with the objects of all manifests, and with all fields that an object has in any of them. Where
// they differ, the last one counts.
func union(manifests []string) (string, error) {
	objects := map[string]map[string]any{}
	for _, manifest := range manifests {
		for name, text := range releaseutil.SplitManifests(manifest) {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
			if u.Object == nil {
				continue
			}
			key := strings.Join([]string{
				u.GroupVersionKind().Group, u.GetKind(), u.GetNamespace(), u.GetName(),
			}, "/")
			objects[key] = remote.Merged(objects[key], u.Object)
		}
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		data, err := yaml.Marshal(objects[key])
		if err != nil {
			return "", err
		}
		b.WriteString("---\n")
		b.Write(data)
	}
	return b.String(), nil
}
