// Package helm installs the controllers of disruptions in other clusters, with the library of Helm. It is a module of
// its own: the other programs do not need the registries, databases and commands that the library comes with.
//
// A release is ours if its labels name the parent's cluster and the RemoteCluster. Helm writes a release down before it
// makes its first object, and deletes it after the last one; what was interrupted in between is brought to its end by
// whoever comes next: see repair.
package helm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/yaml"

	"github.com/trommel-dev/trommel/chaos/controller"
)

// Release is the name of the releases that the installer makes.
const Release = "trommel-chaos"

// Labels of a release: who has made it.
const (
	LabelParentCluster = "chaos.trommel.dev/parent-cluster" // ID: the UID of the namespace kube-system
	LabelRemoteCluster = "chaos.trommel.dev/remote-cluster" // name
)

const (
	// fieldManager applies the definitions.
	fieldManager = "trommel-chaos-parent"
	// maxHistory is how many revisions of a release are kept. Repairs need three.
	maxHistory = 5
)

// Installer installs the chart trommel-chaos. It may be used concurrently.
type Installer struct {
	files   []*loader.BufferedFile
	renames []rename
}

var _ controller.Installer = (*Installer)(nil)

// New returns an installer of the chart that belongs to this version.
func New() (*Installer, error) {
	files, err := chartFiles()
	if err != nil {
		return nil, err
	}
	if _, err := loader.LoadFiles(files); err != nil {
		return nil, fmt.Errorf("chart %s: %w", Release, err)
	}
	return &Installer{files, renames}, nil
}

// Install is part of controller.Installer.
func (i *Installer) Install(
	ctx context.Context, at controller.Place, values map[string]any,
) (is controller.Release, err error) {
	c, err := loader.LoadFiles(i.files) // Helm changes it
	if err != nil {
		return is, err
	}
	w, err := newWork(ctx, at, c)
	if err != nil {
		return is, err
	}
	all, err := w.history()
	if err != nil {
		return is, err
	}
	if len(all) > 0 {
		last := all[len(all)-1]
		if is.Foreign = w.foreign(last); is.Foreign != "" {
			return is, nil
		}
		if s := last.Info.Status; s == release.StatusUninstalling || s == release.StatusUninstalled {
			if err := w.uninstall(all); err != nil {
				return is, fmt.Errorf("finish the uninstallation that was begun: %w", err)
			}
			all = nil
		}
	}
	is.Version = versionOf(all)
	if values, is.Former, err = migrate(values, i.renames); err != nil {
		return is, err
	}
	if err := check(c, values); err != nil {
		return is, err
	}
	if len(all) == 0 {
		is.Foreign, err = w.install(values)
	} else {
		err = w.upgrade(all, values)
	}
	if err == nil && is.Foreign == "" {
		is.Version = c.Metadata.AppVersion
	}
	return is, err
}

// Uninstall is part of controller.Installer.
func (i *Installer) Uninstall(ctx context.Context, at controller.Place) error {
	w, err := newWork(ctx, at, nil)
	if err != nil {
		return err
	}
	all, err := w.history()
	if err != nil || len(all) == 0 || w.foreign(all[len(all)-1]) != "" {
		return err
	}
	return w.uninstall(all)
}

// work is one installation or uninstallation.
type work struct {
	ctx    context.Context
	at     controller.Place
	chart  *chart.Chart
	getter *getter
	helm   *action.Configuration
	// logged is Helm's last message: it does not return all errors. It logs from several goroutines.
	logged atomic.Pointer[string]
}

func newWork(ctx context.Context, at controller.Place, c *chart.Chart) (*work, error) {
	g, err := newGetter(ctx, at.To, at.Namespace)
	if err != nil {
		return nil, err
	}
	w := &work{ctx: ctx, at: at, chart: c, getter: g, helm: &action.Configuration{}}
	log := func(format string, args ...any) { w.logged.Store(new(fmt.Sprintf(format, args...))) }
	return w, w.helm.Init(g, at.Namespace, "secret", log)
}

func (w *work) lastLogged() string {
	if text := w.logged.Load(); text != nil {
		return *text
	}
	return ""
}

// history lists the release's revisions, oldest first.
func (w *work) history() ([]*release.Release, error) {
	all, err := w.helm.Releases.History(Release)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("releases in namespace %s: %w", w.at.Namespace, err)
	}
	releaseutil.SortByRevision(all)
	return all, nil
}

func (w *work) labels() map[string]string {
	return map[string]string{LabelParentCluster: w.at.Parent, LabelRemoteCluster: w.at.Cluster}
}

// foreign says whose a release is that is not ours.
func (w *work) foreign(r *release.Release) string {
	where := fmt.Sprintf("release %s in namespace %s", r.Name, w.at.Namespace)
	switch parent, cluster := r.Labels[LabelParentCluster], r.Labels[LabelRemoteCluster]; {
	case parent == "":
		return where + " was installed by somebody else: it is neither upgraded nor uninstalled"
	case parent != w.at.Parent:
		return where + " belongs to another parent, the cluster " + parent
	case cluster != w.at.Cluster:
		return where + " belongs to RemoteCluster " + cluster
	}
	return ""
}

