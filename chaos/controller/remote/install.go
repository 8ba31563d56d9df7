package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

// The ConfigMap in the controllers' namespace with values for the charts of all other clusters, and its key.
const (
	ChildValues    = "disruption-child-values"
	ChildValuesKey = "values.yaml"
)

const (
	// installPatience is how long the installation of the controllers in a cluster may take. It does not include their
	// pods' start.
	installPatience = 2 * time.Minute
	// maxInstalling is in how many clusters something is installed at the same time: each takes memory.
	maxInstalling = 8
	// checkInstalled is after how many looks what is installed is compared with what is wanted, though nothing has
	// changed here.
	checkInstalled = 30
)

// wish is what should be installed in a cluster. Wishes are compared.
type wish struct {
	generation int64  // of the RemoteCluster
	values     string // JSON
	uninstall  bool
	wrong      string // why there are no values; empty: there are
}

// outcome is what came of a wish.
type outcome struct {
	known   bool
	of      wish
	release controller.Release
	err     string // empty: it is as wanted
}

// on returns what is known of a cluster: what was seen there, and what came of the installation that is wanted.
func (o outcome) on(s state, want *wish) state {
	if want == nil || !s.known {
		return s
	}
	s.pending = want.wrong == "" && (!o.known || o.of != *want)
	if !s.reachable.ok {
		return s
	}
	there := s.installed.ok
	switch {
	case want.wrong != "":
		s.installed = verdict{there, "InvalidValues", want.wrong}
	case !o.known: // after a restart nothing has changed
		s.installed, s.keep = no("Installing", "the controllers are being installed"), true
		return s
	case o.release.Foreign != "":
		s.installed = verdict{there, "InstalledByHand", o.release.Foreign}
	case o.err != "" && o.release.Version != "":
		s.installed = verdict{there, "UpgradeFailed", o.err}
	case o.err != "":
		s.installed = no("InstallFailed", "%s", o.err)
	case there:
		s.installed.message = fmt.Sprintf("version %s is installed", o.release.Version)
		if o.release.Former != "" {
			s.installed.message += "; values with names of an older version: " + o.release.Former
		}
	default:
		s.installed, s.pending = no("Installing", "the controllers are being installed"), true
	}
	if !s.installed.ok {
		s.ready = no("NotInstalled", "%s", s.installed.message)
	}
	return s
}

// sharing is a configuration of clients that share this client's connections, and its credentials.
func sharing(to *rest.Config, through *http.Client) (*rest.Config, error) {
	url, _, err := rest.DefaultServerUrlFor(to)
	if err != nil {
		return nil, err
	}
	return &rest.Config{Host: url.String(), Transport: through.Transport, QPS: to.QPS, Burst: to.Burst}, nil
}

// ask wakes the installer.
func (c *connection) ask() {
	select {
	case c.asked <- struct{}{}:
	default:
	}
}

// wishes says what should be installed; nil: what is there is not our concern.
func (c *connection) wishes(want *wish) {
	c.mu.Lock()
	same := c.want == want || c.want != nil && want != nil && *c.want == *want
	if c.want = want; want == nil {
		c.came = outcome{}
	}
	c.mu.Unlock()
	if !same {
		c.ask()
	}
}

// wanted returns what should be installed now; false: nothing that could be.
func (c *connection) wanted() (wish, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.want == nil || c.want.wrong != "" || !c.state.reachable.ok {
		return wish{}, false
	}
	return *c.want, true
}

// outcomeOf returns what came of a wish; false: nothing yet.
func (c *connection) outcomeOf(want wish) (outcome, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.came, c.came.known && c.came.of == want
}

