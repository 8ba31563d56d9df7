package run

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// upgrades installs other builds of the controllers in the course of a run. It implements actions.Upgrades.
type upgrades struct {
	// install applies a build's manifests, except the controllers' own objects.
	install func(ctx context.Context, build string) (*installed, error)
	// takeAway deletes what the charts of one build have, and those of the other one do not; see preparation.takeAway.
	takeAway    func(ctx context.Context, from, to string) (deployments bool, err error)
	in          func(controller string) upgradedCluster
	controllers interface {
		Kill(ctx context.Context, name string) (running bool, err error)
		Start(ctx context.Context, name string) (running bool, err error)
	}
	sessions interface {
		Connections(ctx context.Context, identity string) (total, live int, err error)
	}
	await func(ctx context.Context, name string, after int) error
	pods  func(ctx context.Context, name string) ([]*unstructured.Unstructured, error) // of a controller
	names []string                                                                     // of the controllers
	ready time.Duration                                                                // in which a rollout must end
	// become is called with the installed build, before its controllers are installed.
	become func(ctx context.Context, build string, found *installed) error
	info   func(text string)

	mu    sync.Mutex
	down  map[string]bool // controllers that an upgrade has killed and not started again
	build string          // that is installed
}

// upgradedCluster is the cluster in which a controller runs.
type upgradedCluster struct {
	objects interface {
		Get(ctx context.Context, key plan.ResourceKey) (*unstructured.Unstructured, error)
		List(ctx context.Context, key plan.ResourceKey) ([]*unstructured.Unstructured, error)
		Delete(ctx context.Context, key plan.ResourceKey, o objects.DeleteOptions) error
	}
	apply func(ctx context.Context, u *unstructured.Unstructured) error
}

// Upgrade installs a build as a user does who applies its manifests: what only the former ones have stays, unless it
// belongs to the release of a chart.
func (u *upgrades) Upgrade(ctx context.Context, to string, how plan.UpgradeHow) error {
	what := (&plan.Upgrading{To: to}).Name()
	if err := u.upgrade(ctx, to, how); err != nil {
		return fmt.Errorf("upgrade to %s: %w", what, err)
	}
	u.info("upgraded to " + what)
	return nil
}

func (u *upgrades) upgrade(ctx context.Context, to string, how plan.UpgradeHow) error {
	if how == plan.UpgradeKill {
		for _, name := range u.names {
			u.mark(name, true)
			if _, err := u.controllers.Kill(ctx, name); err != nil {
				return err
			}
		}
	}
	found, err := u.install(ctx, to)
	if err != nil {
		return err
	}
	if err := u.become(ctx, to, found); err != nil {
		return err
	}
	u.mu.Lock()
	from := u.build
	u.build = to
	u.mu.Unlock()
	deployments, err := u.takeAway(ctx, from, to)
	if err != nil {
		return err
	}
	for _, name := range u.names {
		if err := u.replace(ctx, name, found.own[name], how, deployments); err != nil {
			return err
		}
	}
	return nil
}

// replace applies a controller's own objects, and returns when only their pods run. Renamed: a Deployment was taken
// away; it is the controller's if the controller's own one is new.
func (u *upgrades) replace(
	ctx context.Context, name string, own []*unstructured.Unstructured, how plan.UpgradeHow, renamed bool,
) error {
	before, _, err := u.sessions.Connections(ctx, name)
	if err != nil {
		return err
	}
	former, err := u.pods(ctx, name)
	if err != nil {
		return err
	}
	rolled, in := false, u.in(name)
	for _, o := range own {
		old, sets, err := in.deployed(ctx, o)
		if err != nil {
			return err
		}
		if err := in.apply(ctx, o); err != nil {
			return err
		}
		if old == nil {
			rolled = rolled || renamed && o.GetKind() == "Deployment"
			continue
		}
		now, err := in.objects.Get(ctx, deploymentKey(o))
		if err != nil {
			return err
		}
		if reflect.DeepEqual(podTemplate(old), podTemplate(now)) {
			continue
		}
		rolled = true
		if how == plan.UpgradeKill {
			// The killed processes must not come back, and nothing would end their pods: those of the new build cannot
			// be ready before they may start.
			for _, key := range sets {
				err := in.objects.Delete(ctx, key, objects.DeleteOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					return fmt.Errorf("delete %s: %w", key, err)
				}
			}
		}
	}
	if rolled {
		if err := u.gone(ctx, name, former); err != nil {
			return err
		}
	}
	if how == plan.UpgradeKill {
		if _, err := u.controllers.Start(ctx, name); err != nil {
			return err
		}
		u.mark(name, false)
		return nil
	}
	if !rolled {
		before = 0 // its present sessions count
	}
	return u.await(ctx, name, before)
}

// deployed returns a Deployment as it is before it is applied, and the keys of its ReplicaSets; nil if there is none.
func (u upgradedCluster) deployed(
	ctx context.Context, o *unstructured.Unstructured,
) (*unstructured.Unstructured, []plan.ResourceKey, error) {
	if o.GetKind() != "Deployment" {
		return nil, nil, nil
	}
	key := deploymentKey(o)
	old, err := u.objects.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	all, err := u.objects.List(ctx, plan.ResourceKey{
		Type: "replicaset", Group: "apps", Namespace: key.Namespace, Name: "*",
	})
	if err != nil {
		return nil, nil, err
	}
	var sets []plan.ResourceKey
	for _, set := range all {
		if metav1.IsControlledBy(set, old) {
			sets = append(sets, plan.ResourceKey{
				Type: "replicaset", Group: "apps", Namespace: key.Namespace, Name: set.GetName(),
			})
		}
	}
	return old, sets, nil
}

// deploymentKey is the key of a Deployment.
func deploymentKey(o *unstructured.Unstructured) plan.ResourceKey {
	key := keyOfObject(o)
	key.Namespace = cmp.Or(key.Namespace, "default")
	return key
}

// gone waits until none of these pods of a controller is there any more.
func (u *upgrades) gone(ctx context.Context, name string, former []*unstructured.Unstructured) error {
	ctx, cancel := clock.WithTimeout(ctx, u.ready)
	defer cancel()
	for {
		now, err := u.pods(ctx, name)
		if err == nil && !slices.ContainsFunc(now, func(p *unstructured.Unstructured) bool {
			return slices.ContainsFunc(former, func(f *unstructured.Unstructured) bool {
				return f.GetUID() == p.GetUID()
			})
		}) {
			return nil
		}
		if clock.Sleep(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("the former pods of controller %q are still there after %s (timeouts.ready)", name,
				u.ready)
		}
	}
}

// Recover starts the controllers that an upgrade has left killed.
func (u *upgrades) Recover(ctx context.Context) error {
	for _, name := range u.names {
		u.mu.Lock()
		down := u.down[name]
		u.mu.Unlock()
		if !down {
			continue
		}
		if _, err := u.controllers.Start(ctx, name); err != nil {
			return err
		}
		u.mark(name, false)
	}
	return nil
}

func (u *upgrades) mark(name string, down bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down == nil {
		u.down = map[string]bool{}
	}
	u.down[name] = down
}
