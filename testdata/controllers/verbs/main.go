// Command verbs is a controller that does every kind of read and write, one at a time, in the order of its input: for
// the test that compares what plans say of them with what happens. It reads lines "operation name resourceVersion" from
// its standard input and answers each with "ok" or the error.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const ns = "default"

var (
	maps    = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

// worker holds one client of each kind.
type worker struct {
	typed    *kubernetes.Clientset
	dynamic  dynamic.Interface
	metadata metadata.Interface
	prefixed *rest.RESTClient // has no API version: each request adds it to the path
	lister   listers.ConfigMapLister
	cached   client.Client // reads configmaps from the manager's cache
	live     client.Reader
	work     chan event.GenericEvent
	done     chan reconciled
}

// reconciled is the result of a reconcile: whose, and what its annotated call returned.
type reconciled struct {
	name string
	ran  bool
	err  error
}

func main() {
	if err := start(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "verbs:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.QPS = -1
	unversioned := rest.CopyConfig(config)
	unversioned.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	prefixed, err := rest.UnversionedRESTClientFor(unversioned)
	if err != nil {
		return err
	}
	w := &worker{
		typed: kubernetes.NewForConfigOrDie(config), dynamic: dynamic.NewForConfigOrDie(config),
		metadata: metadata.NewForConfigOrDie(config), prefixed: prefixed,
		work: make(chan event.GenericEvent), done: make(chan reconciled),
	}
	factory := informers.NewSharedInformerFactoryWithOptions(w.typed, 0, informers.WithNamespace(ns))
	w.lister = factory.Core().V1().ConfigMaps().Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	mgr, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	w.cached, w.live = mgr.GetClient(), mgr.GetAPIReader()
	// Both informers are there before the first command.
	for _, object := range []client.Object{&corev1.ConfigMap{}, widget("", "")} {
		if _, err := mgr.GetCache().GetInformer(ctx, object); err != nil {
			return err
		}
	}
	c, err := controller.New("verbs", mgr,
		controller.Options{
			Reconciler: reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
				ran, err := called(ctx)
				w.done <- reconciled{r.Name, ran, err}
				return reconcile.Result{}, nil
			})})
	if err != nil {
		return err
	}
	enqueue := handler.Funcs{GenericFunc: func(_ context.Context, e event.GenericEvent,
		q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: e.Object.GetNamespace(),
			Name: e.Object.GetName()}})
	}}
	if err := c.Watch(source.Channel(w.work, enqueue)); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return errors.New("caches did not sync")
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fields := append(strings.Fields(lines.Text()), "", "")
		do, ok := operations[fields[0]]
		if !ok {
			fmt.Printf("no operation %q\n", fields[0])
			continue
		}
		if err := do(ctx, w, fields[1], fields[2]); err != nil {
			fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok")
		}
	}
	return lines.Err()
}

// called is the annotated call.
func called(_ context.Context) (ran bool, err error) { return true, nil }

type operation func(ctx context.Context, w *worker, name, version string) error

func configMap(name, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, ResourceVersion: version,
			Labels: map[string]string{"of": name}},
		Data: map[string]string{"step": "new", "same": "same"},
	}
}

func untyped(apiVersion, kind, name, version string, content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(ns)
	u.SetName(name)
	u.SetResourceVersion(version)
	u.SetLabels(map[string]string{"of": name})
	return u
}

func untypedMap(name, version string) *unstructured.Unstructured {
	return untyped("v1", "ConfigMap", name, version,
		map[string]any{"data": map[string]any{"step": "new", "same": "same"}})
}

// widget has a status and a scale. Its status says "new" too, in whatever it is sent.
func widget(name, version string) *unstructured.Unstructured {
	return untyped("example.com/v1", "Widget", name, version, map[string]any{
		"spec":   map[string]any{"step": "new", "same": "same", "replicas": int64(1)},
		"status": map[string]any{"step": "new"},
	})
}

func ingress(name, version string) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, ResourceVersion: version,
			Labels: map[string]string{"of": name}},
		Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Resource: &corev1.TypedLocalObjectReference{Kind: "x", Name: "x"}}},
		Status: networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{
			Ingress: []networkingv1.IngressLoadBalancerIngress{{Hostname: "new"}},
		}},
	}
}

