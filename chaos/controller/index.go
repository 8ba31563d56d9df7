package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// Indices of the cache, so that a controller need not look through all chaos pods or disruptions.
const (
	indexDisruption = "disruption" // of chaos pods: namespace/name of their disruption
	indexCleans     = "cleans"     // of cleaners: namespace/name of the disruption after whose chaos pods they clean
	indexTarget     = "target"     // of chaos pods and disruptions: the UIDs of their targets
)

// Index adds the indices to a cache that has not started.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	ofPods := func(name string, value func(*corev1.Pod) string) error {
		return indexer.IndexField(ctx, &corev1.Pod{}, name, func(o client.Object) []string {
			pod, ok := o.(*corev1.Pod)
			if _, owned := OwnerOf(o); !ok || !owned {
				return nil
			}
			return []string{value(pod)}
		})
	}
	err := ofPods(indexDisruption, func(p *corev1.Pod) string { return p.Annotations[AnnotationDisruption] })
	if err != nil {
		return err
	}
	if err := ofPods(indexTarget, func(p *corev1.Pod) string { return p.Labels[LabelTarget] }); err != nil {
		return err
	}
	err = indexer.IndexField(ctx, &corev1.Pod{}, indexCleans, func(o client.Object) []string {
		if o.GetLabels()[LabelCleans] == "" {
			return nil
		}
		return []string{o.GetAnnotations()[AnnotationDisruption]}
	})
	if err != nil {
		return err
	}
	return indexer.IndexField(ctx, &chaos.Disruption{}, indexTarget, func(o client.Object) []string {
		d, ok := o.(*chaos.Disruption)
		if !ok || IsRemote(d) {
			return nil // these targets are in another cluster
		}
		var uids []string
		for _, t := range d.Status.Targets {
			uids = append(uids, string(t.UID))
		}
		return uids
	})
}

// PodsOf lists the chaos pods of the disruptions that have, or had, a name. The cache owns them.
func PodsOf(ctx context.Context, env *Env, key types.NamespacedName) ([]corev1.Pod, error) {
	return listPods(ctx, env, client.MatchingFields{indexDisruption: key.String()})
}

// PodsAt lists the chaos pods of a target. The cache owns them.
func PodsAt(ctx context.Context, env *Env, target types.UID) ([]corev1.Pod, error) {
	return listPods(ctx, env, client.MatchingFields{indexTarget: string(target)})
}

func listPods(ctx context.Context, env *Env, which client.MatchingFields) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := env.Client.List(ctx, &pods, client.InNamespace(env.Config.Namespace), which, client.UnsafeDisableDeepCopy)
	return pods.Items, err
}

// DisruptionsAt lists the disruptions that have a target. The cache owns them.
func DisruptionsAt(ctx context.Context, env *Env, target types.UID) ([]chaos.Disruption, error) {
	var list chaos.DisruptionList
	err := env.Client.List(ctx, &list, client.MatchingFields{indexTarget: string(target)}, client.UnsafeDisableDeepCopy)
	return list.Items, err
}
