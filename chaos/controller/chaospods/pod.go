package chaospods

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/inject"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
)

// Files in chaos pods.
const (
	journalDir = "/var/lib/trommel-chaos" // default of Config.Journal
	// A volume of its own: on the process node all pods have the machine's /tmp.
	readyDir  = "/run/trommel-injector"
	readyFile = readyDir + "/readiness_probe"
	// The node's cgroups, where faults on real nodes need them.
	cgroupsDir = "/host/sys/fs/cgroup"
)

// pod makes the chaos pod of a target and a kind on a node.
func (r *Reconciler) pod(d *chaos.Disruption, t *chaos.Target, kind chaos.Kind, node string) (*corev1.Pod, error) {
	spec, err := controller.KindSpec(&d.Spec.Kinds, kind)
	if err != nil {
		return nil, err
	}
	config := &r.Env.Config
	command := config.Command
	if len(command) == 0 {
		command = []string{"/trommel-injector"}
	}
	journal := config.Journal
	if journal == "" {
		journal = journalDir
	}
	// It is a time, not a duration, so that an injector that is restarted ends at the same time without help.
	grace := cmp.Or(max(config.Grace.Truncate(time.Second), 0), time.Minute)
	schedule, _ := controller.Advance(&d.Spec, d.Status.Schedule, r.Env.Clock.Now())
	args := []string{
		"inject", string(kind), "--spec", spec,
		"--disruption", d.Namespace + "/" + d.Name, "--disruption-uid", string(d.UID),
		"--target-uid", string(t.UID), "--target-node", t.Node,
		"--ends-at", controller.End(&d.Spec, schedule).UTC().Format(time.RFC3339Nano),
		"--journal", journal, "--ready-file", readyFile, "--state-file", inject.DefaultStateFile,
		"--grace", grace.String(),
	}
	if d.Spec.Level == chaos.LevelNode {
		args = append(args, "--target-node-level")
	} else {
		args = append(args, "--target-namespace", d.Namespace, "--target-pod", t.Name)
	}
	for _, c := range d.Spec.Containers {
		args = append(args, "--container", c)
	}
	if d.Spec.DryRun {
		args = append(args, "--dry-run")
	}
	directory := corev1.HostPathDirectoryOrCreate
	graceSeconds := int64(grace.Seconds())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: config.Namespace, Name: controller.PodName(d.Spec.Level, d.Namespace, t.Name, kind),
			Finalizers: []string{controller.PodFinalizer},
			Labels: map[string]string{
				controller.LabelDisruption: string(d.UID), controller.LabelTarget: string(t.UID),
				controller.LabelKind: string(kind),
			},
			Annotations: map[string]string{
				controller.AnnotationDisruption: d.Namespace + "/" + d.Name, controller.AnnotationTarget: t.Name,
				controller.AnnotationLevel: string(d.Spec.Level), fault.AnnotationInjector: "true",
				fault.AnnotationReadyFile: readyFile,
			},
		},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyOnFailure, PriorityClassName: config.PriorityClass,
			TerminationGracePeriodSeconds: &graceSeconds,
			// A node that fails because of the disruption must not evict what will repair it.
			Tolerations: append([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, config.PodTolerations...),
			Containers: []corev1.Container{{
				Name: "injector", Image: config.Image, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: command, Args: args,
				// A pod without requests is among the first to be evicted.
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
				}},
				TerminationMessagePath:   inject.DefaultStateFile,
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
				ReadinessProbe: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
						Command: append(slices.Clone(command), "ready", "--ready-file", readyFile),
					}},
					PeriodSeconds: 1, FailureThreshold: 5,
				},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "journal", MountPath: journal}, {Name: "ready", MountPath: readyDir},
				},
			}},
			Volumes: []corev1.Volume{
				{Name: "journal", VolumeSource: corev1.VolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: journal, Type: &directory}}},
				{Name: "ready", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
	}
	maps.Copy(pod.Annotations, config.PodAnnotations)
	restrict(&pod.Spec, config, kind, d.Spec.DryRun, node)
	return pod, nil
}