// The patches set step to "new".
const (
	mergeMap      = `{"data":{"step":"new"}}`
	mergeWidget   = `{"spec":{"step":"new"}}`
	mergeStatus   = `{"status":{"step":"new"}}`
	mergeIngress  = `{"status":{"loadBalancer":{"ingress":[{"hostname":"new"}]}}}`
	jsonMap       = `[{"op":"replace","path":"/data/step","value":"new"}]`
	jsonWidget    = `[{"op":"replace","path":"/spec/step","value":"new"}]`
	jsonStatus    = `[{"op":"replace","path":"/status/step","value":"new"}]`
	mergeReplicas = `{"spec":{"replicas":2}}`
)

func unapplied(u *unstructured.Unstructured) *unstructured.Unstructured {
	u.SetResourceVersion("")
	return u
}

var options = struct {
	create metav1.CreateOptions
	update metav1.UpdateOptions
	patch  metav1.PatchOptions
	apply  metav1.ApplyOptions
	delete metav1.DeleteOptions
	get    metav1.GetOptions
}{apply: metav1.ApplyOptions{FieldManager: "verbs", Force: true}}

func of(name string) metav1.ListOptions { return metav1.ListOptions{LabelSelector: "of=" + name} }

func scale(name, version string) *autoscalingv1.Scale {
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, ResourceVersion: version},
		Spec:       autoscalingv1.ScaleSpec{Replicas: 2},
	}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

func second[T any](_ T, err error) error { return err }

// typedPatch and its like are operations that patch.
func typedPatch(typ types.PatchType, patch string) operation {
	return func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.typed.CoreV1().ConfigMaps(ns).Patch(ctx, name, typ, []byte(patch), options.patch))
	}
}

func ingressPatch(typ types.PatchType) operation {
	return func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.typed.NetworkingV1().Ingresses(ns).Patch(ctx, name, typ, []byte(mergeIngress),
			options.patch, "status"))
	}
}

func dynamicPatch(r schema.GroupVersionResource, typ types.PatchType, patch string, subresources ...string) operation {
	return func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.dynamic.Resource(r).Namespace(ns).Patch(ctx, name, typ, []byte(patch), options.patch,
			subresources...))
	}
}

func metadataPatch(r schema.GroupVersionResource, typ types.PatchType, patch string, subresources ...string) operation {
	return func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.metadata.Resource(r).Namespace(ns).Patch(ctx, name, typ, []byte(patch), options.patch,
			subresources...))
	}
}

func cachedPatch(object func(string, string) client.Object, typ types.PatchType, patch string) operation {
	return func(ctx context.Context, w *worker, name, _ string) error {
		return w.cached.Patch(ctx, object(name, ""), client.RawPatch(typ, []byte(patch)))
	}
}

func cachedStatusPatch(typ types.PatchType, patch string) operation {
	return func(ctx context.Context, w *worker, name, _ string) error {
		return w.cached.Status().Patch(ctx, widget(name, ""), client.RawPatch(typ, []byte(patch)))
	}
}

// request begins a request as Rancher's clients do it: they add the API version with Prefix.
func (w *worker) request(verb string, r schema.GroupVersionResource) *rest.Request {
	prefix := []string{"apis", r.Group, r.Version}
	if r.Group == "" {
		prefix = []string{"api", r.Version}
	}
	return w.prefixed.Verb(verb).Prefix(prefix...).Namespace(ns).Resource(r.Resource)
}

func mapObject(name, version string) client.Object    { return configMap(name, version) }
func widgetObject(name, version string) client.Object { return widget(name, version) }

func metadataOf(kind schema.GroupVersionKind, name string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	m.SetGroupVersionKind(kind)
	return m
}

var mapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

