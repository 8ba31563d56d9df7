// Package controller has what the controllers of disruptions share: their configuration, the names and labels of chaos
// pods, and the way in which each writes its own field. The controllers are the packages below.
package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/internal/controllers"
)

// Finalizers.
const (
	// Finalizer keeps a disruption until nothing of it is left.
	Finalizer = "chaos.trommel.dev/disruption"
	// PodFinalizer keeps a chaos pod until what it injected is known to be removed.
	PodFinalizer = "chaos.trommel.dev/chaos-pod"
)

// Labels and annotations of chaos pods.
const (
	LabelDisruption      = "chaos.trommel.dev/disruption-uid"
	LabelTarget          = "chaos.trommel.dev/target-uid"
	LabelKind            = "chaos.trommel.dev/kind"
	AnnotationDisruption = "chaos.trommel.dev/disruption" // namespace/name
	AnnotationTarget     = "chaos.trommel.dev/target"     // name of the pod (in the disruption's namespace) or node
	AnnotationContainers = "chaos.trommel.dev/containers" // IDs of the target's containers, as they were injected
	AnnotationLevel      = "chaos.trommel.dev/level"      // of the disruption
	LabelCleans          = "chaos.trommel.dev/cleans"     // on a cleaner: UID of the chaos pod after which it cleans
	// AnnotationInjection is on a cleaner: what it cleans, as it is called in the journal.
	AnnotationInjection = "chaos.trommel.dev/injection"
	AnnotationIgnore    = "chaos.trommel.dev/ignore" // "true" on a pod or node: it is never a target
)

// Config configures the controllers.
type Config struct {
	// Namespace in which chaos pods run.
	Namespace string
	// Image of the injector.
	Image string
	// Command of the injector; default: /trommel-injector.
	Command []string
	// PodAnnotations are added to chaos pods.
	PodAnnotations map[string]string
	// PodTolerations are added to chaos pods.
	PodTolerations []corev1.Toleration
	// ServiceAccount of chaos pods; it needs no rights, and they get no token of it.
	ServiceAccount string
	// APIServiceAccount is that of chaos pods of the kinds whose effects are objects; they get its token.
	APIServiceAccount string
	// PriorityClass of chaos pods; empty: none.
	PriorityClass string
	// Simulated is the node on which the chaos pods of targets on simulated nodes run; empty: on the target's own node.
	Simulated string
	// Journal is the directory on each node in which injectors write down what they have to undo; default:
	// /var/lib/trommel-chaos.
	Journal string
	// Privileged gives chaos pods the privileges that faults on real nodes need.
	Privileged bool
	// Grace is the time that an injector has to clean up, in whole seconds; default: one minute.
	Grace time.Duration
	// Overdue is how long after its grace period a chaos pod may still be there before the disruption says that it is
	// stuck; default: 30 seconds.
	Overdue time.Duration
	// KeepFor is how long a disruption that is over is kept; default: 15 minutes.
	KeepFor time.Duration
	// Nets are the safety nets.
	Nets Nets
	// Mode is what the controllers do of what concerns several clusters; default: ModeSingle.
	Mode Mode
	// Remote is for ModeParent.
	Remote Remote
}

// Mode is what controllers do of what concerns several clusters.
type Mode string

// The modes.
const (
	// ModeSingle knows no other clusters.
	ModeSingle Mode = "single"
	// ModeParent also has disruptions carried out in other clusters.
	ModeParent Mode = "parent"
	// ModeChild carries out the disruptions of a parent, and of who creates them there. It has neither crons nor
	// rollouts, and sends no notifications: the parent does.
	ModeChild Mode = "child"
)

// Remote configures what a parent does with other clusters. The zero value suits most.
type Remote struct {
	// WithoutLocal carries out nothing in the parent's own cluster.
	WithoutLocal bool
	// WithoutAuthorization creates disruptions in other clusters without asking them whether the user may.
	WithoutAuthorization bool
	// Webhook is the address, host:port, of the webhook that refuses objects whose user may not create the disruption
	// in the other cluster; empty: none.
	Webhook string
	// Look is how often a cluster is polled, in addition to its watches; default: ten seconds.
	Look time.Duration
	// Installer installs the controllers of RemoteClusters with spec.install; nil: they are installed by hand.
	Installer Installer
	// Wrap wraps the transport of each connection to another cluster, as tests do; nil: it does not.
	Wrap transport.WrapperFunc
}

// Env is what a controller works with.
type Env struct {
	Client client.Client // reads from the cache
	Reader client.Reader // reads from the API server
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config Config
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// Selector is what a target's labels must match.
func Selector(spec *chaos.DisruptionSpec) (labels.Selector, error) {
	s := &metav1.LabelSelector{MatchLabels: spec.Selector}
	for _, e := range spec.AdvancedSelector {
		s.MatchExpressions = append(s.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: e.Key, Operator: e.Operator, Values: e.Values})
	}
	return metav1.LabelSelectorAsSelector(s)
}

// HasTarget reports whether a pod or node is a target of the disruption.
func HasTarget(d *chaos.Disruption, uid types.UID) bool {
	return slices.ContainsFunc(d.Status.Targets, func(t chaos.Target) bool { return t.UID == uid })
}

// TargetObject is a target, for events.
func TargetObject(d *chaos.Disruption, name string, uid types.UID) *corev1.ObjectReference {
	if d.Spec.Level == chaos.LevelNode {
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}
	}
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: d.Namespace, Name: name, UID: uid}
}

