package deploy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/plan"
)

// Coordinator is where hooks report.
type Coordinator struct {
	Address string // wire.EnvCoordinator
	Token   string // wire.EnvToken
}

// Given returns what the process node gives the processes of a controller for one run: where its hooks find the
// coordinator, and what the plan switches. A nil coordinator says that it has no hooks. Container is its container, see
// [Container].
func Given(c *plan.Controller, container *corev1.Container, p *plan.Plan, to *Coordinator) cluster.Given {
	g := cluster.Given{Container: container.Name, Env: map[string]string{}}
	if to != nil {
		g.Env[wire.EnvCoordinator] = to.Address
		g.Env[wire.EnvToken] = to.Token
		g.Env[wire.EnvIdentity] = c.Name
	}
	if p.CheckCaches {
		g.Env[plan.MutationDetector] = "true"
	}
	if p.Listing()[c.Name] > 0 && c.WatchList == nil {
		name, value, args := watchListSwitch(c, container, false)
		g.Env[name], g.Args = value, args
	}
	return g
}

// Container returns the container that runs a controller. Own are the controller's objects, as [Controller] returns
// them.
func Container(c *plan.Controller, own []*unstructured.Unstructured) (*corev1.Container, error) {
	template, err := templateOf(own)
	var container *corev1.Container
	switch {
	case err != nil:
	case template == nil:
		err = errors.New("it has neither a Deployment nor a pod")
	default:
		container, err = controllerContainer(c, &template.Spec)
	}
	if err != nil {
		return nil, fmt.Errorf("controller %q: %w", c.Name, err)
	}
	return container, nil
}

// WatchListFeature is client-go's feature that fills caches by a streaming list, and WatchListVariable the variable of
// the environment that sets it.
const (
	WatchListFeature  = "WatchListClient"
	WatchListVariable = "KUBE_FEATURE_" + WatchListFeature
)

// watchListSwitch returns the variable, and the arguments if needed, that set the feature in a controller.
func watchListSwitch(c *plan.Controller, container *corev1.Container, on bool) (name, value string, args []string) {
	if c.Build != nil && c.Build.ControlPlane != "" ||
		slices.ContainsFunc(slices.Concat(container.Command, container.Args), setsWatchList) {
		// Such programs do not look at the environment. The last argument applies.
		args = []string{fmt.Sprintf("--feature-gates=%s=%t", WatchListFeature, on)}
	}
	return WatchListVariable, fmt.Sprint(on), args
}

// setsWatchList reports whether an argument sets the feature.
func setsWatchList(arg string) bool { return strings.Contains(arg, WatchListFeature+"=") }
