// Package webhooks awaits the webhooks that a suite's manifests declare, and knows which of their outages are an effect
// of a plan.
package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/mistake"
	"github.com/trommel-dev/trommel/internal/workload"
	"github.com/trommel-dev/trommel/plan"
)

// Set are the webhooks that the manifests declare, and what the plan has done to the controllers that may serve
// them.
type Set struct {
	Declared []Declaration
	Ready    time.Duration // in which controllers have to start
	Step     time.Duration // that a step of the workload may take
	In       func(cluster string) Cluster
	Clock    *clock.Clock
	Plan     interface {
		Status(ctx context.Context) (coordinator.Status, error)
	}
	Tails func(ctx context.Context) string // of the controllers' logs
	Info  func(text string)

	mu      sync.Mutex
	down    map[string]bool      // controllers that the plan has killed or frozen, and that do not go on yet
	restart map[string]time.Time // controllers restarted since, until their webhooks respond
	over    time.Time            // when the webhooks were last seen to respond again
	last    string               // the latest reason for an outage
}

// Cluster is a cluster whose API servers call webhooks.
type Cluster struct {
	Objects interface {
		Get(ctx context.Context, key plan.ResourceKey) (*unstructured.Unstructured, error)
	}
	Inside cluster.Dialer // nil: addresses inside the cluster cannot be reached
}

// Declaration is an object of a cluster that declares webhooks.
type Declaration struct {
	Cluster string
	Key     plan.ResourceKey
}

// Declared finds the manifests of a cluster that declare webhooks: webhook configurations, and definitions with
// a conversion webhook.
func Declared(cluster string, manifests []*unstructured.Unstructured) (declared []Declaration) {
	for _, u := range manifests {
		switch u.GetKind() {
		case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
			declared = append(declared, Declaration{cluster,
				plan.ResourceKey{Type: strings.ToLower(u.GetKind()), Group: "admissionregistration.k8s.io",
					Name: u.GetName()}})
		case "CustomResourceDefinition":
			strategy, _, _ := unstructured.NestedString(u.Object, "spec", "conversion", "strategy")
			// With one version there is nothing to convert.
			if versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions"); strategy == "Webhook" &&
				len(versions) > 1 {
				declared = append(declared, Declaration{cluster,
					plan.ResourceKey{Type: definitionType, Group: "apiextensions.k8s.io", Name: u.GetName()}})
			}
		}
	}
	return declared
}

// Declare says which webhooks there are from now on.
func (w *Set) Declare(declared []Declaration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Declared = declared
}

// Any reports whether there are any.
func (w *Set) Any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.Declared) > 0
}

// Killed notes that the plan has killed or frozen a controller.
func (w *Set) Killed(controller string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down == nil {
		w.down = map[string]bool{}
	}
	w.down[controller] = true
	delete(w.restart, controller)
}

// Started notes that a controller goes on.
func (w *Set) Started(controller string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down[controller] {
		delete(w.down, controller)
		if w.restart == nil {
			w.restart = map[string]time.Time{}
		}
		w.restart[controller] = w.Clock.Now()
	}
}

// Parts of a cluster network's error for a Service that no pod serves, and of an embedded one's for a Service that no
// process pod serves: none will.
const (
	noPodAtAll = "selects no pod"
	noPod      = noPodAtAll + " that is a process"
)

