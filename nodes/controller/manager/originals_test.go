package manager

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/originals"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

// cyclops reads an example of Cyclops' documentation, under our API version.
func cyclops(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	list, err := objects.Decode(must(os.ReadFile(file)), file)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d objects, %v", len(list), err)
	}
	list[0].SetAPIVersion(nodes.GroupVersion.String())
	return list[0]
}

const examples = "../../../testdata/originals/cyclops/"

// TestExamplesOfCyclops applies the requests of Cyclops' documentation as they stand, but for the API version, and
// reads them as the controllers do.
func TestExamplesOfCyclops(t *testing.T) {
	files := must(filepath.Glob(examples + "c*.yaml"))
	if len(files) < 8 {
		t.Fatalf("only %d files", len(files))
	}
	c := as("")
	for _, file := range files {
		u := cyclops(t, file)
		if u.GetNamespace() == "" {
			u.SetNamespace("default")
		}
		u.SetName("example-" + strings.TrimSuffix(filepath.Base(file), ".yaml"))
		if err := c.Create(t.Context(), u); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		t.Cleanup(func() {
			if err := c.Delete(context.Background(), u); err != nil {
				t.Error(err)
			}
		})
		q := &nodes.CycleNodeRequest{}
		for range 2 { // the second time into an object that has been read
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(u), q); err != nil {
				t.Fatal(err)
			}
			if both := q.Spec.BothNames(); len(both) > 0 {
				t.Errorf("%s: given twice: %q", file, both)
			}
		}
		s := q.Spec.CycleSettings
		switch filepath.Base(file) {
		case "cycling.yaml":
			if s.Method != nodes.MethodWait || s.Concurrency != 5 || s.CyclingTimeout.Duration() !=
				10*time.Hour+2*time.Minute+time.Second || s.LabelsToRemove[0] != "labelKey" {
				t.Errorf("%+v", s)
			}
		case "cnr7.yaml":
			want := nodes.TLSConfig{RootCA: "ROOT_CA", Certificate: "LEAF_CRT", Key: "LEAF_KEY"}
			check := q.Spec.PreTerminationChecks[0]
			if check.Endpoint != "https://{{ .NodeIP }}:8080/trigger" || check.TLSConfig != want ||
				check.HealthCheck.TLSConfig != want {
				t.Errorf("%+v", check)
			}
		}
	}
}

// TestConvertedExamplesOfCyclops lets the API server judge what becomes of the examples when they are converted.
func TestConvertedExamplesOfCyclops(t *testing.T) {
	c := as("")
	for _, file := range must(filepath.Glob(examples + "*.yaml")) {
		text, _, err := originals.Convert(file, must(os.ReadFile(file)))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, u := range must(objects.Decode(text, file)) {
			if u.GetNamespace() == "" {
				u.SetNamespace("default")
			}
			if err := c.Create(t.Context(), u, client.DryRunAll); err != nil {
				t.Errorf("%s: %v\n%s", file, err, text)
			}
		}
	}
}

