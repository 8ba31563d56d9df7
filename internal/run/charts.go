package run

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/plan"
)

// policyAnnotation, with the value keep, has Helm leave an object in the cluster that a chart does not have any more.
const policyAnnotation = "helm.sh/resource-policy"

// takenAway lists what an upgrade by `helm upgrade` deletes: objects of a chart's release that the release does not
// have any more. Definitions in a chart's crds directory belong to no release.
func takenAway(former, now []*unstructured.Unstructured) []*unstructured.Unstructured {
	releases, there := map[string]bool{}, map[plan.ResourceKey]bool{}
	for _, u := range now {
		releases[manifests.ReleaseOf(u)] = true
		there[keyOfObject(u)] = true
	}
	return slices.DeleteFunc(slices.Clone(former), func(u *unstructured.Unstructured) bool {
		release := manifests.ReleaseOf(u)
		return release == "" || !releases[release] || there[keyOfObject(u)] ||
			u.GetAnnotations()[policyAnnotation] == "keep"
	})
}

// keyOfObject names an object. It is the same in all versions of its API.
func keyOfObject(u *unstructured.Unstructured) plan.ResourceKey {
	return plan.ResourceKey{
		Type: strings.ToLower(u.GetKind()), Group: u.GroupVersionKind().Group,
		Namespace: u.GetNamespace(), Name: u.GetName(),
	}
}

// takeAway deletes what the charts of one build have, and those of the next one do not have any more. It reports
// whether Deployments are among that; their pods end later.
func (p *preparation) takeAway(
	ctx context.Context, former, now []*suiteManifests, in func(cluster string) *objects.Client,
) (deployments bool, err error) {
	for i := range former {
		was, err := former[i].read()
		if err != nil {
			return false, err
		}
		is, err := now[i].read()
		if err != nil {
			return false, err
		}
		for _, u := range takenAway(was, is) {
			key := keyOfObject(u)
			err := in(now[i].cluster).Delete(ctx, key, objects.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return false, fmt.Errorf("delete %s, which the chart does not have any more: %w", key, err)
			}
			deployments = deployments || u.GetKind() == "Deployment"
		}
	}
	return deployments, nil
}
