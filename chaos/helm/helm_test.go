package helm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trommel-dev/trommel/chaos/controller"
)

// What is installed is the chart of install/chart.
func TestChart(t *testing.T) {
	files, err := chartFiles()
	if err != nil {
		t.Fatal(err)
	}
	got, err := loader.LoadFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	want, err := loader.LoadDir("../../install/chart/charts/trommel-chaos")
	if err != nil {
		t.Fatal(err)
	}
	if len(want.CRDObjects()) < 4 || len(want.Templates) < 8 {
		t.Errorf("only %d definitions and %d templates", len(want.CRDObjects()), len(want.Templates))
	}
	byName := func(files []*loader.BufferedFile) map[string]string {
		all := map[string]string{}
		for _, f := range files {
			all[f.Name] = string(f.Data)
		}
		return all
	}
	var all []*loader.BufferedFile
	for _, f := range want.Raw {
		all = append(all, &loader.BufferedFile{Name: f.Name, Data: f.Data})
	}
	if diff := cmp.Diff(byName(all), byName(files)); diff != "" {
		t.Errorf("(-directory +embedded)\n%s", diff)
	}
	if got.Metadata.AppVersion == "" || got.Name() != Release {
		t.Errorf("%+v", got.Metadata)
	}
}

// A value that the chart does not have is refused.
func TestCheckValues(t *testing.T) {
	c := must(loader.LoadFiles(must(New()).files))
	for _, tt := range []struct{ values, err string }{
		{`{}`, ""},
		{`{"replicas": 2, "safetyNets": {"nodes": true}, "resources": {"limits": {"cpu": "1"}}, "args": ["--x"]}`, ""},
		{`{"replicass": 2, "safetyNets": {"node": true}}`,
			"values that chart trommel-chaos does not have: replicass, safetyNets.node (it has args, image, " +
				"imagePullPolicy, injectorImage, mode, nodeFaults, remote, replicas, resources, safetyNets)"},
	} {
		var values map[string]any
		if err := json.Unmarshal([]byte(tt.values), &values); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := check(c, values); err != nil {
			got = err.Error()
		}
		if got != tt.err {
			t.Errorf("%s: %q, want %q", tt.values, got, tt.err)
		}
	}
}

// Values get the names that the chart has today, by way of those that they had in between.
func TestMigrate(t *testing.T) {
	table := []rename{
		{"v0.2.0", "nodes", "nets.nodes"}, {"v0.3.0", "nets.nodes", "safetyNets.nodes"}, {"v0.3.0", "old", "new"},
	}
	const nodes = "nodes is called nets.nodes since v0.2.0"
	const nets = "nets.nodes is called safetyNets.nodes since v0.3.0"
	for _, tt := range []struct{ values, want, former, err string }{
		{`{}`, `{}`, "", ""},
		{`{"other": {"a": [1]}, "safetyNets": {"nodes": true}}`, `{"other":{"a":[1]},"safetyNets":{"nodes":true}}`,
			"", ""},
		{`{"nodes": true, "safetyNets": {"maxDuration": "1h"}}`, `{"safetyNets":{"maxDuration":"1h","nodes":true}}`,
			nodes + ", " + nets, ""},
		{`{"nets": {"nodes": false, "more": 1}}`, `{"nets":{"more":1},"safetyNets":{"nodes":false}}`, nets, ""},
		{`{"old": null, "nets": "x"}`, `{"nets":"x","new":null}`, "old is called new since v0.3.0", ""},
		{`{"nets": {"nodes": true}, "safetyNets": {"nodes": true}}`, "null", "",
			"there are values of both names: " + nets},
		{`{"nets": {"nodes": true}, "safetyNets": 1}`, "null", "", nets + ": value cannot be set because " +
			".safetyNets is not a map[string]interface{}"},
	} {
		values := map[string]any{}
		if err := utiljson.Unmarshal([]byte(tt.values), &values); err != nil {
			t.Fatal(err)
		}
		before := runtime.DeepCopyJSON(values)
		got, former, err := migrate(values, table)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if json := string(must(json.Marshal(got))); json != tt.want || former != tt.former || text != tt.err {
			t.Errorf("%s: %s, %q, %q", tt.values, json, former, text)
		}
		if diff := cmp.Diff(before, values); diff != "" {
			t.Errorf("%s: %s", tt.values, diff)
		}
	}
}