// versionOf is the version of the newest revision that has been installed as a whole.
func versionOf(all []*release.Release) string {
	if n := installed(all); n >= 0 {
		return all[n].Chart.Metadata.AppVersion
	}
	return ""
}

// installed is the index of the newest revision that has been installed as a whole; -1: none.
func installed(all []*release.Release) int {
	for n, r := range slices.Backward(all) {
		if s := r.Info.Status; s == release.StatusDeployed || s == release.StatusSuperseded {
			return n
		}
	}
	return -1
}

// cannotImport is in Helm's error about objects that are there already, and belong to another release or to none.
const cannotImport = "exists and cannot be imported into the current release"

// install makes the first revision. foreign says that a part of it is installed by other means.
func (w *work) install(values map[string]any) (foreign string, err error) {
	a := action.NewInstall(w.helm)
	a.ReleaseName, a.Namespace, a.Labels = Release, w.at.Namespace, w.labels()
	a.SkipCRDs, a.DisableHooks, a.DisableOpenAPIValidation = true, true, true
	a.DryRunOption = "server" // Helm checks for foreign objects before it changes anything
	if _, err := a.Run(w.chart, values); err != nil {
		if _, what, ok := strings.Cut(err.Error(), ": "); ok && strings.Contains(what, cannotImport) {
			what, _, _ = strings.Cut(what, " "+cannotImport)
			return what + " was installed by somebody else: nothing is installed, upgraded or uninstalled", nil
		}
		return "", err
	}
	if err := w.definitions(); err != nil {
		return "", err
	}
	there, err := w.namespaceExists()
	if err != nil {
		return "", err
	}
	a.DryRunOption, a.CreateNamespace = "none", !there
	if _, err := a.Run(w.chart, values); err != nil {
		return "", err
	}
	return "", w.written()
}

// written returns an error if the newest revision is not written down as deployed: Helm only logs that it cannot.
func (w *work) written() error {
	r, err := w.helm.Releases.Last(Release)
	if err == nil && r.Info.Status != release.StatusDeployed {
		err = fmt.Errorf("revision %d is %s (%s)", r.Version, r.Info.Status, w.lastLogged())
	}
	return err
}

// upgrade sees to it that the newest revision is as wanted, and that its objects are there.
func (w *work) upgrade(all []*release.Release, values map[string]any) error {
	last := all[len(all)-1]
	if last.Info.Status == release.StatusDeployed && alike(last.Config, values) && alike(last.Chart, w.chart) {
		if complete, err := w.complete(last); err != nil || complete {
			return err
		}
	}
	if err := w.repair(all); err != nil {
		return fmt.Errorf("repair what was interrupted: %w", err)
	}
	if err := w.definitions(); err != nil {
		return err
	}
	a := action.NewUpgrade(w.helm)
	a.Namespace, a.Labels, a.MaxHistory = w.at.Namespace, w.labels(), maxHistory
	a.ResetValues, a.SkipCRDs, a.DisableHooks, a.DisableOpenAPIValidation = true, true, true, true
	if _, err := a.Run(Release, w.chart, values); err != nil {
		return err
	}
	return w.written()
}

func (w *work) uninstall(all []*release.Release) error {
	if err := w.repair(all); err != nil {
		return fmt.Errorf("repair what was interrupted: %w", err)
	}
	a := action.NewUninstall(w.helm)
	a.DisableHooks = true
	if _, err := a.Run(Release); err != nil {
		return fmt.Errorf("%w (%s)", err, w.lastLogged())
	}
	return nil
}

// complete reports whether all objects of a revision, and the definitions, are there.
func (w *work) complete(r *release.Release) (bool, error) {
	objects, err := w.helm.KubeClient.Build(strings.NewReader(r.Manifest), false)
	if err != nil {
		return false, err
	}
	for _, o := range objects {
		_, err := resource.NewHelper(o.Client, o.Mapping).Get(o.Namespace, o.Name)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	client, err := metadata.NewForConfig(w.getter.config)
	if err != nil {
		return false, err
	}
	for _, crd := range w.chart.CRDObjects() {
		name := strings.TrimSuffix(crd.Name, ".yaml")
		name = name[strings.LastIndexAny(name, "/_")+1:]
		_, err := client.Resource(definitions).Get(w.ctx, name+".chaos.trommel.dev", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

var definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// definitions applies the chart's definitions. Helm creates them, but never changes them.
func (w *work) definitions() error {
	client, err := dynamic.NewForConfig(w.getter.config)
	if err != nil {
		return err
	}
	for _, crd := range w.chart.CRDObjects() {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(crd.File.Data, &o.Object); err != nil {
			return fmt.Errorf("%s: %w", crd.Name, err)
		}
		_, err := client.Resource(definitions).Apply(w.ctx, o.GetName(), o,
			metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		if err != nil {
			return fmt.Errorf("definition %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// namespaceExists reports whether the namespace need not be created. Who must not ask cannot create it either.
func (w *work) namespaceExists() (bool, error) {
	client, err := metadata.NewForConfig(w.getter.config)
	if err != nil {
		return false, err
	}
	_, err = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
		Get(w.ctx, w.at.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if apierrors.IsForbidden(err) {
		return true, nil
	}
	return err == nil, err
}
