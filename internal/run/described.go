package run

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/internal/run/clientgo"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// describeControllers describes how each controller runs, from its binary's manifest, its Deployment as applied and
// what the process node gives it.
func describeControllers(suite *plan.Suite, binaries []builds.Binary, found *installed) []record.Controller {
	var all []record.Controller
	for i := range suite.Controllers {
		c := &suite.Controllers[i]
		d := clientgo.Describe(c, binaries[i].Manifest)
		d.Source, d.Module = clientgo.ModuleOf(suite, c)
		if container := found.containers[c.Name]; container != nil {
			env, args := processOf(container, found.given[c.Name])
			d.WatchList = clientgo.WatchList(d, env, args)
		}
		for _, u := range found.own[c.Name] {
			if podTemplate(u) == nil {
				continue
			}
			d.Replicas = 1
			if n, given, _ := unstructured.NestedInt64(u.Object, "spec", "replicas"); given {
				d.Replicas = int(n)
			}
		}
		all = append(all, d)
	}
	return all
}

// podTemplate returns the pod, or the pod template of a Deployment; nil: the object is neither.
func podTemplate(u *unstructured.Unstructured) map[string]any {
	switch u.GetKind() {
	case "Pod":
		return u.Object
	case "Deployment":
		template, _, _ := unstructured.NestedMap(u.Object, "spec", "template")
		return template
	}
	return nil
}

// processOf returns the environment and the arguments of the container's processes.
func processOf(container *corev1.Container, given cluster.Given) (env map[string]string, args []string) {
	env = map[string]string{}
	for _, v := range container.Env {
		env[v.Name] = v.Value
	}
	maps.Copy(env, given.Env)
	return env, slices.Concat(container.Command, container.Args, given.Args)
}