// TestNamesOfCyclops lets the API server judge requests in which fields have the names of Cyclops.
func TestNamesOfCyclops(t *testing.T) {
	c := as("")
	for name, row := range map[string]struct {
		spec map[string]any
		want string
	}{
		"cycleNodeSettings": {map[string]any{"cycleNodeSettings": map[string]any{"concurrency": int64(1)}}, ""},
		"both settings": {map[string]any{
			"cycleNodeSettings": map[string]any{"concurrency": int64(1)},
			"cycleSettings":     map[string]any{"method": "Drain"},
		}, "cycleNodeSettings is another name of cycleSettings: give one of them"},
		"no settings": {nil, ""},
		"an unknown method": {map[string]any{"cycleNodeSettings": map[string]any{"method": "Hope"}},
			`supported values: "Drain", "Wait"`},
		"restore": {map[string]any{"restore": true, "cycleNodeSettings": map[string]any{"concurrency": int64(2)}},
			"restore needs the name cycleSettings"},
		"both TLS settings of a health check": {map[string]any{"healthChecks": []any{map[string]any{
			"endpoint": "https://{{ .NodeIP }}/", "tls": map[string]any{"rootCA": "R"},
			"tlsConfig": map[string]any{"rootCA": "R"},
		}}}, "tls is another name of tlsConfig: give one of them"},
		"crt without key": {map[string]any{"healthChecks": []any{map[string]any{
			"endpoint": "https://{{ .NodeIP }}/", "tls": map[string]any{"crt": "C"},
		}}}, "crt and key belong together"},
		"both endpoints": {map[string]any{"preTerminationChecks": []any{map[string]any{
			"endpoint": "http://{{ .NodeIP }}/", "triggerEndpoint": "http://{{ .NodeIP }}/",
			"healthCheck": map[string]any{"endpoint": "http://{{ .NodeIP }}/"},
		}}}, "triggerEndpoint is another name of endpoint: give one of them"},
		"no endpoint": {map[string]any{"preTerminationChecks": []any{map[string]any{
			"healthCheck": map[string]any{"endpoint": "http://{{ .NodeIP }}/"},
		}}}, "endpoint is required"},
		"a strange endpoint": {map[string]any{"preTerminationChecks": []any{map[string]any{
			"triggerEndpoint": "file:///x", "healthCheck": map[string]any{"endpoint": "http://{{ .NodeIP }}/"},
		}}}, "should match '^https?://'"},
		"a strange time to live": {map[string]any{"ttlAfterFinished": "-1h"}, "ttlAfterFinished"},
	} {
		if err := answered(c.Create(t.Context(), rawRequest(row.spec), client.DryRunAll), row.want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// rawRequest is policyRequest with other fields, under any names.
func rawRequest(spec map[string]any) *unstructured.Unstructured {
	all := map[string]any{
		"nodeGroupName": "workers", "selector": map[string]any{"matchLabels": map[string]any{"pool": "x"}},
	}
	maps.Copy(all, spec)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": nodes.GroupVersion.String(), "kind": "CycleNodeRequest",
		"metadata": map[string]any{"namespace": "default", "name": "policy"}, "spec": all,
	}}
}

// TestPolicyOfCyclopsNames makes sure that the admission policies see the fields under both names.
func TestPolicyOfCyclopsNames(t *testing.T) {
	setLimits(t, map[string]string{"maxConcurrency": "2", "checkEndpoints": ""})
	c := as("")
	trigger := func(endpoint string) map[string]any {
		return map[string]any{
			"cycleNodeSettings": map[string]any{"concurrency": int64(2)},
			"preTerminationChecks": []any{map[string]any{
				"triggerEndpoint": endpoint, "healthCheck": map[string]any{"endpoint": "http://{{ .NodeIP }}/"},
			}},
		}
	}
	inForce(t, func(ctx context.Context) error {
		for name, row := range map[string]struct {
			spec map[string]any
			want string
		}{
			"few at a time": {map[string]any{"cycleNodeSettings": map[string]any{"concurrency": int64(2)}}, ""},
			"too many": {map[string]any{"cycleNodeSettings": map[string]any{"concurrency": int64(3)}},
				"cycleSettings.concurrency must be 1 to 2"},
			"all": {map[string]any{"cycleNodeSettings": map[string]any{"method": "Drain"}},
				"cycleSettings.concurrency must be 1 to 2"},
			"no settings":             {nil, "cycleSettings.concurrency must be 1 to 2"},
			"the node is asked":       {trigger("http://{{ .NodeIP }}/"), ""},
			"another server is asked": {trigger("http://evil.example/"), "checks may ask only the nodes, pods"},
		} {
			if err := answered(c.Create(ctx, rawRequest(row.spec), client.DryRunAll), row.want); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
}

// TestCycleByCyclopsNames carries out a request whose fields have the names of Cyclops, with two at a time and method
// Wait, and shows what kubectl get shows of it.
func TestCycleByCyclopsNames(t *testing.T) {
	f := newFixture(t, 2, nil)
	pod := f.pod("waited", f.nodeNames()[0], nil)
	f.start(limits(), false, nil)
	u := rawRequest(map[string]any{
		"nodeGroupName": f.namespace, "selector": map[string]any{"matchLabels": map[string]any{"group": f.namespace}},
		"cycleNodeSettings": map[string]any{"method": "Wait", "concurrency": int64(1)},
	})
	u.SetNamespace(f.namespace)
	u.SetName("cyclops")
	if err := f.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	q := &nodes.CycleNodeRequest{}
	q.Namespace, q.Name = f.namespace, "cyclops"
	f.await(q, "waiting", func(q *nodes.CycleNodeRequest) bool {
		return strings.Contains(q.Status.Message, "waits until these pods end: "+f.namespace+"/waited")
	})
	table := clustertest.Table(t, must(shared.RESTConfig("")),
		"/apis/"+nodes.GroupVersion.String()+"/namespaces/"+f.namespace+"/cyclenoderequests")
	if got := strings.Join(table[1][3:6], " "); got != "Wait 1 WaitingTermination" {
		t.Errorf("columns: %s", got)
	}
	f.delete(pod)
	f.ends(q, nodes.RequestSuccessful)
	if len(q.Status.NodesToTerminate) != 2 {
		t.Errorf("%+v", q.Status)
	}
}