// The chart has the new name of each value, and no former one.
func TestRenames(t *testing.T) {
	c := must(loader.LoadFiles(must(New()).files))
	former := map[string]bool{}
	for _, r := range renames {
		former[r.from] = true
	}
	for _, r := range renames {
		for name, want := range map[string]bool{r.from: false, r.to: !former[r.to]} {
			_, ok, _ := unstructured.NestedFieldNoCopy(c.Values, strings.Split(name, ".")...)
			if ok != want {
				t.Errorf("%+v: the chart has %s: %t", r, name, ok)
			}
		}
	}
}

// TestFormerValues upgrades a child from an older version in which a value had another name. The values that were
// written for it stay valid.
func TestFormerValues(t *testing.T) {
	far, i := childSide(t), must(New())
	far.clean(t)
	t.Cleanup(func() { far.clean(t) })
	older := &Installer{}
	for _, f := range i.files {
		text := strings.ReplaceAll(string(f.Data), ".Values.imagePullPolicy", ".Values.pull.policy")
		switch f.Name {
		case "values.yaml":
			text = strings.Replace(text, "imagePullPolicy: IfNotPresent", "pull: {policy: IfNotPresent}", 1)
		case "Chart.yaml":
			text = strings.Replace(text, "appVersion: "+version(), "appVersion: v0.0.9", 1)
		}
		older.files = append(older.files, &loader.BufferedFile{Name: f.Name, Data: []byte(text)})
	}
	written := values(map[string]any{"pull": map[string]any{"policy": "Never"}})
	install := func(i *Installer) (controller.Release, error) {
		return i.Install(t.Context(), far.place(nil), written)
	}
	policy := func() corev1.PullPolicy {
		t.Helper()
		d := &appsv1.Deployment{}
		key := client.ObjectKey{Namespace: "trommel-chaos", Name: "disruption-controllers"}
		if err := far.Get(t.Context(), key, d); err != nil {
			t.Fatal(err)
		}
		return d.Spec.Template.Spec.Containers[0].ImagePullPolicy
	}
	if is, err := install(older); err != nil || is.Version != "v0.0.9" || policy() != corev1.PullNever {
		t.Fatalf("%+v, %v, %s", is, err, policy())
	}
	// Without an entry in the table, the upgrade is refused, and what is there stays.
	if is, err := install(i); err == nil || is.Version != "v0.0.9" ||
		!strings.HasPrefix(err.Error(), "values that chart trommel-chaos does not have: pull (") {
		t.Errorf("%+v, %v", is, err)
	}
	i.renames = []rename{{version(), "pull.policy", "imagePullPolicy"}}
	former := "pull.policy is called imagePullPolicy since " + version()
	for range 2 { // the second time nothing is to do
		if is, err := install(i); err != nil || is.Version != version() || is.Former != former ||
			policy() != corev1.PullNever {
			t.Errorf("%+v, %v, %s", is, err, policy())
		}
		if n := len(far.revisions(t)); n != 2 {
			t.Errorf("%d revisions", n)
		}
	}
}

