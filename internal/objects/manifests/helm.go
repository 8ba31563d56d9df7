package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// isChart reports whether the directory or file holds a Helm chart.
func isChart(at string) bool {
	ok, err := chartutil.IsChartDir(at)
	return err == nil && ok
}

// helm does what `helm template --include-crds --no-hooks` does; the file resolves a path of the suite. Kubernetes is
// the version that the chart is rendered for.
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
	if missing := missingCharts(c); len(missing) > 0 {
		return nil, nil, fmt.Errorf("%s: its charts directory lacks %s, which Chart.yaml requires; run `helm "+
			"dependency build %s`",
			what, strings.Join(missing, ", "), m.Helm)
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
	if err := chartutil.ProcessDependenciesWithMerge(c, values); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
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
	texts, err := engine.Render(c, render)
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
	for _, manifest := range manifests {
		add([]byte(manifest.Content), manifest.Name)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
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

// missingCharts lists the charts that this one depends on but does not contain.
func missingCharts(c *chart.Chart) []string {
	var missing []string
	for _, want := range c.Metadata.Dependencies {
		if !slices.ContainsFunc(c.Dependencies(), func(d *chart.Chart) bool { return d.Name() == want.Name }) {
			missing = append(missing, want.Name)
		}
	}
	return missing
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
