package manager

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/originals"
)

// refusedExamples are the examples of chaos-controller that cannot be converted, because they have something without an
// equal here.
var refusedExamples = []string{
	// connState, allowedHosts, cloud, percentages
	"complete.yaml",
	// a number of processors
	"cpu_pressure_count.yaml",
	// no selector
	"disruption_crons-network_drop.yaml", "disruption_crons-reporting_network_drop.yaml",
	"disruption_rollouts-disruption_rollout_network_drop.yaml",
	// allowedHosts, cloud, percentages, connState, onInit
	"network_allowed_hosts.yaml", "network_cloud.yaml", "network_cloud_s3.yaml", "network_dns_resolver_control.yaml",
	"network_filter_connstate.yaml", "on_init.yaml",
}

// TestExamplesOfChaosController converts the examples of chaos-controller. The API server accepts the results. A cron
// and a rollout need a selector that the cluster alone knows: with one, they are accepted, too.
func TestExamplesOfChaosController(t *testing.T) {
	files := must(filepath.Glob("../../../testdata/originals/chaos-controller/*.yaml"))
	c := must(client.New(must(shared.RESTConfig("")), client.Options{Scheme: newScheme()}))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "chaos-demo"}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), ns); err != nil {
			t.Error(err)
		}
	})
	var refused []string
	accepted := 0
	accept := func(file string, text []byte) {
		for _, u := range must(objects.Decode(text, file)) {
			if err := c.Create(t.Context(), u, client.DryRunAll); err != nil {
				t.Errorf("%s: %v\n%s", file, err, text)
			}
			accepted++
		}
	}
	for _, file := range files {
		name := filepath.Base(file)
		if name == "demo.yaml" { // the targets of the examples
			continue
		}
		data := must(os.ReadFile(file))
		text, _, err := originals.Convert(name, data)
		if err == nil {
			accept(name, text)
			continue
		}
		refused = append(refused, name)
		data = []byte(strings.Replace(string(data), "  disruptionTemplate:\n",
			"  disruptionTemplate:\n    selector: {service: demo-curl}\n", 1))
		if text, _, err := originals.Convert(name, data); err == nil {
			accept(name, text)
		}
	}
	slices.Sort(refused)
	if diff := cmp.Diff(refusedExamples, refused); diff != "" {
		t.Errorf("refused (-want +got)\n%s", diff)
	}
	if accepted < 40 {
		t.Errorf("only %d of %d examples were accepted", accepted, len(files))
	}
}

// TestConvertedDisruptions lets the API server judge what examples do not have.
func TestConvertedDisruptions(t *testing.T) {
	c := must(client.New(must(shared.RESTConfig("")), client.Options{Scheme: newScheme()}))
	for name, spec := range map[string]string{
		"dns": `dns: {records: [{hostname: a.example, record: {type: AAAA, value: "2001:db8::1"}}, ` +
			`{hostname: b.example, record: {type: A, value: SERVFAIL}}]}`,
		"disk":   `diskFailure: {paths: [/data], probability: 5%}`,
		"grpc":   `grpc: {port: 1, endpoints: [{endpoint: /a.B/c, override: "{}", queryPercent: 5}]}`,
		"memory": `memoryPressure: {targetPercent: 80%, rampDuration: 1m30s}`,
		"claims": `podReplacement: {gracePeriodSeconds: 5}`,
		"network": `network: {delay: 10, duplicate: 5, ` +
			`services: [{name: a, namespace: b, ports: [{name: web, port: 80}]}]}`,
		"later": `{triggers: {createPods: {notBefore: "2026-01-02T03:04:05Z"}, inject: {offset: 5m}}, ` +
			`containerFailure: {}}`,
	} {
		if inner, ok := strings.CutPrefix(spec, "{"); ok {
			spec = strings.TrimSuffix(inner, "}")
		}
		text, _, err := originals.Convert(name, []byte("apiVersion: chaos.datadoghq.com/v1beta1\nkind: Disruption\n"+
			"metadata: {name: a, namespace: default}\nspec: {count: 1, selector: {a: b}, "+spec+"}\n"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, u := range must(objects.Decode(text, name)) {
			if err := c.Create(t.Context(), u, client.DryRunAll); err != nil {
				t.Errorf("%s: %v\n%s", name, err, text)
			}
			if keys := slices.Collect(maps.Keys(u.Object)); len(keys) != 4 {
				t.Errorf("%s: fields %q", name, keys)
			}
		}
	}
}