// install installs what is wanted, until the connection ends. What fails is tried again, more and more seldom.
func (c *connection) install(ctx context.Context) {
	failures := 0
	for {
		var later <-chan time.Time
		if want, ok := c.wanted(); ok {
			came := c.carryOut(ctx, want)
			if ctx.Err() != nil {
				return
			}
			wait := checkInstalled * c.target.look
			if came.err != "" {
				wait = min(c.target.look<<min(failures, 10), wait)
				failures++
			} else {
				failures = 0
			}
			later = time.After(wait)
			c.mu.Lock()
			same := c.came == came
			if c.want != nil {
				c.came = came
			}
			c.mu.Unlock()
			if !same {
				c.poke() // what is there has changed
				c.target.tell.changed()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-c.asked:
		case <-later:
		}
	}
}

// carryOut installs or uninstalls. It waits for others that do, so that there are not too many.
func (c *connection) carryOut(ctx context.Context, want wish) outcome {
	select {
	case <-ctx.Done():
		return outcome{}
	case c.target.installing <- struct{}{}:
		defer func() { <-c.target.installing }()
	}
	ctx, cancel := context.WithTimeout(ctx, installPatience)
	defer cancel()
	at := controller.Place{To: c.to, Namespace: c.target.namespace, Parent: c.target.parent, Cluster: c.target.name}
	came := outcome{known: true, of: want}
	var err error
	if want.uninstall {
		err = c.target.installer.Uninstall(ctx, at)
	} else {
		var values map[string]any
		if err = utiljson.Unmarshal([]byte(want.values), &values); err == nil {
			came.release, err = c.target.installer.Install(ctx, at, values)
		}
	}
	if err != nil {
		const longest = 1024
		text := strings.Join(strings.Fields(err.Error()), " ")
		came.err = strings.ToValidUTF8(text[:min(len(text), longest)], "")
	}
	return came
}

// ofValues lists the RemoteClusters that a ConfigMap with values is about.
func (r *clusterReconciler) ofValues(ctx context.Context, o client.Object) []reconcile.Request {
	if o.GetName() != ChildValues {
		return nil
	}
	return r.about(ctx, o, func(c *chaos.RemoteCluster) bool { return c.Spec.Install })
}

// installs reports whether the controllers of a cluster are installed from here.
func (r *clusterReconciler) installs(c *chaos.RemoteCluster) bool {
	return c.Spec.Install && r.env.Config.Remote.Installer != nil
}

// want sets what the connection should install.
func (r *clusterReconciler) want(ctx context.Context, c *chaos.RemoteCluster) error {
	connection := r.all.get(c.Name)
	if connection == nil {
		return nil
	}
	if !r.installs(c) {
		connection.wishes(nil)
		return nil
	}
	want := &wish{generation: c.Generation}
	values, wrong, err := r.values(ctx, c)
	if err != nil {
		return err
	}
	if want.wrong = wrong; wrong == "" {
		text, err := json.Marshal(values)
		if err != nil {
			return err
		}
		want.values = string(text)
	}
	connection.wishes(want)
	return nil
}

// values are those of a child, over which are those of the ConfigMap, over which are those of the RemoteCluster. wrong
// says why there are none.
func (r *clusterReconciler) values(
	ctx context.Context, c *chaos.RemoteCluster,
) (values map[string]any, wrong string, err error) {
	config := &corev1.ConfigMap{}
	err = r.env.Reader.Get(ctx, client.ObjectKey{Namespace: r.env.Config.Namespace, Name: ChildValues}, config)
	if client.IgnoreNotFound(err) != nil {
		return nil, "", err
	}
	values = map[string]any{}
	for _, from := range []struct {
		what string
		text []byte
	}{
		{fmt.Sprintf("ConfigMap %s/%s: %s", r.env.Config.Namespace, ChildValues, ChildValuesKey),
			[]byte(config.Data[ChildValuesKey])},
		{"configOverride", raw(c)},
	} {
		over, err := parseValues(from.text)
		if err != nil {
			return nil, fmt.Sprintf("%s: %v", from.what, strings.ReplaceAll(err.Error(), "\n", "; ")), nil
		}
		values = Merged(values, over)
	}
	values["mode"] = string(controller.ModeChild)
	return values, "", nil
}

func raw(c *chaos.RemoteCluster) []byte {
	if c.Spec.ConfigOverride == nil {
		return nil
	}
	return c.Spec.ConfigOverride.Raw
}

// parseValues reads values from YAML or JSON; whole numbers stay whole.
func parseValues(text []byte) (map[string]any, error) {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	var values map[string]any
	if err := utiljson.Unmarshal(data, &values); err != nil {
		return nil, fmt.Errorf("want a map of values: %w", err)
	}
	if mode, ok := values["mode"]; ok && mode != string(controller.ModeChild) {
		return nil, fmt.Errorf("mode: must be %s, or left out: the controllers there are a child's",
			controller.ModeChild)
	}
	return values, nil
}

// Merged returns values over others: maps are merged, anything else replaces what was there. As with Helm, null takes a
// default away.
func Merged(under, over map[string]any) map[string]any {
	all := map[string]any{}
	maps.Copy(all, under)
	for key, value := range over {
		if deeper, ok := value.(map[string]any); ok {
			if before, ok := all[key].(map[string]any); ok {
				value = Merged(before, deeper)
			}
		}
		all[key] = value
	}
	return all
}

// uninstall has the controllers in a deleted RemoteCluster uninstalled. held says why it cannot go yet; nil: nothing is
// there any more that we have installed.
func (r *clusterReconciler) uninstall(ctx context.Context, c *chaos.RemoteCluster) (held *verdict) {
	hold := func(reason, format string, args ...any) *verdict {
		v := no(reason, "%s. `kubectl annotate remotecluster %s %s=true` lets it go without: the controllers there "+
			"then stay", fmt.Sprintf(format, args...), c.Name, chaos.AnnotationForceRemoval)
		return &v
	}
	if !c.Spec.Install || c.Status.ClusterID == "" { // it was never reached
		return nil
	}
	if r.env.Config.Remote.Installer == nil {
		return hold("NoInstaller", "the controllers of this cluster cannot uninstall those there: %s", noInstaller)
	}
	connection := r.all.get(c.Name)
	if connection == nil {
		return hold("Unreachable", "the controllers there cannot be uninstalled: %s", c.Status.Message)
	}
	if is := connection.now(); !is.known || !is.reachable.ok {
		return hold("Unreachable", "the controllers there cannot be uninstalled: %s", is.reachable.message)
	}
	want := wish{generation: c.Generation, uninstall: true}
	came, done := connection.outcomeOf(want)
	if done && came.err == "" {
		return nil
	}
	if !done {
		// Without controllers nothing would end these.
		asking, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		var list chaos.DisruptionList
		err := connection.client.List(asking, &list, client.Limit(1))
		if err != nil && !apierrors.IsNotFound(err) {
			connection.failed(err)
			return hold("Unreachable", "the controllers there cannot be uninstalled: %v", err)
		}
		if len(list.Items) > 0 {
			return hold("InUse", "disruption %s/%s is still in that cluster: the controllers there are uninstalled "+
				"when all of its disruptions have gone", list.Items[0].Namespace, list.Items[0].Name)
		}
	}
	connection.wishes(&want)
	if done {
		return hold("UninstallFailed", "the controllers there have not been uninstalled: %s", came.err)
	}
	return hold("Uninstalling", "the controllers there are being uninstalled")
}

// noInstaller says what installs.
const noInstaller = "only the program and image trommel-chaos-parent does"
