package scaffold

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/objects"
)

func TestNeeds(t *testing.T) {
	service := func(name string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\n"
	}
	account := func(name string) string {
		return "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: " + name + "}\n"
	}
	rollout := func(spec string) string {
		return "apiVersion: example.com/v1\nkind: Rollout\nmetadata: {name: echo, labels: {app: other}}\n" +
			"spec: " + spec + "\n"
	}
	for _, tt := range []struct {
		name  string
		files map[string]string // the sample is samples/rollout.yaml; those that begin with "bad" are not accepted
		want  string
		lacks int
	}{
		{"nothing", map[string]string{"samples/rollout.yaml": rollout("{replicas: 3}"),
			"samples/other.yaml": service("other")}, "", 0},
		{"a service beside it", map[string]string{"samples/rollout.yaml": rollout("{canaryService: canary}"),
			"samples/services.yaml": service("canary")}, "samples/services.yaml", 0},
		{"what that needs comes first", map[string]string{"samples/rollout.yaml": rollout("{queue: main}"),
			"samples/a.yaml": "apiVersion: example.com/v1\nkind: Queue\nmetadata: {name: main}\n" +
				"spec: {flavors: [{name: spot}]}\n",
			"samples/b.yaml": "apiVersion: example.com/v1\nkind: Flavor\nmetadata: {name: spot}\n"},
			"samples/b.yaml samples/a.yaml", 0},
		{"two that need each other", map[string]string{"samples/rollout.yaml": rollout("{canaryService: canary}"),
			"samples/services.yaml": service("canary") + "spec: {externalName: echo}\n"}, "samples/services.yaml", 0},
		{"the smallest of several", map[string]string{"samples/rollout.yaml": rollout("{canaryService: canary}"),
			"samples/all.yaml": service("canary") + "---\n" + service("more"), "samples/one.yaml": service("canary")},
			"samples/one.yaml", 0},
		{"what the cluster does not accept", map[string]string{
			"samples/rollout.yaml": rollout("{canaryService: canary, mappings: [echoes]}"),
			"samples/bad.yaml":     "apiVersion: example.com/v1\nkind: Mapping\nmetadata: {name: echoes}\n",
			"samples/one.yaml":     service("canary")}, "samples/one.yaml", 1},
		{"another directory, and names that are no baselines", map[string]string{
			"samples/rollout.yaml": rollout("{canaryService: canary, " +
				"template: {containers: [{name: web, image: nginx, args: [main]}]}, selector: {app: main}}"),
			"other/services.yaml": service("canary"),
			"samples/web.yaml":    service("web"), "samples/nginx.yaml": service("nginx"),
			"samples/main.yaml": service("main")}, "", 0},
		{"a store that is nowhere", map[string]string{
			"samples/rollout.yaml": rollout("{storeRef: {name: main}, from: {kind: Store, name: main}, " +
				"queueRef: {name: a}}"),
			"samples/main.yaml": service("main"),
			"other/store.yaml":  "apiVersion: example.com/v1\nkind: Store\nmetadata: {name: main}\n"},
			"samples/main.yaml", 1},
		{"service accounts", map[string]string{
			"samples/rollout.yaml": rollout("{pods: [{serviceAccountName: echo}, {serviceAccountName: default}, " +
				"{serviceAccountName: nobody}, {serviceAccountName: operator}]}"),
			"samples/account.yaml": account("echo")}, "samples/account.yaml", 1},
		{"too many", map[string]string{"samples/rollout.yaml": rollout("{services: [one, two, three, four, five]}"),
			"samples/1.yaml": service("one"), "samples/2.yaml": service("two"), "samples/3.yaml": service("three"),
			"samples/4.yaml": service("four"), "samples/5.yaml": service("five")},
			"samples/5.yaml samples/4.yaml samples/1.yaml samples/3.yaml", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var files []file
			for name, text := range tt.files {
				files = append(files, file{path: name, objects: decoded(t, text)})
			}
			at := slices.IndexFunc(files, func(f file) bool { return f.path == "samples/rollout.yaml" })
			valid := func(f *file) bool { return !strings.Contains(f.path, "bad") }
			manifests := &file{objects: decoded(t, service("web")+"---\n"+account("operator"))}
			needed, lacks := needs(&files[at], namedFiles(files), []string{"Store"}, manifests, valid)
			var got []string
			for _, f := range needed {
				got = append(got, f.path)
			}
			if strings.Join(got, " ") != tt.want || lacks != tt.lacks {
				t.Errorf("got %q and %d that are missing, want %q and %d", got, lacks, tt.want, tt.lacks)
			}
		})
	}
}

func decoded(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	list, err := objects.Decode([]byte(text), "file")
	if err != nil {
		t.Fatal(err)
	}
	return list
}
