package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// isChart reports whether the directory or file holds a Helm chart.
func isChart(at string) bool {
	ok, err := chartutil.IsChartDir(at)
	return err == nil && ok
}

// helm does what `helm template --include-crds --no-hooks` does, and marks the objects as `helm install` does; the file
// resolves a path of the suite. Kubernetes is the version that the chart is rendered for.
func helm(m plan.Manifest, kubernetes string, file func(string) string) (list []objects.Located, notes []string,
	err error) {
	what := "chart " + m.Helm
	var warnings bytes.Buffer
	defer captureLog(&warnings)()
	c, err := loader.Load(file(m.Helm))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	if err := c.Validate(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	if c.Metadata.Type == "library" {
		return nil, nil, fmt.Errorf("%s is a library chart, which renders no objects", what)
	}
	if err := addLocalCharts(c, []string{file(m.Helm)}); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		return nil, nil, fmt.Errorf("version %q of Kubernetes: %w", kubernetes, err)
	}
	if want := c.Metadata.KubeVersion; want != "" && !chartutil.IsCompatibleRange(want, version.Version) {
		return nil, nil, fmt.Errorf("%s requires Kubernetes %s; the cluster is %s", what, want, version.Version)
	}
	values, err := chartValues(m, file)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	missing := missingCharts(c)
	if err := chartutil.ProcessDependenciesWithMerge(c, values); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	// Helm wants those too that the values switch off, although nothing of them is rendered.
	maps.DeleteFunc(missing, func(d *chart.Dependency, _ string) bool {
		return !slices.Contains(c.Metadata.Dependencies, d)
	})
	if len(missing) > 0 {
		return nil, nil, fmt.Errorf("%s: its charts directory lacks %s, which Chart.yaml requires; run `helm "+
			"dependency build %s`",
			what, strings.Join(slices.Sorted(maps.Values(missing)), ", "), m.Helm)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	release := chartutil.ReleaseOptions{Name: m.Release, Namespace: m.Namespace, Revision: 1, IsInstall: true}
	if release.Name == "" {
		release.Name = c.Name()
	}
	if release.Namespace == "" {
		release.Namespace = defaultNamespace
	}
	render, err := chartutil.ToRenderValues(c, values, release, capabilities)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	texts, err := rendered(c, render)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	maps.DeleteFunc(texts, func(name, _ string) bool { return path.Base(name) == "NOTES.txt" })
	hooks, manifests, err := releaseutil.SortManifests(texts, capabilities.APIVersions, releaseutil.InstallOrder)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	if len(hooks) > 0 {
		var names []string
		for _, h := range hooks {
			names = append(names, h.Kind+" "+h.Name)
		}
		slices.Sort(names)
		notes = append(notes, fmt.Sprintf("%s: %d of its objects are hooks and are left out: %s", what, len(hooks),
			strings.Join(names, ", ")))
	}
	var errs []error
	var all []objects.Located
	add := func(text []byte, name string) {
		more, err := objects.DecodeLocated(text, name+" (rendered)")
		if err != nil {
			errs = append(errs, err)
		}
		all = append(all, more...)
	}
	for _, definition := range c.CRDObjects() {
		add(definition.File.Data, definition.Filename)
	}
	outside := len(all)
	for _, manifest := range manifests {
		add([]byte(manifest.Content), manifest.Name)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	for _, o := range all[outside:] {
		released(o.Unstructured, release)
	}
	list, more, err := convertAll(all)
	if err != nil {
		return nil, nil, err
	}
	notes = append(notes, more...)
	setNamespace(Bare(list), release.Namespace)
	for _, line := range strings.Split(strings.TrimSpace(warnings.String()), "\n") {
		if line != "" {
			notes = append(notes, what+": "+line)
		}
	}
	return list, notes, nil
}

// What Helm 3 and later write on each object of a release, so that another release does not take it over.
const (
	releaseName      = "meta.helm.sh/release-name"
	releaseNamespace = "meta.helm.sh/release-namespace"
	managedBy        = "app.kubernetes.io/managed-by"
)

// released marks an object as Helm marks what it installs.
func released(u *unstructured.Unstructured, release chartutil.ReleaseOptions) {
	annotations, labels := u.GetAnnotations(), u.GetLabels()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if labels == nil {
		labels = map[string]string{}
	}
	annotations[releaseName], annotations[releaseNamespace] = release.Name, release.Namespace
	labels[managedBy] = "Helm"
	u.SetAnnotations(annotations)
	u.SetLabels(labels)
}

// rendered renders a chart, with the same random texts each time.
func rendered(c *chart.Chart, values chartutil.Values) (map[string]string, error) {
	defer fixRandom()()
	return engine.Render(c, values)
}

// ReleaseOf is the release of a chart to which an object belongs, as namespace/name; empty: none.
func ReleaseOf(u *unstructured.Unstructured) string {
	annotations := u.GetAnnotations()
	if annotations[releaseName] == "" {
		return ""
	}
	return annotations[releaseNamespace] + "/" + annotations[releaseName]
}

var logMutex sync.Mutex

// captureLog sends the standard logger's lines, without prefix, to w until the returned function is called. Helm logs
// warnings there about values whose type differs from the chart's.
func captureLog(w io.Writer) func() {
	logMutex.Lock()
	writer, flags := log.Writer(), log.Flags()
	log.SetOutput(w)
	log.SetFlags(0)
	return func() {
		log.SetOutput(writer)
		log.SetFlags(flags)
		logMutex.Unlock()
	}
}

// missingCharts returns the names of the charts that this one depends on but does not contain. Later, a dependency with
// an alias has that as its name.
func missingCharts(c *chart.Chart) map[*chart.Dependency]string {
	missing := map[*chart.Dependency]string{}
	for _, want := range c.Metadata.Dependencies {
		if !contains(c, want) {
			missing[want] = want.Name
		}
	}
	return missing
}

func contains(c *chart.Chart, want *chart.Dependency) bool {
	return slices.ContainsFunc(c.Dependencies(), func(d *chart.Chart) bool { return d.Name() == want.Name })
}

// addLocalCharts adds the charts on this machine that one depends on but does not contain, as `helm dependency build`
// does. The last of the directories is the chart's own, those before are of the charts that depend on it.
func addLocalCharts(c *chart.Chart, dirs []string) error {
	for _, want := range c.Metadata.Dependencies {
		at := localChart(dirs[len(dirs)-1], want)
		if at == "" || contains(c, want) {
			continue
		}
		if slices.Contains(dirs, at) {
			return fmt.Errorf("chart %s depends on itself (%s)", want.Name, want.Repository)
		}
		local, err := loader.Load(at)
		if err != nil {
			return fmt.Errorf("chart %s, on which it depends: %w", want.Name, err)
		}
		if has := local.Metadata; has.Name != want.Name || !chartutil.IsCompatibleRange(want.Version, has.Version) {
			return fmt.Errorf("it depends on chart %s, version %s; in %s is %s, version %s", want.Name, want.Version,
				want.Repository, has.Name, has.Version)
		}
		if err := addLocalCharts(local, append(slices.Clone(dirs), at)); err != nil {
			return err
		}
		c.AddDependency(local)
	}
	return nil
}

// localChart is the directory of a dependency of the chart in a directory; empty: it is somewhere else.
func localChart(dir string, d *chart.Dependency) string {
	at, ok := strings.CutPrefix(d.Repository, "file://")
	switch {
	case !ok:
		return ""
	case filepath.IsAbs(at):
		return at
	}
	return filepath.Join(dir, at)
}

// ChartDirs lists what a chart consists of: its own directory or file, and the directories of the charts beside it on
// which it depends. One that is not there is left out: a chart that was published has it in its charts directory.
func ChartDirs(at string) ([]string, error) {
	dirs := []string{at}
	for i := 0; i < len(dirs); i++ { // it grows
		if !isChart(dirs[i]) {
			continue
		}
		about, err := chartutil.LoadChartfile(filepath.Join(dirs[i], chartutil.ChartfileName))
		if err != nil {
			return nil, err
		}
		for _, d := range about.Dependencies {
			local := localChart(dirs[i], d)
			if _, err := os.Stat(local); err == nil && !slices.Contains(dirs, local) {
				dirs = append(dirs, local)
			}
		}
	}
	return dirs, nil
}

// chartValues merges the values files, where later ones override earlier ones, and the values themselves, which
// override all files.
func chartValues(m plan.Manifest, file func(string) string) (map[string]any, error) {
	merged := map[string]any{}
	for _, name := range m.ValuesFiles {
		values, err := chartutil.ReadValuesFile(file(name))
		if err != nil {
			return nil, fmt.Errorf("values %s: %w", name, err)
		}
		merged = chartutil.MergeTables(values, merged)
	}
	// The chart's own maps and the suite's are changed while they are merged.
	values, err := copyValues(m.Values)
	if err != nil {
		return nil, err
	}
	return chartutil.MergeTables(values, merged), nil
}