var operations = map[string]operation{
	// Reads.
	"typed-get": func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.typed.CoreV1().ConfigMaps(ns).Get(ctx, name, options.get))
	},
	"typed-list": func(ctx context.Context, w *worker, _, _ string) error {
		return second(w.typed.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{}))
	},
	"typed-list-all": func(ctx context.Context, w *worker, _, _ string) error {
		return second(w.typed.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{}))
	},
	"typed-list-elsewhere": func(ctx context.Context, w *worker, _, _ string) error {
		return second(w.typed.CoreV1().ConfigMaps("kube-system").List(ctx, metav1.ListOptions{}))
	},
	"typed-list-page": func(ctx context.Context, w *worker, _, _ string) error {
		return second(w.typed.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{Limit: 1}))
	},
	"typed-watch": func(ctx context.Context, w *worker, _, _ string) error {
		watch, err := w.typed.CoreV1().ConfigMaps(ns).Watch(ctx, metav1.ListOptions{})
		if err == nil {
			watch.Stop()
		}
		return err
	},
	"dynamic-get": func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.dynamic.Resource(maps).Namespace(ns).Get(ctx, name, options.get))
	},
	"dynamic-get-status": func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.dynamic.Resource(widgets).Namespace(ns).Get(ctx, name, options.get, "status"))
	},
	"dynamic-get-scale": func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.dynamic.Resource(widgets).Namespace(ns).Get(ctx, name, options.get, "scale"))
	},
	"dynamic-list": func(ctx context.Context, w *worker, _, _ string) error {
		return second(w.dynamic.Resource(maps).Namespace(ns).List(ctx, metav1.ListOptions{}))
	},
	"metadata-get": func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.metadata.Resource(maps).Namespace(ns).Get(ctx, name, options.get))
	},
	"metadata-list": func(ctx context.Context, w *worker, _, _ string) error {
		return second(w.metadata.Resource(maps).Namespace(ns).List(ctx, metav1.ListOptions{}))
	},
	"prefixed-get": func(ctx context.Context, w *worker, name, _ string) error {
		return w.request("GET", maps).Name(name).Do(ctx).Error()
	},
	"prefixed-list": func(ctx context.Context, w *worker, _, _ string) error {
		return w.request("GET", maps).Do(ctx).Error()
	},
	"live-get": func(ctx context.Context, w *worker, name, _ string) error {
		return w.live.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, &corev1.ConfigMap{})
	},
	"live-list": func(ctx context.Context, w *worker, _, _ string) error {
		return w.live.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(ns))
	},
	"cached-get": func(ctx context.Context, w *worker, name, _ string) error {
		return w.cached.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, &corev1.ConfigMap{})
	},
	"cached-list": func(ctx context.Context, w *worker, _, _ string) error {
		return w.cached.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(ns))
	},
	"cached-list-all": func(ctx context.Context, w *worker, _, _ string) error {
		return w.cached.List(ctx, &corev1.ConfigMapList{})
	},
	"lister-get": func(_ context.Context, w *worker, name, _ string) error {
		return second(w.lister.ConfigMaps(ns).Get(name))
	},
	"lister-list": func(_ context.Context, w *worker, _, _ string) error {
		return second(w.lister.ConfigMaps(ns).List(labels.Everything()))
	},
	"lister-list-all": func(_ context.Context, w *worker, _, _ string) error {
		return second(w.lister.List(labels.Everything()))
	},

	// Creations.
	"typed-create": func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.typed.CoreV1().ConfigMaps(ns).Create(ctx, configMap(name, ""), options.create))
	},
	"typed-create-generated": func(ctx context.Context, w *worker, name, _ string) error {
		o := configMap("", "")
		o.GenerateName = name + "-"
		return second(w.typed.CoreV1().ConfigMaps(ns).Create(ctx, o, options.create))
	},
	"typed-create-dry": func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.typed.CoreV1().ConfigMaps(ns).Create(ctx, configMap(name, ""),
			metav1.CreateOptions{DryRun: []string{"All"}}))
	},
	"dynamic-create": func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.dynamic.Resource(widgets).Namespace(ns).Create(ctx, widget(name, ""), options.create))
	},
	"prefixed-create": func(ctx context.Context, w *worker, name, _ string) error {
		return w.request("POST", widgets).Body(widget(name, "")).Do(ctx).Error()
	},
	"cached-create": func(ctx context.Context, w *worker, name, _ string) error {
		return w.cached.Create(ctx, configMap(name, ""))
	},

	// Updates.
	"typed-update": func(ctx context.Context, w *worker, name, version string) error {
		return second(w.typed.CoreV1().ConfigMaps(ns).Update(ctx, configMap(name, version), options.update))
	},
	"typed-update-status": func(ctx context.Context, w *worker, name, version string) error {
		return second(w.typed.NetworkingV1().Ingresses(ns).UpdateStatus(ctx, ingress(name, version), options.update))
	},
	"dynamic-update": func(ctx context.Context, w *worker, name, version string) error {
		return second(w.dynamic.Resource(widgets).Namespace(ns).Update(ctx, widget(name, version), options.update))
	},
	"dynamic-update-status": func(ctx context.Context, w *worker, name, version string) error {
		return second(w.dynamic.Resource(widgets).Namespace(ns).UpdateStatus(ctx, widget(name, version),
			options.update))
	},
	"prefixed-update": func(ctx context.Context, w *worker, name, version string) error {
		return w.request("PUT", widgets).Name(name).Body(widget(name, version)).Do(ctx).Error()
	},
	"prefixed-update-status": func(ctx context.Context, w *worker, name, version string) error {
		return w.request("PUT", widgets).Name(name).SubResource("status").Body(widget(name, version)).Do(ctx).Error()
	},
	"cached-update": func(ctx context.Context, w *worker, name, version string) error {
		return w.cached.Update(ctx, configMap(name, version))
	},
	"cached-update-status": func(ctx context.Context, w *worker, name, version string) error {
		return w.cached.Status().Update(ctx, widget(name, version))
	},

	// Patches.
	"typed-patch-merge":            typedPatch(types.MergePatchType, mergeMap),
	"typed-patch-json":             typedPatch(types.JSONPatchType, jsonMap),
	"typed-patch-strategic":        typedPatch(types.StrategicMergePatchType, mergeMap),
	"typed-patch-status-merge":     ingressPatch(types.MergePatchType),
	"typed-patch-status-strategic": ingressPatch(types.StrategicMergePatchType),
	"dynamic-patch-merge":          dynamicPatch(widgets, types.MergePatchType, mergeWidget),
	"dynamic-patch-json":           dynamicPatch(widgets, types.JSONPatchType, jsonWidget),
	"dynamic-patch-strategic":      dynamicPatch(maps, types.StrategicMergePatchType, mergeMap),
	"dynamic-patch-status-merge":   dynamicPatch(widgets, types.MergePatchType, mergeStatus, "status"),
	"dynamic-patch-status-json":    dynamicPatch(widgets, types.JSONPatchType, jsonStatus, "status"),
	"dynamic-patch-scale":          dynamicPatch(widgets, types.MergePatchType, mergeReplicas, "scale"),
	"metadata-patch-merge":         metadataPatch(maps, types.MergePatchType, mergeMap),
	"metadata-patch-json":          metadataPatch(widgets, types.JSONPatchType, jsonWidget),
	"metadata-patch-status":        metadataPatch(widgets, types.MergePatchType, mergeStatus, "status"),
	"cached-patch-merge":           cachedPatch(mapObject, types.MergePatchType, mergeMap),
	"cached-patch-json":            cachedPatch(mapObject, types.JSONPatchType, jsonMap),
	"cached-patch-strategic":       cachedPatch(mapObject, types.StrategicMergePatchType, mergeMap),
	"cached-patch-unstructured":    cachedPatch(widgetObject, types.MergePatchType, mergeWidget),
	"cached-patch-status-merge":    cachedStatusPatch(types.MergePatchType, mergeStatus),
	"cached-patch-status-json":     cachedStatusPatch(types.JSONPatchType, jsonStatus),
	"cached-patch-metadata": func(ctx context.Context, w *worker, name, _ string) error {
		return w.cached.Patch(ctx, metadataOf(mapKind, name), client.RawPatch(types.MergePatchType, []byte(mergeMap)))
	},

	// Applies.
	"typed-apply": func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.typed.CoreV1().ConfigMaps(ns).Apply(ctx,
			corev1ac.ConfigMap(name, ns).WithData(map[string]string{"step": "new"}), options.apply))
	},
	"typed-apply-status": func(ctx context.Context, w *worker, name, _ string) error {
		status := networkingv1ac.IngressStatus().WithLoadBalancer(
			networkingv1ac.IngressLoadBalancerStatus().WithIngress(
				networkingv1ac.IngressLoadBalancerIngress().WithHostname("new")))
		return second(w.typed.NetworkingV1().Ingresses(ns).ApplyStatus(ctx, &networkingv1ac.IngressApplyConfiguration{
			TypeMetaApplyConfiguration: *metav1ac.TypeMeta().WithKind("Ingress").WithAPIVersion(
				"networking.k8s.io/v1"),
			ObjectMetaApplyConfiguration: metav1ac.ObjectMeta().WithName(name).WithNamespace(ns), Status: status,
		}, options.apply))
	},
	"dynamic-apply": func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.dynamic.Resource(widgets).Namespace(ns).Apply(ctx, name, unapplied(widget(name, "")),
			options.apply))
	},
	"dynamic-apply-status": func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.dynamic.Resource(widgets).Namespace(ns).ApplyStatus(ctx, name, unapplied(widget(name, "")),
			options.apply))
	},
	"cached-apply": func(ctx context.Context, w *worker, name, _ string) error {
		return w.cached.Apply(ctx, corev1ac.ConfigMap(name, ns).WithData(map[string]string{"step": "new"}),
			client.FieldOwner("verbs"), client.ForceOwnership)
	},
	"cached-apply-unstructured": func(ctx context.Context, w *worker, name, _ string) error {
		return w.cached.Apply(ctx, client.ApplyConfigurationFromUnstructured(unapplied(widget(name, ""))),
			client.FieldOwner("verbs"), client.ForceOwnership)
	},

	// Scale, eviction, binding, and what leaves an object as it is.
	"typed-scale": func(ctx context.Context, w *worker, name, version string) error {
		return second(w.typed.AppsV1().Deployments(ns).UpdateScale(ctx, name, scale(name, ""), options.update))
	},
	"typed-patch-scale": func(ctx context.Context, w *worker, name, _ string) error {
		return second(w.typed.AppsV1().Deployments(ns).Patch(ctx, name, types.StrategicMergePatchType,
			[]byte(mergeReplicas), options.patch, "scale"))
	},
	"cached-scale": func(ctx context.Context, w *worker, name, version string) error {
		return w.cached.SubResource("scale").Update(ctx, widget(name, version),
			client.WithSubResourceBody(scale(name, version)))
	},
	"typed-evict": func(ctx context.Context, w *worker, name, _ string) error {
		return w.typed.CoreV1().Pods(ns).EvictV1(ctx,
			&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	},
	"cached-evict": func(ctx context.Context, w *worker, name, _ string) error {
		return w.cached.SubResource("eviction").Create(ctx, pod(name), &policyv1.Eviction{})
	},
	"typed-bind": func(ctx context.Context, w *worker, name, _ string) error {
		return w.typed.CoreV1().Pods(ns).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "nowhere"},
		}, options.create)
	},

	// Deletions.
	"typed-delete": func(ctx context.Context, w *worker, name, _ string) error {
		return w.typed.CoreV1().ConfigMaps(ns).Delete(ctx, name, options.delete)
	},
	"typed-delete-dry": func(ctx context.Context, w *worker, name, _ string) error {
		return w.typed.CoreV1().ConfigMaps(ns).Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{"All"}})
	},
	"dynamic-delete": func(ctx context.Context, w *worker, name, _ string) error {
		return w.dynamic.Resource(widgets).Namespace(ns).Delete(ctx, name, options.delete)
	},
	"metadata-delete": func(ctx context.Context, w *worker, name, _ string) error {
		return w.metadata.Resource(maps).Namespace(ns).Delete(ctx, name, options.delete)
	},
	"prefixed-delete": func(ctx context.Context, w *worker, name, _ string) error {
		return w.request("DELETE", maps).Name(name).Do(ctx).Error()
	},
	"cached-delete": func(ctx context.Context, w *worker, name, _ string) error {
		return w.cached.Delete(ctx, configMap(name, ""))
	},
	"typed-delete-collection": func(ctx context.Context, w *worker, name, _ string) error {
		return w.typed.CoreV1().ConfigMaps(ns).DeleteCollection(ctx, options.delete, of(name))
	},
	"dynamic-delete-collection": func(ctx context.Context, w *worker, name, _ string) error {
		return w.dynamic.Resource(widgets).Namespace(ns).DeleteCollection(ctx, options.delete, of(name))
	},
	"metadata-delete-collection": func(ctx context.Context, w *worker, name, _ string) error {
		return w.metadata.Resource(maps).Namespace(ns).DeleteCollection(ctx, options.delete, of(name))
	},
	"cached-delete-collection": func(ctx context.Context, w *worker, name, _ string) error {
		return w.cached.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(ns), client.MatchingLabels{"of": name})
	},
	"typed-delete-other-collection": func(ctx context.Context, w *worker, _, _ string) error {
		return w.typed.CoreV1().ConfigMaps(ns).DeleteCollection(ctx, options.delete, of("nobody"))
	},

	// A reconcile, which makes an annotated call.
	"reconcile": func(ctx context.Context, w *worker, name, _ string) error {
		w.work <- event.GenericEvent{Object: configMap(name, "")}
		did := <-w.done
		if did.name != name {
			return fmt.Errorf("reconciled %s", did.name)
		}
		if did.err != nil {
			return fmt.Errorf("ran: %t, timeout: %t: %w", did.ran, errors.Is(did.err, context.DeadlineExceeded), did.err)
		}
		return nil
	},
}