// Rank orders candidates for a disruption. The order is that of the seed in its status, so that a controller that has
// forgotten a choice makes the same one again.
func Rank(d *chaos.Disruption, candidate *chaos.Target) string {
	if d.Status.Seed == nil { // an earlier version has begun it
		return shortHash(string(d.UID) + "/" + string(candidate.UID))
	}
	return shortHash(fmt.Sprintf("%d/%s", *d.Status.Seed, candidate.Name))
}

// PodName is the name of the chaos pod for a target and a kind. Only one can exist: so two disruptions of a kind cannot
// have the same target, and a controller that does not remember its last write does not create a second pod. A pod or
// node that takes the target's name has to wait for the end of its chaos pods. target is the name of a pod in the
// namespace, or of a node if the level is node.
func PodName(level chaos.Level, namespace, target string, kind chaos.Kind) string {
	if level == chaos.LevelNode {
		namespace = ""
	}
	const enough = 27 // to recognise it; the name fits into a label
	short := strings.Trim(strings.ReplaceAll(target[:min(len(target), enough)], ".", "-"), "-")
	return fmt.Sprintf("chaos-%s-%s-%s", strings.ToLower(string(kind)), short,
		shortHash(string(level) + "/" + namespace + "/" + target)[:12])
}

// Ready reports whether anything may be done for the disruption: it is checked, and stays until nothing of it is left.
func Ready(d *chaos.Disruption) bool { return slices.Contains(d.Finalizers, Finalizer) && Checked(d) }

// Checked reports whether controllers may decide about the disruption in its status: it has its hash, and is not
// refused.
func Checked(d *chaos.Disruption) bool {
	return d.Status.SpecHash != "" &&
		!specLost(d) && Refusal(&d.Status) == nil
}

// Ending reports whether the disruption must end: it is deleted, over, or no longer what it was.
func Ending(d *chaos.Disruption) bool {
	return d.DeletionTimestamp != nil || d.Status.Schedule.Over ||
		specLost(d)
}

// SetCondition sets a condition; it keeps the time of its last transition.
func SetCondition(status *chaos.DisruptionStatus, kind string, ok bool, reason, message string) {
	value := metav1.ConditionFalse
	if ok {
		value = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: message,
	})
}

// IsRemote reports whether another cluster carries out the disruption.
func IsRemote(d *chaos.Disruption) bool { return SpecOf(d).RemoteCluster != nil }

// ReportedRemotely reports whether only the package remote writes how the disruption goes. A mode without remote
// clusters refuses the disruption, and the same controllers report that as of any other refused one.
func (c *Config) ReportedRemotely(d *chaos.Disruption) bool {
	return IsRemote(d) && (c.Mode == ModeParent || !SpecRefused(&d.Status))
}

// Condition returns a condition, for comparison.
func Condition(status *chaos.DisruptionStatus, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// ChaosPods lists the chaos pods of a disruption. The cache owns them.
func ChaosPods(ctx context.Context, env *Env, d *chaos.Disruption) ([]corev1.Pod, error) {
	pods, err := PodsOf(ctx, env, client.ObjectKeyFromObject(d))
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Labels[LabelDisruption] != string(d.UID) }), err
}

// OwnerOf is the disruption of a chaos pod.
func OwnerOf(pod client.Object) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(pod.GetAnnotations()[AnnotationDisruption], "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok && pod.GetLabels()[LabelDisruption] != ""
}

// CleanersOf lists the cleaners after chaos pods of the disruptions that have, or had, a name. The cache owns them.
func CleanersOf(ctx context.Context, env *Env, key types.NamespacedName) ([]corev1.Pod, error) {
	return listPods(ctx, env, client.MatchingFields{indexCleans: key.String()})
}

// PodReady reports whether a pod is ready: for a chaos pod, whether its fault is in effect.
func PodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Failing reports whether the container of a pod has failed and been started again.
func Failing(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.RestartCount > 0 || c.LastTerminationState.Terminated != nil
	})
}

// FromChaosPods wakes a controller for the disruptions of changed chaos pods.
func FromChaosPods() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		if owner, ok := OwnerOf(o); ok {
			return []reconcile.Request{{NamespacedName: owner}}
		}
		return nil
	})
}

// FromCleaners wakes a controller for the disruptions after which a changed pod cleans.
func FromCleaners() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		namespace, name, ok := strings.Cut(o.GetAnnotations()[AnnotationDisruption], "/")
		if !ok || o.GetLabels()[LabelCleans] == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
	})
}

// Get reads a disruption, with the spec that is carried out; nil if there is none.
func Get(ctx context.Context, reader client.Reader, key types.NamespacedName) (*chaos.Disruption, error) {
	d, err := GetAsWritten(ctx, reader, key)
	if d != nil {
		if spec := carriedOut(d); spec != nil {
			d.Spec = *spec
		}
	}
	return d, err
}

// GetAsWritten reads a disruption, with the spec that users have written; nil if there is none.
func GetAsWritten(ctx context.Context, reader client.Reader, key types.NamespacedName) (*chaos.Disruption, error) {
	d := &chaos.Disruption{}
	err := reader.Get(ctx, key, d)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return d, err
}

// Result turns an error into a result: after an outdated cache or a conflict it retries soon and reports no error.
func Result(err error) (ctrl.Result, error) {
	return controllers.Result(err, ErrOutdated)
}

// After asks for another reconcile at a time.
func After(now, at time.Time) ctrl.Result {
	return ctrl.Result{RequeueAfter: max(at.Sub(now), time.Millisecond)}
}