// A union has all objects and fields of all.
func TestUnion(t *testing.T) {
	got, err := union([]string{
		"---\napiVersion: v1\nkind: A\nmetadata: {name: x, labels: {old: a, both: a}}\nlist: [1, 2]\n" +
			"---\napiVersion: v1\nkind: A\nmetadata: {name: gone}\n---\n# nothing\n",
		"apiVersion: v1\nkind: A\nmetadata: {name: x, labels: {both: b, new: b}}\nlist: [3]\n---\n" +
			"apiVersion: v1\nkind: A\nmetadata: {name: x, namespace: other}\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `---
apiVersion: v1
kind: A
metadata:
  name: gone
---
apiVersion: v1
kind: A
list:
- 3
metadata:
  labels:
    both: b
    new: b
    old: a
  name: x
---
apiVersion: v1
kind: A
metadata:
  name: x
  namespace: other
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// place is where the installer works, with requests that pass through wrap; nil: through nothing.
func (s *side) place(wrap func(http.RoundTripper) http.RoundTripper) controller.Place {
	to := rest.CopyConfig(s.account)
	to.QPS, to.Burst = 500, 500
	if wrap != nil {
		to.Wrap(wrap)
	}
	return controller.Place{To: to, Namespace: "trommel-chaos", Parent: s.id, Cluster: "west"}
}

// values are those of a child, and more.
func values(more map[string]any) map[string]any {
	all := map[string]any{"mode": "child"}
	maps.Copy(all, more)
	return all
}

// version is that of the chart.
func version() string { return must(loader.LoadFiles(must(New()).files)).Metadata.AppVersion }

// revisions lists what Helm has written down.
func (s *side) revisions(t testing.TB) []*release.Release {
	t.Helper()
	w, err := newWork(context.Background(), s.place(nil), nil) // cleanups look, too
	if err != nil {
		t.Fatal(err)
	}
	all, err := w.history()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// kinds are the types of the objects that the chart may have.
var kinds = []struct{ apiVersion, kind string }{
	{"v1", "ServiceAccount"}, {"v1", "ConfigMap"}, {"apps/v1", "Deployment"},
	{"rbac.authorization.k8s.io/v1", "Role"}, {"rbac.authorization.k8s.io/v1", "RoleBinding"},
	{"rbac.authorization.k8s.io/v1", "ClusterRole"}, {"rbac.authorization.k8s.io/v1", "ClusterRoleBinding"},
	{"admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"},
	{"admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"},
	{"networking.k8s.io/v1", "NetworkPolicy"}, {"scheduling.k8s.io/v1", "PriorityClass"},
}

// owned lists the objects that Helm has made, each with what it says but for what the API server adds.
func (s *side) owned(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, k := range kinds {
		var list unstructured.UnstructuredList
		list.SetAPIVersion(k.apiVersion)
		list.SetKind(k.kind + "List")
		ours := client.MatchingLabels{"app.kubernetes.io/managed-by": "Helm"}
		if err := s.List(context.Background(), &list, ours); err != nil {
			t.Fatal(err)
		}
		for _, u := range list.Items {
			if u.GetDeletionTimestamp() != nil {
				continue
			}
			key := fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
			labels := u.GetLabels()
			annotations := u.GetAnnotations()
			delete(annotations, "deployment.kubernetes.io/revision")
			delete(u.Object, "metadata")
			delete(u.Object, "status")
			data, err := yaml.Marshal([]any{labels, annotations, u.Object})
			if err != nil {
				t.Fatal(err)
			}
			all[key] = string(data)
		}
	}
	return all
}

// clean leaves nothing in the child.
func (s *side) clean(t testing.TB) {
	t.Helper()
	if err := must(New()).Uninstall(context.Background(), s.place(nil)); err != nil {
		t.Fatal(err)
	}
	if left := s.owned(t); len(left) > 0 || len(s.revisions(t)) > 0 {
		t.Fatalf("%v and %d revisions are left", slices.Sorted(maps.Keys(left)), len(s.revisions(t)))
	}
}

// install installs, and returns what is there.
func (s *side) install(t testing.TB, more map[string]any) map[string]string {
	t.Helper()
	is, err := must(New()).Install(t.Context(), s.place(nil), values(more))
	if err != nil {
		t.Fatal(err)
	}
	if is.Version != version() || is.Foreign != "" {
		t.Errorf("%+v", is)
	}
	all := s.revisions(t)
	if last := all[len(all)-1]; last.Info.Status != release.StatusDeployed {
		t.Errorf("revision %d is %s: %s", last.Version, last.Info.Status, last.Info.Description)
	}
	return s.owned(t)
}

// TestInstaller installs, upgrades and uninstalls, with the rights of the manifests.
func TestInstaller(t *testing.T) {
	far := childSide(t)
	far.clean(t)
	t.Cleanup(func() { far.clean(t) })
	installed := far.install(t, nil)
	if len(installed) < 25 {
		t.Errorf("only %d objects: %v", len(installed), slices.Sorted(maps.Keys(installed)))
	}
	objects := releaseutil.SplitManifests(far.revisions(t)[0].Manifest)
	if len(objects) != len(installed) {
		t.Errorf("%d objects of %d", len(installed), len(objects))
	}
	// The same again changes nothing.
	far.install(t, nil)
	if n := len(far.revisions(t)); n != 1 {
		t.Errorf("%d revisions", n)
	}
	// A deleted object is created again.
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "trommel-chaos", Name: "disruption-controllers",
	}}
	if err := far.Delete(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	far.install(t, nil)
	if err := far.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment); err != nil {
		t.Error(err)
	}
	for n := range int64(2 * maxHistory) {
		far.install(t, map[string]any{"replicas": n + 2, "nodeFaults": n%2 == 0})
		err := far.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment)
		if err != nil || *deployment.Spec.Replicas != int32(n+2) {
			t.Errorf("%v, %d replicas", err, *deployment.Spec.Replicas)
		}
	}
	if n := len(far.revisions(t)); n > maxHistory {
		t.Errorf("%d revisions", n)
	}
	if got := far.install(t, nil); !cmp.Equal(got, installed) {
		t.Error(cmp.Diff(installed, got))
	}
}

// What others have installed stays as it is, and the installer says whose it is.
func TestForeign(t *testing.T) {
	far := childSide(t)
	far.clean(t)
	i := must(New())
	ask := func(at controller.Place) string {
		t.Helper()
		before := far.owned(t)
		is, err := i.Install(t.Context(), at, values(map[string]any{"replicas": int64(3)}))
		if err != nil || is.Version != "" {
			t.Errorf("%v, %+v", err, is)
		}
		if err := i.Uninstall(t.Context(), at); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(before, far.owned(t)); diff != "" {
			t.Error(diff)
		}
		return is.Foreign
	}
	// Something of it, without Helm.
	deployment := &appsv1.Deployment{}
	deployment.Namespace, deployment.Name = "trommel-chaos", "disruption-controllers"
	text := `{"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` +
		`"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	if err := json.Unmarshal([]byte(text), deployment); err != nil {
		t.Fatal(err)
	}
	if err := far.Create(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	const some = `Deployment "disruption-controllers" in namespace "trommel-chaos" was installed by somebody else: ` +
		`nothing is installed, upgraded or uninstalled`
	if got := ask(far.place(nil)); got != some {
		t.Error(got)
	}
	if n := len(far.owned(t)) + len(far.revisions(t)); n > 0 {
		t.Errorf("%d objects", n)
	}
	if err := far.Delete(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	// The same release, with Helm.
	c := must(loader.LoadFiles(i.files))
	w := must(newWork(t.Context(), far.place(nil), c))
	a := action.NewInstall(w.helm)
	a.ReleaseName, a.Namespace = Release, "trommel-chaos"
	if _, err := a.Run(c, values(nil)); err != nil {
		t.Fatal(err)
	}
	if got := ask(far.place(nil)); got != "release trommel-chaos in namespace trommel-chaos was installed by somebody "+
		"else: it is neither upgraded nor uninstalled" {
		t.Error(got)
	}
	if _, err := action.NewUninstall(w.helm).Run(Release); err != nil {
		t.Fatal(err)
	}
	// Those of another RemoteCluster, and of another parent.
	far.install(t, nil)
	t.Cleanup(func() { far.clean(t) })
	other := far.place(nil)
	other.Cluster = "east"
	if got := ask(other); got != "release trommel-chaos in namespace trommel-chaos belongs to RemoteCluster west" {
		t.Error(got)
	}
	other.Parent = "another"
	if got := ask(other); got != "release trommel-chaos in namespace trommel-chaos belongs to another parent, the "+
		"cluster parent-of-tests" {
		t.Error(got)
	}
}

// killed is the transport of a process that is killed at a write: before the API server has it, or before the answer
// comes.
type killed struct {
	base     http.RoundTripper
	at       int32 // 0: never
	answered bool
	writes   *atomic.Int32
}

var errKilled = errors.New("killed")

func (k *killed) RoundTrip(r *http.Request) (*http.Response, error) {
	n := k.writes.Load()
	if r.Method != http.MethodGet {
		n = k.writes.Add(1)
	}
	switch {
	case k.at == 0 || n < k.at:
		return k.base.RoundTrip(r)
	case r.Method != http.MethodGet && n == k.at && k.answered:
		if resp, err := k.base.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
		}
	}
	return nil, errKilled
}

// dying is place for an installer that is killed.
func (s *side) dying(at int32, answered bool) (controller.Place, *atomic.Int32) {
	var writes atomic.Int32
	return s.place(func(base http.RoundTripper) http.RoundTripper {
		return &killed{base, at, answered, &writes}
	}), &writes
}

// TestKilledAtEveryWrite kills installers at their writes: the next one brings all to a state as if nothing had
// happened. An upgrade that was killed is taken back, too: nothing of it is left. Without TROMMEL_TEST_LONG, they are
// killed at some of the writes.
func TestKilledAtEveryWrite(t *testing.T) {
	far, i := childSide(t), must(New())
	far.clean(t)
	t.Cleanup(func() { far.clean(t) })
	simple := map[string]any{"nodeFaults": false}
	rich := map[string]any{
		"nodeFaults": true, "replicas": int64(2),
		"resources": map[string]any{"limits": map[string]any{"cpu": "2"}},
	}
	wantRich := far.install(t, rich)
	wantSimple := far.install(t, simple)
	if len(wantRich) <= len(wantSimple) {
		t.Fatalf("%d and %d objects", len(wantRich), len(wantSimple))
	}
	far.clean(t)
	for _, tt := range []struct {
		name string
		// prepare makes what is there before, do is killed, and then there must be want.
		prepare func(testing.TB)
		do      func(controller.Place) error
		then    map[string]any
		want    map[string]string
		every   int32
	}{
		{"install", func(t testing.TB) { far.clean(t) }, func(at controller.Place) error {
			_, err := i.Install(t.Context(), at, values(simple))
			return err
		}, simple, wantSimple, 9},
		{"another install", func(t testing.TB) { far.clean(t) }, func(at controller.Place) error {
			_, err := i.Install(t.Context(), at, values(rich))
			return err
		}, simple, wantSimple, 11},
		{"upgrade", func(t testing.TB) { far.install(t, simple) }, func(at controller.Place) error {
			_, err := i.Install(t.Context(), at, values(rich))
			return err
		}, rich, wantRich, 4},
		{"upgrade taken back", func(t testing.TB) { far.install(t, simple) }, func(at controller.Place) error {
			_, err := i.Install(t.Context(), at, values(rich))
			return err
		}, simple, wantSimple, 3},
		{"downgrade taken back", func(t testing.TB) { far.install(t, rich) }, func(at controller.Place) error {
			_, err := i.Install(t.Context(), at, values(simple))
			return err
		}, rich, wantRich, 4},
		{"uninstall", func(t testing.TB) { far.install(t, rich) }, func(at controller.Place) error {
			return i.Uninstall(t.Context(), at)
		}, nil, nil, 11},
		{"uninstall, then install", func(t testing.TB) { far.install(t, rich) }, func(at controller.Place) error {
			return i.Uninstall(t.Context(), at)
		}, simple, wantSimple, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			every := tt.every
			if os.Getenv("TROMMEL_TEST_LONG") != "" {
				every = 1
			}
			kills := 0
			for n := int32(1); ; n += every {
				tt.prepare(t)
				at, writes := far.dying(n, kills%2 == 1)
				err := tt.do(at)
				if writes.Load() < n {
					if err != nil {
						t.Errorf("not killed: %v", err)
					}
					break
				}
				kills++
				// Some errors Helm only logs.
				if err != nil && !strings.Contains(err.Error(), errKilled.Error()) &&
					!strings.Contains(err.Error(), "failed to delete release") {
					t.Errorf("killed at write %d: %v", n, err)
				}
				if tt.want == nil {
					far.clean(t)
					continue
				}
				if diff := cmp.Diff(tt.want, far.install(t, tt.then)); diff != "" {
					t.Fatalf("killed at write %d:\n%s", n, diff)
				}
				if all := far.revisions(t); slices.ContainsFunc(all, func(r *release.Release) bool {
					return r.Info.Status.IsPending()
				}) {
					t.Errorf("killed at write %d: a revision is pending", n)
				}
			}
			if kills < 3 {
				t.Errorf("killed only %d times", kills)
			}
			t.Logf("killed %d times", kills)
		})
	}
}

// An installer returns when its context ends, and leaves no request behind.
func TestContextEnds(t *testing.T) {
	far := childSide(t)
	far.clean(t)
	t.Cleanup(func() { far.clean(t) })
	ctx, cancel := context.WithCancel(t.Context())
	var after atomic.Int32
	at := far.place(func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if ctx.Err() != nil {
				after.Add(1)
			}
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/clusterroles") {
				cancel() // and the API server does not answer
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return base.RoundTrip(r)
		})
	})
	is, err := must(New()).Install(ctx, at, values(nil))
	if err == nil || is.Version != "" || after.Load() > 0 {
		t.Errorf("%v, %+v, %d requests", err, is, after.Load())
	}
	if all := far.revisions(t); len(all) != 1 || !all[0].Info.Status.IsPending() {
		t.Errorf("%d revisions", len(all))
	}
	far.install(t, nil)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// notFound waits for the end of an object.
func notFound(err error) error {
	if err == nil {
		return errors.New("it is still there")
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
