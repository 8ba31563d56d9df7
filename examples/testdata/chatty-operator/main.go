// Command chatty-operator makes a Secret, a ConfigMap and a Service for each Talk, and tells in its status all that has
// happened to it: a history, conditions that stay in the list, counters, the last error, the phase before. None of this
// is wrong after a fault. With --forget-phase it has a bug: it does not say any more that it runs, once it has failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "chatty-operator: %v\n", err)
		os.Exit(1)
	}
}

func newTalk() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.trommel.dev", Version: "v1", Kind: "Talk"})
	return u
}

func run() error {
	forget := flag.Bool("forget-phase", false, "keep the phase Failed for ever")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	r := &reconciler{Client: mgr.GetClient(), forget: *forget, seen: map[string]bool{}}
	// Its own words in the status are no reason to begin anew.
	own := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	err = ctrl.NewControllerManagedBy(mgr).For(newTalk(), own).Owns(&corev1.Secret{}).Owns(&corev1.ConfigMap{}).
		Owns(&corev1.Service{}).Complete(r)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

type reconciler struct {
	client.Client
	forget bool
	seen   map[string]bool // the Talks that this process has reconciled
}

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	talk := newTalk()
	if err := r.Get(ctx, req.NamespacedName, talk); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	s := statusOf(talk)
	if was := len(s) > 0; was && !r.seen[req.String()] {
		s.count("takeovers")
		s.tell("TakenOver", "another process goes on", "Running")
	}
	r.seen[req.String()] = true
	text, _, _ := unstructured.NestedString(talk.Object, "spec", "text")
	step, err := r.makeAll(ctx, talk, text)
	phase := "Running"
	if err != nil {
		phase = "Failed"
		s.condition(step+"Failed", "True", err.Error())
		s.count("failures", step)
		s["lastError"] = step + ": " + err.Error()
		s.tell(step+"Failed", err.Error(), phase)
		s.condition("Ready", "False", err.Error())
	} else {
		s.condition("Ready", "True", "all is made")
		s["text"] = text
		s["observedGeneration"] = talk.GetGeneration()
	}
	if was, _ := s["phase"].(string); was != phase && !(r.forget && was == "Failed") {
		if was != "" {
			s["previousPhase"] = was
		}
		s.tell(phase, "it is "+phase+" now", phase)
		s["phase"] = phase
	}
	changed := talk.DeepCopy()
	changed.Object["status"] = map[string]any(s)
	if !reflect.DeepEqual(changed.Object, talk.Object) {
		if err := r.Status().Update(ctx, changed); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, err
}

// makeAll makes what belongs to a Talk. If that fails, it also returns which step did.
func (r *reconciler) makeAll(ctx context.Context, talk *unstructured.Unstructured, text string) (string, error) {
	meta := metav1.ObjectMeta{Namespace: talk.GetNamespace(), Name: talk.GetName()}
	secret, config, service := &corev1.Secret{ObjectMeta: meta}, &corev1.ConfigMap{ObjectMeta: meta},
		&corev1.Service{ObjectMeta: meta}
	for _, step := range []struct {
		name   string
		object client.Object
		change func()
	}{
		{"Secret", secret, func() { secret.Data = map[string][]byte{"text": []byte(text)} }},
		{"Config", config, func() { config.Data = map[string]string{"text": text} }},
		{"Service", service, func() {
			service.Spec.Selector = map[string]string{"text": text}
			service.Spec.Ports = []corev1.ServicePort{{Port: 80}}
		}},
	} {
		if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, step.object, func() error {
			step.change()
			return controllerutil.SetControllerReference(talk, step.object, r.Scheme())
		}); err != nil {
			return step.name, err
		}
	}
	return "", nil
}

// status is that of a Talk.
type status map[string]any

func statusOf(talk *unstructured.Unstructured) status {
	all, _, _ := unstructured.NestedMap(talk.Object, "status")
	if all == nil {
		return status{}
	}
	return runtime.DeepCopyJSON(all)
}

// tell adds to the history, which has at most eight items.
func (s status) tell(event, message, phase string) {
	list, _ := s["history"].([]any)
	list = append(list, map[string]any{
		"event": event, "message": message, "phase": phase, "at": time.Now().UTC().Format(time.RFC3339),
	})
	s["history"] = list[max(0, len(list)-8):]
}

// condition sets a condition, which stays in the list.
func (s status) condition(typ, value, message string) {
	c := map[string]any{"type": typ, "status": value, "message": message}
	list, _ := s["conditions"].([]any)
	for i := range list {
		if old, _ := list[i].(map[string]any); old["type"] == typ {
			list[i] = c
			return
		}
	}
	s["conditions"] = append(list, c)
}

func (s status) count(path ...string) {
	n, _, _ := unstructured.NestedInt64(s, path...)
	_ = unstructured.SetNestedField(s, n+1, path...) // the path leads to numbers only
}