// Await waits until all webhooks that the manifests declare respond. Otherwise the workload would test the
// webhooks' start instead of the controllers.
func (w *Set) Await(ctx context.Context) error {
	if len(w.Declared) == 0 {
		return nil
	}
	ctx, cancel := clock.WithTimeout(ctx, w.Ready)
	defer cancel()
	start := clock.Now(ctx)
	var last error
	for {
		broken, err := w.answer(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if broken.Key.Type == definitionType && errors.Is(err, errNoBundle) && clock.Since(ctx, start) > bundleGrace {
			// Many projects declare a conversion webhook that they do not use, and leave its configuration
			// incomplete.
			w.Info(err.Error() + ": objects of its other versions cannot be read or written")
			w.Declare(slices.DeleteFunc(slices.Clone(w.Declared), func(d Declaration) bool { return d == broken }))
			continue
		}
		if strings.Contains(err.Error(), noPod) {
			return &mistake.Error{Err: fmt.Errorf("%w; its Deployment must be one of the suite's controllers, or the "+
				"webhook must be left out of the manifests", err)}
		}
		if clock.Sleep(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("a webhook did not respond within %s (timeouts.ready): %w%s", w.Ready,
				last, w.Tails(context.WithoutCancel(ctx)))
		}
	}
}

// errNoBundle is the error of a webhook that has no caBundle yet.
var errNoBundle = errors.New("it has no caBundle yet")

// bundleGrace is how long to wait for a controller to put the caBundle into its conversion webhook's configuration.
const bundleGrace = 5 * time.Second

const definitionType = "customresourcedefinition"

// answer returns the first reason why a declared webhook cannot be called, and what declares it.
func (w *Set) answer(ctx context.Context) (Declaration, error) {
	w.mu.Lock()
	declared := w.Declared
	w.mu.Unlock()
	for _, d := range declared {
		in := w.In(d.Cluster)
		u, err := in.Objects.Get(ctx, d.Key)
		if err != nil {
			return d, fmt.Errorf("%s: %w", d.Key, err)
		}
		if d.Key.Type == definitionType {
			config, _, _ := unstructured.NestedMap(u.Object, "spec", "conversion", "webhook", "clientConfig")
			if err := w.answers(ctx, in.Inside, config); err != nil {
				return d, fmt.Errorf("conversion webhook of %s: %w", u.GetName(), err)
			}
			continue
		}
		hooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
		for _, h := range hooks {
			hook, _ := h.(map[string]any)
			config, _, _ := unstructured.NestedMap(hook, "clientConfig")
			err := w.answers(ctx, in.Inside, config)
			if err != nil && hook["failurePolicy"] == "Ignore" && strings.Contains(err.Error(), noPodAtAll) {
				continue // nothing will serve it, and the API servers ignore that
			}
			if err != nil {
				return d, fmt.Errorf("webhook %v of %s %s: %w", hook["name"], u.GetKind(), u.GetName(), err)
			}
		}
	}
	return Declaration{}, nil
}

// answers connects to a webhook and verifies its certificate as an API server would.
func (w *Set) answers(ctx context.Context, inside cluster.Dialer, config map[string]any) error {
	name, address, err := webhookAddress(config)
	if err != nil {
		return err
	}
	secure := &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12, Time: w.Clock.Now}
	bundle, _ := config["caBundle"].(string)
	switch {
	case bundle != "":
		pem, err := base64.StdEncoding.DecodeString(bundle)
		secure.RootCAs = x509.NewCertPool()
		if err != nil || !secure.RootCAs.AppendCertsFromPEM(pem) {
			return errors.New("its caBundle contains no certificate yet")
		}
	case config["service"] != nil:
		return errNoBundle
	}
	ctx, cancel := clock.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var dial func(ctx context.Context, address string) (net.Conn, error)
	if inside != nil {
		dial = inside.DialInside
	}
	if host, _, _ := net.SplitHostPort(address); isLoopback(host) {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}
	if dial == nil {
		return nil // this cluster has no way to check it
	}
	conn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := tls.Client(conn, secure).HandshakeContext(ctx); err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// webhookAddress returns the name for which a webhook's certificate is verified, and its address.
func webhookAddress(config map[string]any) (name, address string, err error) {
	if text, _ := config["url"].(string); text != "" {
		u, err := url.Parse(text)
		if err != nil {
			return "", "", err
		}
		port := u.Port()
		if port == "" {
			port = "443"
		}
		return u.Hostname(), net.JoinHostPort(u.Hostname(), port), nil
	}
	service, _ := config["service"].(map[string]any)
	if service == nil {
		return "", "", errors.New("its clientConfig names neither a Service nor a URL")
	}
	name = fmt.Sprintf("%v.%v.svc", service["name"], service["namespace"])
	port := "443"
	if p := service["port"]; p != nil {
		port = fmt.Sprint(p)
	}
	return name, net.JoinHostPort(name, port), nil
}

// Outage implements workload.Config.Outage for a write that failed because a webhook could not be called. While a
// controller that the plan has killed, frozen, paused or restarted is not available, the outage is the plan's effect.
func (w *Set) Outage(ctx context.Context, since time.Time, err error) (o workload.Outage) {
	defer func() {
		if o.Reason != "" {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.last = o.Reason
		}
	}()
	status, statusErr := w.Plan.Status(ctx)
	if statusErr != nil {
		return o
	}
	w.mu.Lock()
	down := slices.Sorted(maps.Keys(w.down))
	restarted := slices.Sorted(maps.Keys(w.restart))
	newest := time.Time{}
	for _, at := range w.restart {
		if at.After(newest) {
			newest = at
		}
	}
	w.mu.Unlock()
	switch {
	case len(down) > 0:
		// When all actions are complete, the plan will not start it again.
		return workload.Outage{
			Reason: fmt.Sprintf("the plan has killed or frozen the controller %s and has not let it go on",
				strings.Join(down, ", ")),
			Final: status.Completed == status.Total,
		}
	case len(restarted) > 0:
		_, broken := w.answer(ctx)
		if broken == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, name := range restarted {
				delete(w.restart, name)
			}
			w.over = w.Clock.Now()
			return workload.Outage{Over: true}
		}
		return workload.Outage{
			Reason: fmt.Sprintf("the plan has restarted or thawed the controller %s, and its webhook does not respond "+
				"yet: %v", strings.Join(restarted, ", "), broken),
			Final: w.Clock.Since(newest) > w.Ready,
		}
	case status.Stuck != "":
		return workload.Outage{Reason: "the plan holds something that the webhook may need: " + status.Stuck}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over.After(since) {
		return workload.Outage{Over: true}
	}
	for _, limit := range []string{noPod, "is simulated", "nothing leaves the machine"} {
		// A pod may still be starting.
		if strings.Contains(err.Error(), limit) && w.Clock.Since(since) > w.Step/2 {
			return workload.Outage{Reason: "no process in this cluster serves that webhook", Final: true}
		}
	}
	return workload.Outage{}
}

// LastOutage returns the latest reason why the workload waited for a webhook; "" if it did not.
func (w *Set) LastOutage() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == "" {
		return ""
	}
	return "it waited for a webhook: " + w.last
}
