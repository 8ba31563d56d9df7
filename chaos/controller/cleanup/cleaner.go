package cleanup

import (
	"context"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/inject"
)

// A cleaner is a pod that does what an injector was killed before it could do, by the journal on its node. It has what
// the injector's pod had, and goes with it. If that pod has gone already, because its finalizer was removed by hand,
// the cleaner goes when it has succeeded.

// cleanerTime is how long a cleaner may take before a person has to look.
const cleanerTime = time.Minute

func cleanerName(pod *corev1.Pod) string { return "chaos-clean-" + string(pod.UID) }

// clean lets a cleaner clean after a chaos pod that has failed. It returns goes when nothing is left, waits while the
// cleaner works, with the time when that becomes suspicious, and stays if it cannot.
func (r *Reconciler) clean(ctx context.Context, pod *corev1.Pod) (verdict, time.Time, error) {
	cleaner := &corev1.Pod{}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: cleanerName(pod)}
	err := r.Env.Client.Get(ctx, key, cleaner)
	if apierrors.IsNotFound(err) {
		cleaner := newCleaner(pod)
		cleaner.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		}
		err := r.Env.Client.Create(ctx, cleaner)
		if apierrors.IsAlreadyExists(err) {
			err = nil // the cache is behind
		}
		return waits, time.Time{}, err // its change wakes the controller
	}
	if err != nil {
		return waits, time.Time{}, err
	}
	switch {
	case cleaner.Status.Phase == corev1.PodSucceeded:
		return goes, time.Time{}, nil
	case cleaner.Status.Phase == corev1.PodFailed && cleaner.DeletionTimestamp == nil:
		// It was evicted, or its node did not take it.
		uid := cleaner.UID
		err := r.Env.Client.Delete(ctx, cleaner, client.Preconditions{UID: &uid})
		return waits, time.Time{}, client.IgnoreNotFound(err)
	case controller.Failing(cleaner):
		return stays, time.Time{}, nil
	}
	late := cleaner.CreationTimestamp.Add(cleanerTime)
	if !r.Env.Clock.Now().Before(late) {
		return stays, time.Time{}, nil
	}
	return waits, late, nil
}

// newCleaner makes the cleaner of a chaos pod from the chaos pod: so it has the same node, image, account, privileges
// and journal.
func newCleaner(pod *corev1.Pod) *corev1.Pod {
	annotations := maps.Clone(pod.Annotations)
	annotations[controller.AnnotationInjection] = injectionID(pod)
	return cleaner(pod, metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: cleanerName(pod),
		Labels: map[string]string{
			controller.LabelCleans: string(pod.UID), controller.LabelKind: pod.Labels[controller.LabelKind],
		},
		Annotations: annotations,
	}, []string{"clean", "--journal", journalOf(pod), "--id", injectionID(pod)})
}

// again makes a cleaner from one that did not run, for instance because it was evicted.
func again(failed *corev1.Pod) *corev1.Pod {
	return cleaner(failed, metav1.ObjectMeta{
		Namespace: failed.Namespace, Name: failed.Name, Labels: failed.Labels, Annotations: failed.Annotations,
	}, failed.Spec.Containers[0].Args)
}

// cleaner makes a cleaner from another pod.
func cleaner(pod *corev1.Pod, meta metav1.ObjectMeta, args []string) *corev1.Pod {
	old := &pod.Spec.Containers[0]
	own := func(name string) bool { return !strings.HasPrefix(name, "kube-api-access-") } // that one is added again
	c := corev1.Container{
		Name: old.Name, Image: old.Image, ImagePullPolicy: old.ImagePullPolicy, Command: old.Command, Args: args,
		Env: old.Env, Resources: old.Resources, SecurityContext: old.SecurityContext,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	for _, m := range old.VolumeMounts {
		if own(m.Name) {
			c.VolumeMounts = append(c.VolumeMounts, m)
		}
	}
	cleaner := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		NodeName: pod.Spec.NodeName, RestartPolicy: corev1.RestartPolicyOnFailure,
		PriorityClassName: pod.Spec.PriorityClassName, ServiceAccountName: pod.Spec.ServiceAccountName,
		AutomountServiceAccountToken: pod.Spec.AutomountServiceAccountToken, HostPID: pod.Spec.HostPID,
		EnableServiceLinks: pod.Spec.EnableServiceLinks, Tolerations: pod.Spec.Tolerations,
		Containers: []corev1.Container{c},
	}}
	for _, v := range pod.Spec.Volumes {
		if own(v.Name) {
			cleaner.Spec.Volumes = append(cleaner.Spec.Volumes, v)
		}
	}
	return cleaner
}

// injectionID is the ID in the journal of a chaos pod's injection.
func injectionID(pod *corev1.Pod) string {
	return inject.Request{
		DisruptionUID: types.UID(pod.Labels[controller.LabelDisruption]), Kind: controller.KindOf(pod),
		Target: inject.Target{UID: types.UID(pod.Labels[controller.LabelTarget])},
	}.ID()
}

// journalOf is the directory of a chaos pod's journal, in the pod and on its node.
func journalOf(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if v.Name == "journal" && v.HostPath != nil {
			return v.HostPath.Path
		}
	}
	return ""
}

// injectorOf is the injector of a chaos pod as a person starts it on the pod's node. What lies at the root of an image
// is somewhere in the path there.
func injectorOf(pod *corev1.Pod) string {
	command := pod.Spec.Containers[0].Command
	if len(command) == 1 && path.Dir(command[0]) == "/" {
		return path.Base(command[0])
	}
	return strings.Join(command, " ")
}

// remedy is what a person does on the node of a chaos pod, and then to the pod.
func remedy(pod *corev1.Pod) string {
	return fmt.Sprintf("Restart the target, or run `%s clean --journal %s --id %s` as root on node %s. "+
		"Then let the pod go: `kubectl patch pod -n %s %s --type=json -p "+
		`'[{"op":"remove","path":"/metadata/finalizers"}]'`+"`",
		injectorOf(pod), journalOf(pod), injectionID(pod), pod.Spec.NodeName, pod.Namespace, pod.Name)
}
