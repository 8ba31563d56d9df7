package webhooks

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/internal/mistake"
	"github.com/trommel-dev/trommel/internal/workload"
	"github.com/trommel-dev/trommel/plan"
)

func objectOf(kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name},
	}}
}

// planned is a plan with a status.
type planned struct{ status coordinator.Status }

func (p *planned) Status(context.Context) (coordinator.Status, error) { return p.status, nil }

// present are the objects of a cluster, by name.
type present map[string]*unstructured.Unstructured

func (p present) Get(_ context.Context, key plan.ResourceKey) (*unstructured.Unstructured, error) {
	if u := p[key.Name]; u != nil {
		return u, nil
	}
	return nil, errors.New("it does not exist")
}

// inside is a cluster in which every address leads to one place.
type inside struct{ address string }

func (i inside) DialInside(ctx context.Context, address string) (net.Conn, error) {
	if i.address == "" {
		return nil, errors.New(address + " " + noPod)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", i.address)
}

// servedBy returns the only cluster, whatever its name.
func servedBy(c Cluster) func(string) Cluster {
	return func(string) Cluster { return c }
}

// webhook returns the configuration of a validating webhook.
func webhook(policy string, config map[string]any) *unstructured.Unstructured {
	u := objectOf("ValidatingWebhookConfiguration", "v")
	u.Object["webhooks"] = []any{map[string]any{"name": "v.x", "failurePolicy": policy, "clientConfig": config}}
	return u
}

func TestDeclaredWebhooks(t *testing.T) {
	definition := func(name, strategy string, versions int) *unstructured.Unstructured {
		u := objectOf("CustomResourceDefinition", name)
		u.Object["spec"] = map[string]any{
			"conversion": map[string]any{"strategy": strategy}, "versions": make([]any, versions),
		}
		return u
	}
	var got []string
	for _, d := range Declared("west", []*unstructured.Unstructured{
		objectOf("ConfigMap", "c"), webhook("Fail", nil), definition("none", "None", 2),
		definition("one", "Webhook", 1), definition("two", "Webhook", 2),
	}) {
		got = append(got, d.Cluster+": "+d.Key.Type+" "+d.Key.Name)
	}
	want := []string{"west: validatingwebhookconfiguration v", "west: customresourcedefinition two"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWebhooksAwait(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	bundle := base64.StdEncoding.EncodeToString(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	service := map[string]any{"name": "example", "namespace": "com"}
	for _, test := range []struct {
		name   string
		object *unstructured.Unstructured
		inside string // where the addresses of the cluster lead; empty: no pod is there
		ready  time.Duration
		err    string // its beginning
		users  bool
	}{
		{name: "responds", ready: time.Minute, object: webhook("Fail", map[string]any{"url": server.URL,
			"caBundle": bundle})},
		{name: "has no certificate yet", ready: 60 * time.Millisecond, inside: server.Listener.Addr().String(),
			object: webhook("Fail", map[string]any{"service": service}),
			err: "a webhook did not respond within 60ms (timeouts.ready): webhook v.x of " +
				"ValidatingWebhookConfiguration v: it has no caBundle yet; tails"},
		{name: "nothing will serve it", ready: time.Minute, users: true,
			object: webhook("Fail", map[string]any{"service": service, "caBundle": bundle}),
			err: "webhook v.x of ValidatingWebhookConfiguration v: example.com.svc:443 selects no pod that is a " +
				"process; its Deployment must be one of the suite's controllers, or the webhook " +
				"must be left out of the manifests"},
		{name: "nothing will serve it, which is ignored", ready: time.Minute,
			object: webhook("Ignore", map[string]any{"service": service, "caBundle": bundle})},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &Set{
				Declared: []Declaration{{Key: plan.ResourceKey{Type: "validatingwebhookconfiguration", Name: "v"}}},
				Ready:    test.ready, In: servedBy(Cluster{present{"v": test.object}, inside{test.inside}}),
				Tails: func(context.Context) string { return "; tails" },
			}
			err := w.Await(t.Context())
			var users *mistake.Error
			if (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) ||
				errors.As(err, &users) != test.users {
				t.Errorf("%v, want %s", err, test.err)
			}
		})
	}

	w := &Set{
		Declared: []Declaration{{Key: plan.ResourceKey{Type: "validatingwebhookconfiguration", Name: "v"}}},
		In: servedBy(Cluster{
			present{"v": webhook("Fail", map[string]any{"service": service, "caBundle": bundle})},
			inside{server.Listener.Addr().String()},
		}),
	}
	const want = "webhook v.x of ValidatingWebhookConfiguration v: example.com.svc:443: tls: "
	if _, err := w.answer(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s: its certificate has another name", err, want)
	}
}

// While a controller that serves a webhook is away because of the plan, the webhook's outage is the plan's effect.
func TestWebhookOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := plan.ResourceKey{Type: "validatingwebhookconfiguration", Name: "v"}
		p := &planned{status: coordinator.Status{Total: 2}}
		cluster := present{}
		w := &Set{
			Declared: []Declaration{{Key: key}}, In: servedBy(Cluster{Objects: cluster}), Plan: p,
			Ready: time.Minute, Step: 20 * time.Second,
		}
		start := time.Now()
		refused := errors.New("connection refused")
		ask := func(what string, err error, want workload.Outage) {
			t.Helper()
			if got := w.Outage(t.Context(), start, err); got != want {
				t.Errorf("%s: %+v, want %+v", what, got, want)
			}
		}
		ask("nothing", refused, workload.Outage{})
		if got := w.LastOutage(); got != "" {
			t.Error(got)
		}
		p.status.Stuck = "db is held"
		ask("held", refused, workload.Outage{Reason: "the plan holds something that the webhook may need: db is held"})
		p.status.Stuck = ""
		w.Killed("db")
		reason := "the plan has killed or frozen the controller db and has not let it go on"
		ask("killed", refused, workload.Outage{Reason: reason})
		p.status.Completed = 2
		ask("killed for good", refused, workload.Outage{Reason: reason, Final: true})
		w.Started("other") // it was never killed
		w.Started("db")
		reason = "the plan has restarted or thawed the controller db, and its webhook does not respond yet: " +
			key.String() + ": it does not exist"
		ask("restarted", refused, workload.Outage{Reason: reason})
		time.Sleep(2 * time.Minute)
		ask("restarted long ago", refused, workload.Outage{Reason: reason, Final: true})
		cluster["v"] = objectOf("ValidatingWebhookConfiguration", "v")
		ask("back", refused, workload.Outage{Over: true})
		ask("back before", refused, workload.Outage{Over: true})
		if got := w.LastOutage(); got != "it waited for a webhook: "+reason {
			t.Error(got)
		}
		start = time.Now()
		ask("no pod, but it may be starting", errors.New(noPod), workload.Outage{})
		time.Sleep(11 * time.Second)
		ask("no pod", errors.New(noPod),
			workload.Outage{Reason: "no process in this cluster serves that webhook", Final: true})
	})
}
